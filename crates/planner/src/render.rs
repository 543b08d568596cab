//! Every object that we make, as JSON. A machine's objects depend on the specification alone:
//! never on hosts that were seen, nor on the operator's release.

mod disk;
mod flannel;
mod machine;
mod migration;
mod service;

pub use disk::{etcd_disk, golden, golden_name, retained_labels, root_disk};
pub use flannel::{cni_digest, flannel};
pub use machine::{configuration_digest, firmware_uuid, template_hash, vm};
pub use migration::{
    can_migrate, migration, migration_name, migration_policy, migration_policy_digest,
    passes_within,
};
pub use service::{address_service, address_slice, endpoint_digest, endpoint_service};

use std::collections::BTreeMap;
use std::fmt::Write as _;

use guestcluster_api::labels::{self, Role};
use guestcluster_api::names;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::wanted::{Identity, Pool, Wanted};

/// Annotation with the digest of what was last applied, on objects that we apply again.
pub const RENDER: &str = "guestcluster.dev/render";

/// Labels of every object of a cluster.
pub fn cluster_labels(wanted: &Wanted) -> BTreeMap<String, String> {
    let identity = &wanted.identity;
    [
        (labels::CLUSTER, identity.name.as_str()),
        (labels::CLUSTER_UID, &identity.uid),
        (labels::TENANT, &wanted.tenant),
        (labels::MANAGED_BY, labels::OPERATOR),
        (labels::CAPI_CLUSTER, &identity.name),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// Labels of every object of a machine, its instance and launcher Pod included.
pub fn machine_labels(wanted: &Wanted, pool: &Pool, machine: &str) -> BTreeMap<String, String> {
    let mut labels = cluster_labels(wanted);
    let own = [
        (labels::ROLE, pool.role.as_str()),
        (labels::CAPI_ROLE, pool.role.as_str()),
        (labels::POOL, &pool.name),
        (labels::MACHINE, machine),
    ];
    labels.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// The owner reference to the GuestCluster.
pub fn owner(identity: &Identity) -> Value {
    json!({
        "apiVersion": "guestcluster.dev/v1alpha1",
        "kind": "GuestCluster",
        "name": identity.name,
        "uid": identity.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Metadata of an object of ours.
pub fn metadata(wanted: &Wanted, name: &str, labels: &BTreeMap<String, String>) -> Value {
    json!({
        "name": name,
        "namespace": wanted.identity.namespace,
        "labels": labels,
        "ownerReferences": [owner(&wanted.identity)],
    })
}

/// Metadata of an authority's or the kubeconfig's Secret.
pub fn secret_metadata(wanted: &Wanted, name: &str, purpose: &str) -> Value {
    let mut labels = cluster_labels(wanted);
    labels.insert(labels::SECRET.to_owned(), purpose.to_owned());
    metadata(wanted, name, &labels)
}

/// Metadata of a machine's first-boot Secret.
pub fn user_data_metadata(wanted: &Wanted, pool: &Pool, machine: &str) -> Value {
    let mut labels = machine_labels(wanted, pool, machine);
    labels.insert(
        labels::SECRET.to_owned(),
        labels::secret_purpose::USER_DATA.to_owned(),
    );
    metadata(wanted, &names::user_data_secret(machine), &labels)
}

/// What tells the Pods of one role of one cluster from all others.
pub(crate) fn role_selector(wanted: &Wanted, role: Role) -> Value {
    json!({
        labels::CLUSTER: wanted.identity.name,
        labels::CLUSTER_UID: wanted.identity.uid,
        labels::ROLE: role.as_str(),
    })
}

/// First `length` hexadecimal digits of the SHA-256 of `text`.
pub(crate) fn digest(text: &str, length: usize) -> String {
    let mut digits = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits.truncate(length);
    digits
}
