//! A guest with fixed key material, machines of it, and readable views of documents.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{collections::BTreeMap, fmt::Write, net::Ipv4Addr};

use guestcluster_bootstrap::{
    Binding, ClusterConfig, Components, Endpoint, MachineConfig, Role, Secrets, Size, Taint,
    TaintEffect,
};
use guestcluster_pki::{BootstrapToken, CertificateAuthority, ClusterPki, ServiceAccountKeys};
use serde_json::Value;

pub(crate) const TOKEN: &str = "abcdef.0123456789abcdef";
const CERTIFICATE: &str = include_str!("../fixtures/authority-p256.crt");
const KEY: &str = include_str!("../fixtures/authority-p256.key");
const SA_PUBLIC: &str = include_str!("../fixtures/service-account.pub");
const SA_PRIVATE: &str = include_str!("../fixtures/service-account.key");

pub(crate) struct Guest {
    pub(crate) pki: ClusterPki,
    pub(crate) token: BootstrapToken,
}

impl Guest {
    /// One authority stands for all three: which file gets which is seen by its path.
    pub(crate) fn fixed() -> Self {
        let authority = CertificateAuthority::from_pem(CERTIFICATE, KEY).unwrap();
        Self {
            pki: ClusterPki {
                kubernetes: authority.clone(),
                etcd: authority.clone(),
                front_proxy: authority,
                service_account: ServiceAccountKeys::from_pem(SA_PUBLIC, SA_PRIVATE).unwrap(),
            },
            token: TOKEN.parse().unwrap(),
        }
    }

    pub(crate) fn secrets(&self, config: &MachineConfig) -> Secrets<'_> {
        let token = &self.token;
        if config.role.is_control_plane() {
            Secrets::ControlPlane {
                pki: &self.pki,
                token,
            }
        } else {
            Secrets::Worker {
                authority: self.pki.kubernetes.certificate(),
                token,
            }
        }
    }
}

/// Everything that must not be seen: the token's secret half and each line of each key.
pub(crate) fn secret_lines() -> Vec<String> {
    let keys = [KEY, SA_PRIVATE].into_iter().flat_map(str::lines);
    keys.filter(|line| !line.starts_with("-----") && line.len() > 20)
        .map(str::to_owned)
        .chain(["0123456789abcdef".to_owned()])
        .collect()
}

/// The text with key material replaced by its name, for snapshots.
pub(crate) fn without_secrets(text: &str) -> String {
    [
        (CERTIFICATE, "<certificate>\n"),
        (KEY, "<private key>\n"),
        (SA_PUBLIC, "<service-account public key>\n"),
        (SA_PRIVATE, "<service-account private key>\n"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (pem, name)| text.replace(pem, name))
}

/// A machine with everything that its role and binding allow.
pub(crate) fn machine(binding: Binding, role: Role) -> MachineConfig {
    let control_plane = role.is_control_plane();
    let addressed = control_plane || binding == Binding::Masquerade;
    let gpu = Taint {
        key: "example.com/gpu".to_owned(),
        value: Some("true".to_owned()),
        effect: TaintEffect::NoExecute,
    };
    MachineConfig {
        cluster: ClusterConfig {
            name: "prod".to_owned(),
            version: "v1.36.3".parse().unwrap(),
            endpoint: Endpoint {
                host: "10.79.0.5".to_owned(),
                port: 6443,
            },
            pod_cidr: "10.200.0.0/16".to_owned(),
            service_cidr: "10.201.0.0/16".to_owned(),
            dns_domain: "cluster.local".to_owned(),
            binding,
        },
        name: if control_plane {
            "prod-cp-1"
        } else {
            "prod-general-1"
        }
        .to_owned(),
        service_address: addressed.then_some(Ipv4Addr::new(10, 98, 0, 11)),
        labels: BTreeMap::from([("example.com/pool".to_owned(), "general".to_owned())]),
        taints: if control_plane {
            vec![Taint::control_plane()]
        } else {
            vec![gpu]
        },
        converged: None,
        role,
    }
}

/// A control-plane machine of the default size that carries workloads.
pub(crate) fn converged(role: Role) -> MachineConfig {
    MachineConfig {
        taints: Vec::new(),
        converged: Some(Size {
            cpus: 4,
            memory: 8 << 30,
        }),
        ..machine(Binding::Bridge, role)
    }
}

pub(crate) fn components() -> Components {
    let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    Components {
        certificate_validity_period: Some("720h".to_owned()),
        cert_sans: vec!["api.prod.example.com".to_owned(), "203.0.113.10".to_owned()],
        api_server: one("audit-log-maxage", "7"),
        controller_manager: one("terminated-pod-gc-threshold", "100"),
        scheduler: one("v", "2"),
        etcd: one("quota-backend-bytes", "4294967296"),
    }
}

/// Reads a document as YAML, which is what cloud-init does.
pub(crate) fn parse(document: &str) -> Value {
    assert!(document.starts_with("#cloud-config\n"));
    serde_saphyr::from_str(document).unwrap()
}

/// A document as a person would write it down: settings first, then each file.
pub(crate) fn unfold(document: &str) -> String {
    let mut document = parse(document);
    let files = document["write_files"].take();
    document.as_object_mut().unwrap().remove("write_files");
    let mut text = serde_json::to_string_pretty(&document).unwrap();
    for file in files.as_array().unwrap() {
        let part = |key: &str| file[key].as_str().unwrap();
        let (path, mode, owner) = (part("path"), part("permissions"), part("owner"));
        write!(text, "\n\n=== {path} {mode} {owner}\n{}", part("content")).unwrap();
    }
    text
}

/// The content of one file.
pub(crate) fn file(document: &str, path: &str) -> Option<String> {
    let document = parse(document);
    let files = document["write_files"].as_array().unwrap();
    let file = files.iter().find(|file| file["path"] == path)?;
    file["content"].as_str().map(str::to_owned)
}
