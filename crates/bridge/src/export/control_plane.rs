//! KubeadmControlPlane.

use guestcluster_planner::Wanted;
use guestcluster_planner::wanted::Pool;
use serde_json::{Map, Value, json};

use super::{ApiVersion, kubeadm, machine, metadata};
use crate::capi;

/// Group and kind.
pub(super) const KIND: (&str, &str) = (capi::CONTROL_PLANE, "KubeadmControlPlane");

pub(super) fn name(wanted: &Wanted) -> String {
    format!("{}-control-plane", wanted.identity.name)
}

pub(super) fn kubeadm(wanted: &Wanted, pool: &Pool, template: &str, version: ApiVersion) -> Value {
    let mut machines = Map::new();
    let reference = version.reference(machine::KIND, template);
    machines.insert("infrastructureRef".to_owned(), reference);
    drain(pool, version, &mut machines);
    let machines = match version {
        ApiVersion::V1Beta1 => Value::Object(machines),
        ApiVersion::V1Beta2 => json!({ "spec": machines }),
    };
    json!({
        "apiVersion": version.of(KIND.0),
        "kind": KIND.1,
        "metadata": metadata(wanted, &name(wanted)),
        "spec": {
            "version": wanted.version,
            "replicas": pool.replicas,
            "machineTemplate": machines,
            "kubeadmConfigSpec": kubeadm::control_plane(wanted, pool, version),
        },
    })
}

/// How long a drain may take; without it, as long as budgets ask.
pub(super) fn drain(pool: &Pool, version: ApiVersion, machine: &mut Map<String, Value>) {
    let Some(timeout) = pool.drain_timeout else {
        return;
    };
    let (key, value) = version.seconds("nodeDrainTimeout", timeout.as_secs());
    match version {
        ApiVersion::V1Beta1 => machine.insert(key, value),
        ApiVersion::V1Beta2 => machine.insert("deletion".to_owned(), json!({ key: value })),
    };
}
