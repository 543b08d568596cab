//! A person takes a cluster, or one machine, out of the operator's hands.

use std::time::Duration;

use anyhow::Context as _;
use guestcluster_api::labels;
use guestcluster_infra::faults::Fault;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::LIFE;
use super::faults::stands;
use super::repair::{PATIENCE, has_successor, is_replaced};
use crate::audit::{Mark, Write};
use crate::cluster::Cluster;
use crate::stage::Stage;

/// Longer than it takes to find out that a machine fails and to lose patience with it.
const LONG: Duration = Duration::from_secs(20);

/// While a cluster is paused, a worker whose VM a person deletes stays away: nothing is written, neither
/// here nor in the guest. When the pause is over, another one takes its place.
pub async fn a_paused_cluster_is_left_alone(stage: &Stage) -> anyhow::Result<()> {
    let cluster = stands(stage, PATIENCE).await?;
    let mut machines = cluster.vms().await?.into_keys();
    let worker = machines.find(|name| name.contains("-general-"));
    let worker = worker.context("no worker")?;
    cluster.edit(&json!({ "paused": true })).await?;
    let watched = async {
        cluster.condition("Paused", "True", "PausedByUser").await?;
        let mark = Mark::now(stage)?;
        let before = left_on_node(&cluster, &worker).await?;
        let arguments = ["-n", LIFE, "delete", "vm", &worker, "--timeout=240s"];
        stage.kubectl(&arguments).await?;
        tokio::time::sleep(LONG).await;
        let now = left_on_node(&cluster, &worker).await?;
        anyhow::ensure!(now == before, "its Node was {before:?} and is {now:?}");
        let writes = mark.writes(stage)?;
        let here: Vec<_> = writes.iter().filter(|w| w.namespace() == LIFE).collect();
        let lines: Vec<_> = here.into_iter().map(Write::line).collect();
        anyhow::ensure!(lines.is_empty(), "written in a pause: {lines:?}");
        anyhow::Ok(())
    }
    .await;
    cluster.edit(&json!({ "paused": false })).await?;
    watched?;
    is_replaced(&cluster, &worker).await
}

/// What the operator might change about a guest Node: its labels and annotations, and whether it takes
/// Pods; none if it deletes it. The guest's own controllers taint one that they do not hear of.
async fn left_on_node(cluster: &Cluster<'_>, machine: &str) -> anyhow::Result<Option<Node>> {
    let node = cluster.nodes().await?.remove(machine);
    Ok(node.map(|mut node| {
        node.status = None;
        node.metadata.resource_version = None;
        node.metadata.managed_fields = None;
        if let Some(spec) = &mut node.spec {
            let taints = spec.taints.take().unwrap_or_default().into_iter();
            let others = taints.filter(|taint| !taint.key.starts_with("node.kubernetes.io/"));
            spec.taints = Some(others.collect());
        }
        node
    }))
}

/// A person takes a member's VM over, and it stands still: longer than the operator's patience nothing
/// is done about it, and status says whose it is. Given back, it is replaced.
pub async fn a_machine_in_a_persons_hands_is_left_alone(stage: &Stage) -> anyhow::Result<()> {
    let cluster = stands(stage, PATIENCE).await?;
    let leader = cluster.etcd_leader().await?;
    let mut others = cluster.control_plane().await?.into_iter();
    let machine = others.find(|name| *name != leader).context("it is alone")?;
    let vms: Vec<String> = cluster.vms().await?.into_keys().collect();
    let target = cluster.target(&machine);
    annotate(&cluster, &machine, &format!("{}=true", labels::UNMANAGED)).await?;
    stage.fault(Fault::Freeze(target.clone())).await?;
    let left = async {
        let words = [machine.as_str(), "out of the operator's hands"];
        cluster
            .condition_says("Remediating", "False", "HandedOver", &words)
            .await?;
        let words = ["2 of 3", machine.as_str()];
        cluster
            .condition_says("ControlPlaneAvailable", "True", "Degraded", &words)
            .await?;
        tokio::time::sleep(LONG).await;
        let now: Vec<String> = cluster.vms().await?.into_keys().collect();
        anyhow::ensure!(now == vms, "machines were {vms:?} and are {now:?}");
        let members = cluster.etcd_members(&leader).await?;
        anyhow::ensure!(members.iter().any(|m| m.name == machine), "{members:?}");
        anyhow::Ok(())
    }
    .await;
    annotate(&cluster, &machine, &format!("{}-", labels::UNMANAGED)).await?;
    if left.is_ok() {
        has_successor(&cluster, &machine).await?;
    }
    // It is asked to shut down, and would be waited for.
    stage.fault(Fault::Thaw(target)).await?;
    left?;
    is_replaced(&cluster, &machine).await
}

async fn annotate(cluster: &Cluster<'_>, vm: &str, change: &str) -> anyhow::Result<()> {
    let arguments = ["-n", LIFE, "annotate", "vm", vm, change];
    cluster.stage.kubectl(&arguments).await.map(drop)
}
