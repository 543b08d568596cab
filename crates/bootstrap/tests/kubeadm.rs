//! What is rendered, judged by the real programs.
//!
//! `GUESTCLUSTER_KUBEADM` names a kubeadm program and `GUESTCLUSTER_CLOUD_INIT` a cloud-init
//! program; without them the tests that need them say so and pass.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests are told by the environment what is there"
)]

#[path = "support/guest.rs"]
mod guest;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use guest::{Guest, machine};
use guestcluster_bootstrap::{Binding, MachineConfig, Role, Version, render, scrubbed};
use guestcluster_pki::{AUTHORITY_LIFETIME, ClusterPki, SigningAlgorithm, Validity};

const NOW: i64 = 1_796_000_000;

/// The program that a variable names; says so if there is none.
fn program(variable: &str) -> Option<PathBuf> {
    let given = std::env::var_os(variable).map(PathBuf::from);
    if given.is_none() {
        eprintln!("skipped: {variable} names no program");
    }
    given
}

fn run(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let text = text.concat();
    assert!(
        output.status.success(),
        "{} {arguments:?}:\n{text}",
        program.display()
    );
    text
}

/// A fresh folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The version of a kubeadm program, which must be a supported one.
fn version(kubeadm: &Path) -> Version {
    run(kubeadm, &["version", "-o", "short"])
        .trim()
        .parse()
        .unwrap()
}

fn every_machine() -> Vec<MachineConfig> {
    let mut machines = Vec::new();
    for binding in [Binding::Bridge, Binding::Masquerade] {
        for role in [
            Role::Init {
                etcd_disk: true,
                components: guest::components(),
            },
            Role::JoinControlPlane { etcd_disk: true },
            Role::JoinWorker,
        ] {
            machines.push(machine(binding, role));
        }
    }
    machines
}

#[test]
fn b1_kubeadm_accepts_every_configuration() {
    let Some(kubeadm) = program("GUESTCLUSTER_KUBEADM") else {
        return;
    };
    let guest = Guest::fixed();
    let config = folder("accepts").join("kubeadm.yaml");
    for mut machine in every_machine() {
        machine.cluster.version = version(&kubeadm);
        let document = render(&machine, &guest.secrets(&machine)).unwrap();
        fs::write(
            &config,
            guest::file(document.expose(), "/run/kubeadm/kubeadm.yaml").unwrap(),
        )
        .unwrap();
        let said = run(
            &kubeadm,
            &["config", "validate", "--config", config.to_str().unwrap()],
        );
        assert!(
            !said.to_lowercase().contains("warning"),
            "{machine:?}: {said}"
        );
    }
}

/// kubeadm reads authorities and keys, finds them good, signs with them and leaves them as they
/// are: those that other tools made in the older key formats, and our own.
#[test]
fn b2_kubeadm_signs_with_the_authorities_it_is_given() {
    let Some(kubeadm) = program("GUESTCLUSTER_KUBEADM") else {
        return;
    };
    let validity = Validity::starting(NOW, AUTHORITY_LIFETIME);
    let own = ClusterPki::generate(validity, SigningAlgorithm::Es256).unwrap();
    let brought = Guest::fixed();
    let own = Guest {
        pki: own,
        token: brought.token.clone(),
    };
    for guest in [brought, own] {
        let role = Role::Init {
            etcd_disk: false,
            components: guest::components(),
        };
        let mut machine = machine(Binding::Bridge, role);
        machine.cluster.version = version(&kubeadm);
        let document = render(&machine, &guest.secrets(&machine)).unwrap();
        assert_kubeadm_signs(&kubeadm, document.expose());
    }
}

fn assert_kubeadm_signs(kubeadm: &Path, document: &str) {
    let root = folder("signs");
    let place = |path: &str| root.join(path.trim_start_matches('/'));
    for file in guest::parse(document)["write_files"].as_array().unwrap() {
        let path = place(file["path"].as_str().unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file["content"].as_str().unwrap()).unwrap();
    }
    let certificates = place("/etc/kubernetes/pki");
    let config = place("/run/kubeadm/kubeadm.yaml");
    let elsewhere = format!(
        "\"certificatesDir\": \"{}\",\n  \"clusterName\"",
        certificates.display()
    );
    let text = fs::read_to_string(&config)
        .unwrap()
        .replace("\"clusterName\"", &elsewhere);
    fs::write(&config, text).unwrap();
    run(
        kubeadm,
        &[
            "init",
            "phase",
            "certs",
            "all",
            "--config",
            config.to_str().unwrap(),
        ],
    );
    for made in ["apiserver.crt", "etcd/peer.crt", "front-proxy-client.crt"] {
        assert!(certificates.join(made).exists(), "{made}");
    }
    for kept in [
        "ca.key",
        "etcd/ca.key",
        "front-proxy-ca.key",
        "sa.key",
        "sa.pub",
    ] {
        let ours = guest::file(document, &format!("/etc/kubernetes/pki/{kept}")).unwrap();
        assert_eq!(
            fs::read_to_string(certificates.join(kept)).unwrap(),
            ours,
            "{kept}"
        );
    }
}

#[test]
fn b1_cloud_init_accepts_every_document() {
    let Some(cloud_init) = program("GUESTCLUSTER_CLOUD_INIT") else {
        return;
    };
    let guest = Guest::fixed();
    let file = folder("cloud-init").join("user-data");
    for machine in every_machine() {
        let first = render(&machine, &guest.secrets(&machine)).unwrap();
        for document in [first, scrubbed(&machine).unwrap()] {
            fs::write(&file, document.expose()).unwrap();
            run(&cloud_init, &["schema", "-c", file.to_str().unwrap()]);
        }
    }
}
