//! Disks: DataVolumes of our own, never `dataVolumeTemplates`. Deleting a VM would delete the disks
//! of its templates, and with them the only copy of an etcd member.

use guestcluster_api::labels;
use guestcluster_api::names;
use guestcluster_api::spec::{Disk, Image};
use guestcluster_capacity::Quantity;
use serde_json::{Value, json};

use super::{cluster_labels, digest, machine_labels, metadata, template_hash};
use crate::action::{Kind, Object};
use crate::wanted::{Pool, Wanted};

/// Name of the claim that machines are cloned from: the user's own, or one that we import.
pub fn golden_name(wanted: &Wanted) -> String {
    match &wanted.image.pvc {
        Some(claim) => claim.name.clone(),
        None => names::golden_image(&golden_digest(wanted)),
    }
}

/// What tells one golden image from another: its source, and the claim that it is put into.
fn golden_digest(wanted: &Wanted) -> String {
    let disk = golden_disk(wanted);
    digest(
        &json!([source(&wanted.image), disk.size, disk.storage_class_name]).to_string(),
        64,
    )
}

/// A clone may be larger than what it is cloned from, never smaller: the smallest root disk counts.
fn golden_disk(wanted: &Wanted) -> &Disk {
    let size = |disk: &Disk| disk.size.parse::<Quantity>().unwrap_or_default();
    let roots = wanted.pools.iter().map(|pool| &pool.machine.root_disk);
    roots
        .min_by_key(|disk| size(disk))
        .unwrap_or(&wanted.control_plane.machine.root_disk)
}

fn source(image: &Image) -> Value {
    if let Some(http) = &image.http {
        return json!({ "http": { "url": http.url, "checksum": http.checksum } });
    }
    let registry = image.registry.as_deref().unwrap_or_default();
    json!({ "registry": { "url": format!("docker://{}", without_tag(registry)) } })
}

/// A digest says all: registries refuse a reference with both tag and digest.
fn without_tag(reference: &str) -> String {
    let Some((name, digest)) = reference.split_once('@') else {
        return reference.to_owned();
    };
    let tag = name.rfind(':').filter(|at| !name[*at..].contains('/'));
    format!("{}@{digest}", tag.map_or(name, |at| &name[..at]))
}

/// The golden image: imported once, shared by the namespace's clusters of the same source, and
/// therefore without an owner; the last cluster that uses it deletes it.
pub fn golden(wanted: &Wanted) -> Object {
    let name = golden_name(wanted);
    let labels = json!({
        labels::MANAGED_BY: labels::OPERATOR,
        labels::DISK: "golden",
        labels::IMAGE: digest(&source(&wanted.image).to_string(), 32),
    });
    // It is read by clones alone, whatever access their own claims ask for.
    let disk = Disk {
        access_mode: None,
        ..golden_disk(wanted).clone()
    };
    let body = data_volume(
        json!({ "name": name, "namespace": wanted.identity.namespace, "labels": labels }),
        &source(&wanted.image),
        &disk,
    );
    Object {
        kind: Kind::DataVolume,
        name,
        body,
    }
}

/// The root disk of a machine: a clone of the golden image.
pub fn root_disk(wanted: &Wanted, pool: &Pool, machine: &str) -> Object {
    let source = json!({ "pvc": {
        "namespace": wanted.identity.namespace,
        "name": golden_name(wanted),
    }});
    let names = (machine, names::root_disk(machine));
    machine_disk(
        wanted,
        pool,
        names,
        ("root", source, &pool.machine.root_disk),
    )
}

/// The separate etcd disk of a machine, if the pool has one: blank.
pub fn etcd_disk(wanted: &Wanted, pool: &Pool, machine: &str) -> Option<Object> {
    let disk = pool.machine.etcd_disk.as_ref()?;
    let names = (machine, names::etcd_disk(machine));
    Some(machine_disk(
        wanted,
        pool,
        names,
        ("etcd", json!({ "blank": {} }), disk),
    ))
}

fn machine_disk(
    wanted: &Wanted,
    pool: &Pool,
    (machine, name): (&str, String),
    (purpose, source, disk): (&str, Value, &Disk),
) -> Object {
    let mut labels = machine_labels(wanted, pool, machine);
    labels.insert(labels::DISK.to_owned(), purpose.to_owned());
    let hash = template_hash(wanted, pool);
    labels.insert(labels::TEMPLATE_HASH.to_owned(), hash);
    let body = data_volume(metadata(wanted, &name, &labels), &source, disk);
    Object {
        kind: Kind::DataVolume,
        name,
        body,
    }
}

fn data_volume(mut metadata: Value, source: &Value, disk: &Disk) -> Value {
    metadata["annotations"] = json!({
        // CDI releases that collect finished DataVolumes would take the claim's owner away.
        "cdi.kubevirt.io/storage.deleteAfterCompletion": "false",
        // A claim must not wait for its first consumer: a clone starts before its machine does.
        "cdi.kubevirt.io/storage.bind.immediate.requested": "true",
    });
    let mut storage = json!({ "resources": { "requests": { "storage": disk.size } } });
    if let Some(class) = &disk.storage_class_name {
        storage["storageClassName"] = json!(class);
    }
    if let Some(mode) = disk.access_mode {
        storage["accessModes"] = json!([mode.as_str()]);
    }
    json!({
        "apiVersion": Kind::DataVolume.api_version(),
        "kind": Kind::DataVolume.name(),
        "metadata": metadata,
        "spec": { "source": source, "storage": storage },
    })
}

/// Labels that a retained claim carries: what it was.
pub fn retained_labels(wanted: &Wanted) -> std::collections::BTreeMap<String, String> {
    let mut labels = cluster_labels(wanted);
    labels.insert(labels::RETAINED.to_owned(), "true".to_owned());
    labels
}

#[cfg(test)]
mod tests {
    use super::without_tag;

    #[test]
    fn a_reference_keeps_its_digest_or_else_its_tag() {
        assert_eq!(
            without_tag("r:5000/a/n:v1@sha256:ab"),
            "r:5000/a/n@sha256:ab"
        );
        assert_eq!(without_tag("r:5000/a/n@sha256:ab"), "r:5000/a/n@sha256:ab");
        assert_eq!(without_tag("r:5000/a/n:v1"), "r:5000/a/n:v1");
    }
}
