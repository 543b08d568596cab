//! kubeadm's configuration, as Cluster API's bootstrap provider takes it.

use std::collections::BTreeMap;

use guestcluster_api::spec::Topology;
use guestcluster_bootstrap::{
    ENCRYPTION_ALGORITHM, PATCHES, PlainFile, Size, converged_files, kernel_files,
};
use guestcluster_planner::Wanted;
use guestcluster_planner::wanted::Pool;
use serde_json::{Map, Value, json};

use super::ApiVersion;

/// Longest life of certificates, in days, that Cluster API accepts.
const MOST_DAYS: i64 = 1095;
/// The disk of its own for etcd, by the serial that it is attached with.
const ETCD_DEVICE: &str = "/dev/disk/by-id/virtio-etcd";
const ETCD_LABEL: &str = "etcd_disk";
const ETCD_MOUNT: &str = "/var/lib/etcddisk";

pub(super) fn control_plane(wanted: &Wanted, pool: &Pool, version: ApiVersion) -> Value {
    let is_converged = wanted.topology == Topology::Converged;
    let mut files = kernel_files();
    if is_converged {
        files.extend(converged_files(Size {
            cpus: u32::try_from(pool.machine.cpu).unwrap_or_default(),
            memory: u64::try_from(pool.memory().ceil()).unwrap_or_default(),
        }));
    }
    let mut spec = node(&files);
    spec["clusterConfiguration"] = cluster(wanted, pool, version);
    if is_converged {
        // No taint is not the same as none written, which is kubeadm's own.
        let registration = json!({
            "nodeRegistration": { "taints": [] },
            "patches": { "directory": PATCHES },
        });
        spec["initConfiguration"] = registration.clone();
        spec["joinConfiguration"] = registration;
    }
    if pool.machine.etcd_disk.is_some() {
        // A file system that is there is never made anew. etcd wants an empty folder, which the
        // root of a file system is not.
        spec["diskSetup"] = json!({ "filesystems": [{
            "device": ETCD_DEVICE, "filesystem": "ext4", "label": ETCD_LABEL,
            "partition": "none", "overwrite": false,
        }]});
        spec["mounts"] = json!([[format!("LABEL={ETCD_LABEL}"), ETCD_MOUNT]]);
    }
    spec
}

pub(super) fn worker(pool: &Pool, labels: &BTreeMap<String, String>, version: ApiVersion) -> Value {
    let mut registration = Map::new();
    if !labels.is_empty() {
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let arguments = [("node-labels".to_owned(), labels.join(","))].into();
        registration.insert("kubeletExtraArgs".to_owned(), version.arguments(&arguments));
    }
    if !pool.node_taints.is_empty() {
        registration.insert("taints".to_owned(), json!(pool.node_taints));
    }
    let mut spec = node(&kernel_files());
    if !registration.is_empty() {
        spec["joinConfiguration"] = json!({ "nodeRegistration": registration });
    }
    spec
}

/// What every machine needs before kubeadm runs.
fn node(files: &[PlainFile]) -> Value {
    let file = |file: &PlainFile| {
        json!({
            "path": file.path,
            "content": file.content,
            "owner": "root:root",
            "permissions": "0644",
        })
    };
    json!({
        "files": files.iter().map(file).collect::<Vec<_>>(),
        "preKubeadmCommands": ["modprobe br_netfilter || true", "sysctl -e -q --system || true"],
    })
}

fn cluster(wanted: &Wanted, pool: &Pool, version: ApiVersion) -> Value {
    let control_plane = &wanted.control_plane;
    let arguments = |arguments: &BTreeMap<String, String>| {
        let mut section = Map::new();
        if !arguments.is_empty() {
            section.insert("extraArgs".to_owned(), version.arguments(arguments));
        }
        section
    };
    let mut api_server = arguments(&control_plane.api_server.extra_args);
    if !control_plane.endpoint.cert_sans.is_empty() {
        let names = json!(control_plane.endpoint.cert_sans);
        api_server.insert("certSANs".to_owned(), names);
    }
    let mut etcd = arguments(&control_plane.etcd.extra_args);
    if pool.machine.etcd_disk.is_some() {
        let folder = json!(format!("{ETCD_MOUNT}/etcd"));
        etcd.insert("dataDir".to_owned(), folder);
    }
    let mut local = Map::new();
    if !etcd.is_empty() {
        local.insert("local".to_owned(), Value::Object(etcd));
    }
    let sections = [
        ("apiServer", api_server),
        (
            "controllerManager",
            arguments(&control_plane.controller_manager.extra_args),
        ),
        ("scheduler", arguments(&control_plane.scheduler.extra_args)),
        ("etcd", local),
    ];
    let mut document = json!({ "encryptionAlgorithm": ENCRYPTION_ALGORITHM });
    for (key, section) in sections {
        if !section.is_empty() {
            document[key] = Value::Object(section);
        }
    }
    let days = wanted.certificate_life.as_hours() / 24;
    if (1..=MOST_DAYS).contains(&days) {
        document["certificateValidityPeriodDays"] = json!(days);
    }
    document
}
