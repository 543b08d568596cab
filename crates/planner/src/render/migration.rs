//! The move of a machine to another host while it runs, and its limits.

use guestcluster_api::spec::AccessMode;
use guestcluster_api::{labels, names};
use guestcluster_capacity::Quantity;
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::{RENDER, cluster_labels, digest, machine_labels, metadata};
use crate::action::{Kind, Object};
use crate::wanted::{Pool, Wanted};

/// The label that Kubernetes gives each namespace with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Whether machines of a pool are made so that KubeVirt can migrate them. Of those that run, KubeVirt
/// is the judge.
pub fn can_migrate(wanted: &Wanted, pool: &Pool) -> bool {
    let machine = &pool.machine;
    let mut disks = [Some(&machine.root_disk), machine.etcd_disk.as_ref()]
        .into_iter()
        .flatten();
    wanted.is_masqueraded()
        && !pool.has_devices()
        && disks.all(|disk| disk.access_mode == Some(AccessMode::ReadWriteMany))
}

/// Name of the migration of a machine out of the launcher Pod with this UID. A Pod has one: what was
/// tried is not tried again, whoever remembers it.
pub fn migration_name(machine: &str, pod: &str) -> String {
    format!("{machine}-{}", digest(pod, 8))
}

/// A VirtualMachineInstanceMigration. Where to is left to the scheduler, which knows the machine's
/// rules from its template.
pub fn migration(wanted: &Wanted, pool: &Pool, (machine, pod): (&str, &str)) -> Object {
    let name = migration_name(machine, pod);
    let labels = machine_labels(wanted, pool, machine);
    let body = json!({
        "apiVersion": Kind::Migration.api_version(),
        "kind": Kind::Migration.name(),
        "metadata": metadata(wanted, &name, &labels),
        "spec": { "vmiName": machine },
    });
    Object {
        kind: Kind::Migration,
        name,
        body,
    }
}

/// Whether the memory of a machine passes within this time at the pace that the specification allows.
pub fn passes_within(wanted: &Wanted, pool: &Pool, time: SignedDuration) -> bool {
    let bandwidth = wanted.migration_bandwidth.as_ref();
    let bandwidth: Option<Quantity> = bandwidth.and_then(|text| text.parse().ok());
    let seconds = u64::try_from(time.as_secs()).unwrap_or_default();
    // The schema has refused what is no quantity; KubeVirt would refuse it as well.
    bandwidth.is_none_or(|bandwidth| pool.memory() <= bandwidth * seconds)
}

/// The MigrationPolicy of a cluster. An owner in a namespace cannot own it: labels say whose it is.
pub fn migration_policy(wanted: &Wanted) -> Object {
    let identity = &wanted.identity;
    let name = names::migration_policy(&identity.namespace, &identity.name);
    let mut labels = cluster_labels(wanted);
    labels.insert(labels::NAMESPACE.to_owned(), identity.namespace.clone());
    let body = json!({
        "apiVersion": Kind::MigrationPolicy.api_version(),
        "kind": Kind::MigrationPolicy.name(),
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": { RENDER: migration_policy_digest(wanted) },
        },
        "spec": policy_spec(wanted),
    });
    Object {
        kind: Kind::MigrationPolicy,
        name,
        body,
    }
}

/// Digest that the MigrationPolicy carries when it is as wanted.
pub fn migration_policy_digest(wanted: &Wanted) -> String {
    digest(&policy_spec(wanted).to_string(), 16)
}

/// - Post-copy would leave half of a machine's memory on either host, and a broken connection between
///   them would kill it: an etcd member is not bet on that.
/// - Auto-converge slows a machine down until its memory fits through: a member or kubelet at a few
///   per cent of its CPUs misses its heartbeats, and nobody is told. One that does not converge is
///   given up in time and shut down in order.
/// - The time for each GiB is left to KubeVirt: machines of a cluster differ in memory, and the
///   planner's limit holds for them all.
fn policy_spec(wanted: &Wanted) -> Value {
    let identity = &wanted.identity;
    let mut spec = json!({
        "selectors": {
            "namespaceSelector": { NAMESPACE_NAME: identity.namespace },
            "virtualMachineInstanceSelector": {
                labels::CLUSTER: identity.name,
                labels::CLUSTER_UID: identity.uid,
            },
        },
        "allowPostCopy": false,
        "allowAutoConverge": false,
    });
    if let Some(bandwidth) = &wanted.migration_bandwidth {
        spec["bandwidthPerMigration"] = json!(bandwidth);
    }
    spec
}
