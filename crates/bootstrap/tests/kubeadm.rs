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
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use guest::{Guest, machine};
use guestcluster_bootstrap::{Binding, MachineConfig, Role, Version, render, scrubbed};
use guestcluster_pki::{AUTHORITY_LIFETIME, ClusterPki, SigningAlgorithm, Validity};
use serde_json::{Value, json};

const NOW: i64 = 1_796_000_000;

const PATCHES: &str = "/etc/kubernetes/patches";

/// Static Pods of a control plane.
const COMPONENTS: [&str; 4] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "etcd",
];

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
    let init = Role::Init {
        etcd_disk: true,
        components: guest::components(),
    };
    machines.extend([init, Role::JoinControlPlane { etcd_disk: true }].map(guest::converged));
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

/// What kubeadm writes for `kubeadm init` of this machine, had it its disk: static Pods by the name of
/// their component, and the kubelet's configuration as `config`.
fn written(kubeadm: &Path, mut machine: MachineConfig) -> BTreeMap<String, Value> {
    let guest = Guest::fixed();
    machine.cluster.version = version(kubeadm);
    let document = render(&machine, &guest.secrets(&machine)).unwrap();
    let root = folder("written");
    let [patches, output] = ["patches", "output"].map(|name| root.join(name));
    for folder in [&patches, &output] {
        fs::create_dir_all(folder).unwrap();
    }
    for file in guest::parse(document.expose())["write_files"]
        .as_array()
        .unwrap()
    {
        let path = Path::new(file["path"].as_str().unwrap());
        if path.starts_with(PATCHES) {
            let copy = patches.join(path.file_name().unwrap());
            fs::write(copy, file["content"].as_str().unwrap()).unwrap();
        }
    }
    let config = root.join("kubeadm.yaml");
    let text = guest::file(document.expose(), "/run/kubeadm/kubeadm.yaml").unwrap();
    fs::write(&config, text.replace(PATCHES, patches.to_str().unwrap())).unwrap();
    for phase in [
        ["control-plane", "all"],
        ["etcd", "local"],
        ["kubelet-start", ""],
    ] {
        let done = Command::new(kubeadm)
            .args(["init", "phase"])
            .args(phase.iter().filter(|word| !word.is_empty()))
            .args(["--dry-run", "--config"])
            .arg(&config)
            .env("KUBEADM_INIT_DRYRUN_DIR", &output)
            .output()
            .unwrap();
        assert!(done.status.success(), "{phase:?}: {done:?}");
    }
    let read = |name: &str| {
        let text = fs::read_to_string(output.join(format!("{name}.yaml"))).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    };
    COMPONENTS
        .into_iter()
        .chain(["config"])
        .map(|name| (name.to_owned(), read(name)))
        .collect()
}

/// The control plane outlives the tenant's Pods because its own are node-critical, whose evictions
/// the kubelet refuses, and because they request CPU and memory: by kubeadm alone next to none.
#[test]
fn a8_static_pods_are_node_critical_and_request_what_a_converged_machine_keeps_for_them() {
    let Some(kubeadm) = program("GUESTCLUSTER_KUBEADM") else {
        return;
    };
    let role = || Role::Init {
        etcd_disk: false,
        components: guest::components(),
    };
    let dedicated = written(&kubeadm, machine(Binding::Bridge, role()));
    let converged = written(&kubeadm, guest::converged(role()));
    let requests = |written: &BTreeMap<String, Value>| {
        COMPONENTS.map(|component| {
            let spec = &written[component]["spec"];
            assert_eq!(spec["priorityClassName"], "system-node-critical");
            assert_eq!(spec["priority"], 2_000_001_000);
            spec["containers"][0]["resources"]["requests"].clone()
        })
    };
    assert_eq!(
        requests(&dedicated),
        [
            json!({ "cpu": "250m" }),
            json!({ "cpu": "200m" }),
            json!({ "cpu": "100m" }),
            json!({ "cpu": "100m", "memory": "100Mi" }),
        ]
    );
    assert_eq!(
        requests(&converged),
        [
            json!({ "cpu": "500m", "memory": "1Gi" }),
            json!({ "cpu": "200m" }),
            json!({ "cpu": "100m" }),
            json!({ "cpu": "250m", "memory": "512Mi" }),
        ]
    );
    let kubelet = |written: &BTreeMap<String, Value>, key: &str| written["config"][key].clone();
    assert_eq!(kubelet(&dedicated, "kubeReserved"), Value::Null);
    assert_eq!(
        kubelet(&converged, "kubeReserved"),
        json!({ "cpu": "140m", "memory": "512Mi" })
    );
    assert_eq!(
        kubelet(&converged, "evictionHard")["memory.available"],
        "256Mi"
    );
    assert_eq!(
        kubelet(&converged, "staticPodPath"),
        kubelet(&dedicated, "staticPodPath"),
        "what is not patched stays"
    );
}

/// A phase that is skipped under a name that kubeadm does not know would fail the boot.
#[test]
fn a8_kubeadm_knows_the_phases_that_a_converged_machine_skips() {
    let Some(kubeadm) = program("GUESTCLUSTER_KUBEADM") else {
        return;
    };
    for phase in [
        ["init", "phase", "mark-control-plane", "--help"].as_slice(),
        &[
            "join",
            "phase",
            "control-plane-join",
            "mark-control-plane",
            "--help",
        ],
    ] {
        let said = run(&kubeadm, phase);
        assert!(said.starts_with("Mark a node as a control-plane"), "{said}");
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
