//! Guests whose control-plane machines are workers too, and a guest on one machine.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;

use crate::cluster::{Cluster, is_ready};
use crate::stage::Stage;

const NAMESPACE: &str = "topology";

/// Three converged machines carry the control plane and the tenant's Pods; a lab guest does the same on
/// one, and says what that means. The first shrinks to one machine and serves on.
pub async fn converged_and_lab_guests_run(stage: &Stage) -> anyhow::Result<()> {
    let converged = Cluster::new(stage, NAMESPACE, "converged");
    let lab = Cluster::new(stage, NAMESPACE, "lab");
    let three = json!({ "topology": "Converged", "workers": [] });
    let one = json!({
        "topology": "Converged", "profile": "Lab", "workers": [],
        "controlPlane": { "replicas": 1 },
    });
    converged.apply(0, &three).await?;
    lab.apply(0, &one).await?;
    lab.is_whole_with(1, 0).await?;
    converged.is_whole_with(3, 0).await?;
    for cluster in [&converged, &lab] {
        carries_both(cluster).await?;
    }
    converged.guest_deploys("web", 6, None).await?;
    lab.guest_deploys("web", 2, None).await?;
    let words = ["does not survive the loss of"];
    lab.condition_says("PlacementHealthy", "True", "LabProfile", &words)
        .await?;
    let vm = [
        "-n",
        NAMESPACE,
        "get",
        "vm",
        "lab-cp-1",
        "-o",
        "jsonpath={.spec.template.spec.affinity}",
    ];
    let affinity = stage.kubectl(&vm).await?;
    anyhow::ensure!(affinity.is_empty(), "a lab machine has affinity {affinity}");
    converged
        .edit(&json!({ "controlPlane": { "replicas": 1 } }))
        .await?;
    converged.is_whole_with(1, 0).await?;
    converged.guest_deploys("web", 6, None).await?;
    let arguments = ["-n", NAMESPACE, "delete", "gc", "--all", "--timeout=180s"];
    stage.kubectl(&arguments).await.map(drop)
}

/// Every Node has both roles and takes Pods, and keeps memory back for the control plane.
async fn carries_both(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    for (name, node) in cluster.nodes().await? {
        anyhow::ensure!(is_ready(&node), "{name} is not ready");
        let labels = node.metadata.labels.unwrap_or_default();
        for role in ["control-plane", "worker"] {
            let label = format!("node-role.kubernetes.io/{role}");
            anyhow::ensure!(labels.contains_key(&label), "{name} lacks {label}");
        }
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let repels = taints
            .iter()
            .any(|taint| taint.key.contains("control-plane"));
        anyhow::ensure!(!repels, "{name} has {taints:?}");
        let status = node.status.context("no status")?;
        let memory = |all: Option<BTreeMap<String, Quantity>>| all?.remove("memory");
        let (all, left) = (memory(status.capacity), memory(status.allocatable));
        anyhow::ensure!(
            all != left,
            "{name} keeps no memory back: {left:?} of {all:?}"
        );
    }
    Ok(())
}
