//! MachineDeployment and KubeadmConfigTemplate of a worker pool.

use std::collections::BTreeMap;

use guestcluster_api::labels;
use guestcluster_bootstrap::is_kubelet_label;
use guestcluster_planner::Wanted;
use guestcluster_planner::wanted::Pool;
use serde_json::{Map, Value, json};

use super::{ApiVersion, control_plane, kubeadm, machine, metadata, pool_name, template_name};
use crate::capi;

const CONFIG: (&str, &str) = (capi::BOOTSTRAP, "KubeadmConfigTemplate");

/// Labels of a Machine that Cluster API passes on to its Node, among those that no kubelet may set.
fn is_passed_on(key: &str) -> bool {
    key.starts_with("node-role.kubernetes.io/")
        || key.starts_with("node-restriction.kubernetes.io/")
}

pub(super) fn deployment(
    wanted: &Wanted,
    pool: &Pool,
    template: &str,
    version: ApiVersion,
) -> [Value; 2] {
    let (by_kubelet, others): (BTreeMap<_, _>, BTreeMap<_, _>) = pool
        .node_labels
        .clone()
        .into_iter()
        .partition(|(key, _)| is_kubelet_label(key));
    let config = kubeadm::worker(pool, &by_kubelet, version);
    let config_name = template_name(wanted, pool, &config);
    let mut labels = selector(wanted, pool);
    labels.extend(others.into_iter().filter(|(key, _)| is_passed_on(key)));
    let deployment = json!({
        "apiVersion": version.of(capi::CORE),
        "kind": "MachineDeployment",
        "metadata": metadata(wanted, &pool_name(wanted, pool)),
        "spec": spec(wanted, pool, (template, &config_name, &labels), version),
    });
    let config = json!({
        "apiVersion": version.of(CONFIG.0),
        "kind": CONFIG.1,
        "metadata": metadata(wanted, &config_name),
        "spec": { "template": { "spec": config } },
    });
    [config, deployment]
}

/// Labels by which a pool's Machines are told from all others.
pub(super) fn selector(wanted: &Wanted, pool: &Pool) -> BTreeMap<String, String> {
    let own = [
        (capi::CLUSTER_NAME, &wanted.identity.name),
        (labels::POOL, &pool.name),
    ];
    own.map(|(key, value)| (key.to_owned(), value.clone()))
        .into()
}

fn spec(
    wanted: &Wanted,
    pool: &Pool,
    (template, config, labels): (&str, &str, &BTreeMap<String, String>),
    version: ApiVersion,
) -> Value {
    let mut machine = Map::new();
    let mut set = |key: &str, value: Value| machine.insert(key.to_owned(), value);
    set("clusterName", json!(wanted.identity.name));
    set("version", json!(wanted.version));
    set(
        "bootstrap",
        json!({ "configRef": version.reference(CONFIG, config) }),
    );
    set(
        "infrastructureRef",
        version.reference(machine::KIND, template),
    );
    control_plane::drain(pool, version, &mut machine);
    let strategy = json!({
        "type": "RollingUpdate",
        "rollingUpdate": {
            "maxSurge": pool.max_surge,
            "maxUnavailable": pool.max_unavailable,
        },
    });
    let mut spec = json!({
        "clusterName": wanted.identity.name,
        "replicas": pool.replicas,
        "selector": { "matchLabels": selector(wanted, pool) },
        "template": { "metadata": { "labels": labels }, "spec": machine },
    });
    match version {
        ApiVersion::V1Beta1 => spec["strategy"] = strategy,
        ApiVersion::V1Beta2 => spec["rollout"] = json!({ "strategy": strategy }),
    }
    spec
}
