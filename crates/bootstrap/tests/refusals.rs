//! Inputs that cannot work, and laws that hold for all that can.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

#[path = "support/guest.rs"]
mod guest;

use std::net::Ipv4Addr;

use guest::{Guest, machine, parse};
use guestcluster_bootstrap::{
    Binding, Error, MachineConfig, Role, Secrets, Version, render, scrubbed,
};
use proptest::prelude::*;

fn init() -> MachineConfig {
    machine(
        Binding::Bridge,
        Role::Init {
            etcd_disk: false,
            components: guest::components(),
        },
    )
}

fn worker(binding: Binding) -> MachineConfig {
    machine(binding, Role::JoinWorker)
}

/// Renders both documents, which must agree on what is wrong.
fn refused(config: &MachineConfig) -> String {
    let guest = Guest::fixed();
    let error = render(config, &guest.secrets(config)).unwrap_err();
    assert_eq!(scrubbed(config).unwrap_err(), error);
    error.to_string()
}

#[test]
fn what_cannot_work_is_refused_with_what_would_do() {
    type Change = fn(&mut MachineConfig);
    let changes: [(&str, Change); 16] = [
        ("name with a dot", |c| c.name = "prod.cp".to_owned()),
        ("name too long", |c| c.name = "a".repeat(64)),
        ("cluster name", |c| c.cluster.name = "Prod".to_owned()),
        ("endpoint host", |c| {
            c.cluster.endpoint.host = "https://a".to_owned();
        }),
        ("endpoint address", |c| {
            c.cluster.endpoint.host = "10.0.0.256".to_owned();
        }),
        ("endpoint port", |c| c.cluster.endpoint.port = 0),
        ("domain", |c| {
            c.cluster.dns_domain = "cluster_local".to_owned();
        }),
        ("pods not a range", |c| {
            c.cluster.pod_cidr = "10.200.0.0".to_owned();
        }),
        ("pods not at the first address", |c| {
            c.cluster.pod_cidr = "10.200.0.1/16".to_owned();
        }),
        ("pods too few", |c| {
            c.cluster.pod_cidr = "10.200.0.0/25".to_owned();
        }),
        ("services too many", |c| {
            c.cluster.service_cidr = "10.0.0.0/11".to_owned();
        }),
        ("ranges overlap", |c| {
            c.cluster.service_cidr = "10.200.128.0/20".to_owned();
        }),
        ("no Service address", |c| c.service_address = None),
        ("loopback", |c| {
            c.service_address = Some(Ipv4Addr::LOCALHOST);
        }),
        ("label", |c| {
            c.labels
                .insert("node-role.kubernetes.io/worker".to_owned(), String::new());
        }),
        ("taint", |c| c.taints[0].key = "a b".to_owned()),
    ];
    let table: Vec<String> = changes
        .iter()
        .map(|(what, change)| {
            let mut config = init();
            change(&mut config);
            format!("{what}: {}", refused(&config))
        })
        .collect();
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn masquerade_wants_a_stable_address_for_every_machine_and_bridge_none_for_workers() {
    let mut config = worker(Binding::Masquerade);
    let address = config.service_address.take();
    assert!(refused(&config).contains("needs the address of its Service"));
    let mut config = worker(Binding::Bridge);
    config.service_address = address;
    assert!(refused(&config).contains("takes no Service address"));
}

#[test]
fn a_worker_is_not_converged() {
    let mut config = worker(Binding::Bridge);
    config.converged = guest::converged(init().role).converged;
    assert!(refused(&config).contains("only a control-plane machine can be converged"));
}

#[test]
fn arguments_that_the_design_relies_on_are_not_overridden() {
    for argument in [
        "listen-peer-urls",
        "peer-skip-client-san-verification",
        "data-dir",
    ] {
        let mut components = guest::components();
        components.etcd.insert(argument.to_owned(), "x".to_owned());
        let config = machine(
            Binding::Bridge,
            Role::Init {
                etcd_disk: false,
                components,
            },
        );
        assert_eq!(
            refused(&config),
            format!("the argument `{argument}` of etcd is set by the operator and cannot be given")
        );
    }
}

#[test]
fn a_worker_is_not_rendered_with_the_secrets_of_the_control_plane() {
    let guest = Guest::fixed();
    let config = worker(Binding::Bridge);
    let secrets = Secrets::ControlPlane {
        pki: &guest.pki,
        token: &guest.token,
    };
    assert_eq!(
        render(&config, &secrets).unwrap_err(),
        Error::WrongSecrets("prod-general-1".to_owned())
    );
}

#[test]
fn kubelets_may_give_themselves_labels_of_their_own_prefixes() {
    let guest = Guest::fixed();
    let mut config = worker(Binding::Bridge);
    for key in [
        "topology.kubernetes.io/zone",
        "x.node.kubernetes.io/y",
        "notkubernetes.io/z",
    ] {
        config.labels.insert(key.to_owned(), "a".to_owned());
    }
    render(&config, &guest.secrets(&config)).unwrap();
}

#[test]
fn supported_versions_are_read_and_others_are_refused() {
    for text in ["v1.34.0", "v1.36.3", "v1.37.12"] {
        assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
    }
    for text in [
        "1.36.3",
        "v1.33.9",
        "v1.38.0",
        "v1.36",
        "v1.36.03",
        "v1.36.3-rc.0",
        "v2.36.1",
        "",
    ] {
        assert_eq!(
            text.parse::<Version>().unwrap_err(),
            Error::UnsupportedVersion(text.to_owned())
        );
    }
}

prop_compose! {
    /// Any text where text may stand, so that most are refused and some are not.
    fn machines()(
        which in 0..3,
        masquerade: bool,
        name in "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?|.{0,9}",
        host in "[a-z]{1,9}([.][a-z]{1,9}){0,2}|.{0,9}",
        value in "[A-Za-z0-9]{0,9}|.{0,9}",
        argument in "(.|\\n){0,20}",
        address: u32,
    ) -> MachineConfig {
        let mut components = guest::components();
        components.api_server.insert("audit-log-path".to_owned(), argument);
        let role = match which {
            0 => Role::Init { etcd_disk: true, components },
            1 => Role::JoinControlPlane { etcd_disk: true },
            _ => Role::JoinWorker,
        };
        let binding = if masquerade { Binding::Masquerade } else { Binding::Bridge };
        let mut config = machine(binding, role);
        config.name = name;
        config.cluster.endpoint.host = host;
        config.labels.insert("pool".to_owned(), value);
        config.service_address = config.service_address.map(|_| address.into());
        config
    }
}

proptest! {
    #[test]
    fn what_is_accepted_reads_as_yaml_and_says_what_was_given(config in machines()) {
        let guest = Guest::fixed();
        let Ok(document) = render(&config, &guest.secrets(&config)) else { return Ok(()) };
        prop_assert_eq!(&parse(document.expose())["hostname"], &config.name);
        let kubeadm = guest::file(document.expose(), "/run/kubeadm/kubeadm.yaml").unwrap();
        for part in kubeadm.split("\n---\n") {
            let part: serde_json::Value = serde_saphyr::from_str(part).unwrap();
            if let Some(node) = part.get("nodeRegistration") {
                prop_assert_eq!(&node["name"], &config.name);
            }
            if let Some(networking) = part.get("networking") {
                prop_assert_eq!(&networking["podSubnet"], &config.cluster.pod_cidr);
            }
        }
        prop_assert_eq!(&parse(scrubbed(&config).unwrap().expose())["hostname"], &config.name);
    }
}
