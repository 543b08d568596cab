//! Documents for the roles and bindings of machines.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

#[path = "support/guest.rs"]
mod guest;

use std::collections::BTreeMap;

use guest::{Guest, TOKEN, machine, parse};
use guestcluster_bootstrap::{Binding, MachineConfig, Role, meta_data, render, scrubbed};
use serde_json::Value;

/// KubeVirt's limit for a document that is not in a Secret is 2 KiB; a Secret holds 1 MiB, but a
/// document this large would mean that something went in that should not.
const LARGEST: usize = 64 * 1024;

fn roles() -> [(&'static str, Role); 3] {
    [
        (
            "init",
            Role::Init {
                etcd_disk: true,
                components: guest::components(),
            },
        ),
        (
            "join-control-plane",
            Role::JoinControlPlane { etcd_disk: false },
        ),
        ("join-worker", Role::JoinWorker),
    ]
}

#[test]
fn each_role_and_binding_gets_the_document_it_needs() {
    let guest = Guest::fixed();
    for binding in [Binding::Bridge, Binding::Masquerade] {
        for (name, role) in roles() {
            let config = machine(binding, role);
            let document = render(&config, &guest.secrets(&config)).unwrap();
            assert!(
                document.expose().len() < LARGEST,
                "{} bytes",
                document.expose().len()
            );
            let readable = guest::without_secrets(&guest::unfold(document.expose()));
            insta::assert_snapshot!(format!("{name}-{binding:?}").to_lowercase(), readable);
        }
    }
}

#[test]
fn a_converged_machine_keeps_room_for_its_control_plane_and_is_not_marked() {
    let guest = Guest::fixed();
    for (name, role) in &roles()[..2] {
        let dedicated = files(&guest, &machine(Binding::Bridge, role.clone()));
        let mut converged = files(&guest, &guest::converged(role.clone()));
        converged.retain(|path, content| dedicated.get(path) != Some(content));
        let readable: Vec<String> = converged
            .iter()
            .map(|(path, content)| format!("=== {path}\n{content}"))
            .collect();
        insta::assert_snapshot!(format!("converged-{name}"), readable.join("\n"));
    }
}

fn files(guest: &Guest, config: &MachineConfig) -> BTreeMap<String, String> {
    let document = render(config, &guest.secrets(config)).unwrap();
    let document = parse(document.expose());
    let files = document["write_files"].as_array().unwrap().iter();
    let text = |file: &Value, key: &str| file[key].as_str().unwrap().to_owned();
    files
        .map(|file| (text(file, "path"), text(file, "content")))
        .collect()
}

#[test]
fn the_document_after_the_join_is_the_same_for_all() {
    let texts: Vec<String> = roles()
        .into_iter()
        .map(|(_, role)| {
            let config = machine(Binding::Masquerade, role);
            scrubbed(&config)
                .unwrap()
                .expose()
                .replace(&config.name, "NAME")
        })
        .collect();
    assert_eq!(texts[0], texts[1]);
    assert_eq!(texts[0], texts[2]);
    insta::assert_snapshot!("scrubbed", guest::unfold(&texts[0]));
}

#[test]
fn x4_the_document_after_the_join_holds_no_secret() {
    let guest = Guest::fixed();
    for (_, role) in roles() {
        let config = machine(Binding::Masquerade, role);
        let before = render(&config, &guest.secrets(&config)).unwrap();
        assert!(before.expose().contains(TOKEN));
        let after = scrubbed(&config).unwrap();
        for secret in guest::secret_lines() {
            assert!(!after.expose().contains(&secret), "{secret} is left");
        }
    }
}

#[test]
fn a_worker_is_given_no_private_key() {
    let guest = Guest::fixed();
    let config = machine(Binding::Bridge, Role::JoinWorker);
    let document = render(&config, &guest.secrets(&config)).unwrap();
    assert!(!document.expose().contains("PRIVATE KEY"));
}

#[test]
fn files_with_secrets_are_readable_by_root_alone() {
    let guest = Guest::fixed();
    for (_, role) in roles() {
        let config = machine(Binding::Bridge, role);
        let document = render(&config, &guest.secrets(&config)).unwrap();
        for file in parse(document.expose())["write_files"].as_array().unwrap() {
            let content = file["content"].as_str().unwrap();
            let secret = guest::secret_lines()
                .iter()
                .any(|secret| content.contains(secret));
            let expected = if secret { "0600" } else { "0644" };
            assert_eq!(file["permissions"], expected, "{}", file["path"]);
            assert_eq!(file["owner"], "root:root", "{}", file["path"]);
        }
    }
}

#[test]
fn no_user_is_added() {
    let guest = Guest::fixed();
    let config = machine(Binding::Bridge, Role::JoinWorker);
    let document = parse(render(&config, &guest.secrets(&config)).unwrap().expose());
    for key in ["users", "ssh_authorized_keys", "chpasswd", "password"] {
        assert!(document.get(key).is_none(), "{key}");
    }
}

#[test]
fn equal_inputs_give_equal_bytes() {
    let guest = Guest::fixed();
    let config = machine(Binding::Masquerade, roles()[0].1.clone());
    let once = render(&config, &guest.secrets(&config)).unwrap();
    let twice = render(&config, &guest.secrets(&config)).unwrap();
    assert_eq!(once.expose(), twice.expose());
}

#[test]
fn debug_output_shows_no_secret() {
    let guest = Guest::fixed();
    let config = machine(Binding::Bridge, Role::JoinControlPlane { etcd_disk: true });
    let secrets = guest.secrets(&config);
    let document = render(&config, &secrets).unwrap();
    let shown = format!("{secrets:?} {document:?} {:?}", document.to_secret());
    for secret in guest::secret_lines() {
        assert!(!shown.contains(&secret), "{shown}");
    }
}

#[test]
fn meta_data_names_the_machine_and_its_instance() {
    let config = machine(Binding::Bridge, Role::JoinWorker);
    assert_eq!(
        meta_data(&config, "9f0c"),
        "instance-id: 9f0c\nlocal-hostname: prod-general-1\n"
    );
}
