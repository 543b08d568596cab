//! MachineDeployments.

use std::collections::BTreeMap;

use guestcluster_api::labels;
use guestcluster_api::spec::{Rollout, WorkerPool};
use serde_json::Value;

use super::value::{number, parsed, text};
use super::{ImportError, Objects, kubeadm, machine};

/// One pool for each MachineDeployment, in their order.
pub(super) fn pools(all: &Objects<'_>, cluster: &Value) -> Result<Vec<WorkerPool>, ImportError> {
    let deployments = all.of_kind("MachineDeployment");
    deployments
        .map(|deployment| pool(all, cluster, deployment))
        .collect()
}

/// The pool's name: that of the MachineDeployment, without the cluster's.
pub(super) fn name(cluster: &Value, deployment: &Value) -> String {
    let full = text(deployment, "/metadata/name").unwrap_or_default();
    let cluster = text(cluster, "/metadata/name").unwrap_or_default();
    let own = full
        .strip_prefix(&cluster)
        .and_then(|rest| rest.strip_prefix('-'));
    own.unwrap_or(&full).to_owned()
}

fn pool(all: &Objects<'_>, cluster: &Value, deployment: &Value) -> Result<WorkerPool, ImportError> {
    let machine = &deployment["spec"]["template"];
    let referred = |path: &str| text(machine, path).unwrap_or_default();
    let template = all.named(
        "KubevirtMachineTemplate",
        &referred("/spec/infrastructureRef/name"),
    )?;
    let config = all.named(
        "KubeadmConfigTemplate",
        &referred("/spec/bootstrap/configRef/name"),
    )?;
    let instance = machine::instance(template);
    Ok(WorkerPool {
        name: name(cluster, deployment),
        replicas: number(deployment, "/spec/replicas").unwrap_or(1),
        machine: machine::machine(template),
        devices: machine::devices(instance),
        max_per_host: None,
        labels: node_labels(config, machine),
        taints: parsed(
            config,
            "/spec/template/spec/joinConfiguration/nodeRegistration/taints",
        ),
        placement: machine::placement(instance),
        rollout: rollout(deployment),
        drain_timeout_seconds: kubeadm::drain(machine),
    })
}

/// Labels that the kubelet sets, and those that Cluster API passes on.
fn node_labels(config: &Value, machine: &Value) -> BTreeMap<String, String> {
    let path = "/spec/template/spec/joinConfiguration/nodeRegistration/kubeletExtraArgs";
    let arguments = kubeadm::arguments(config.pointer(path));
    let by_kubelet = arguments.get("node-labels").map(String::as_str);
    let pairs = by_kubelet.unwrap_or_default().split(',');
    let mut labels: BTreeMap<String, String> = pairs
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let passed: BTreeMap<String, String> = parsed(machine, "/metadata/labels");
    labels.extend(passed);
    labels.retain(|key, _| key != labels::POOL && !key.starts_with("cluster.x-k8s.io/"));
    labels
}

fn rollout(deployment: &Value) -> Rollout {
    let own = Rollout::default();
    let at = |key: &str| {
        let new = format!("/spec/rollout/strategy/rollingUpdate/{key}");
        let old = format!("/spec/strategy/rollingUpdate/{key}");
        number(deployment, &new).or_else(|| number(deployment, &old))
    };
    Rollout {
        max_surge: at("maxSurge").unwrap_or(own.max_surge),
        max_unavailable: at("maxUnavailable").unwrap_or(own.max_unavailable),
    }
}
