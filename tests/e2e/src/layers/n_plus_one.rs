//! Whether guests would survive the loss of a host, told and enforced.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;

use super::hosts;
use crate::cluster::Cluster;
use crate::stage::Stage;
use crate::wait::until;

const NAMESPACE: &str = "n-plus-one";
/// Hosts that the guest may use.
const LABEL: &str = "example.com/room";
/// No VM comes for so long where one is refused.
const QUIET: Duration = Duration::from_secs(5);

/// Three hosts carry three control-plane machines and survive no loss. A guest that enforces survival
/// is refused, in words that name host, machine and cure; the same guest comes up where that is only
/// to be told, and is told of. A fourth host cures it, though not the loss of a zone.
pub async fn a_guest_without_room_for_a_lost_host_is_refused_or_told(
    stage: &Stage,
) -> anyhow::Result<()> {
    let hosts = hosts(stage).await?;
    anyhow::ensure!(hosts.len() > 3, "it takes four hosts, there are {hosts:?}");
    let (few, spare) = (&hosts[..3], &hosts[3]);
    for host in few {
        label(stage, host, "=true").await?;
    }
    let outcome = told(stage, spare).await;
    for host in &hosts[..4] {
        label(stage, host, "-").await?;
    }
    outcome
}

async fn label(stage: &Stage, host: &str, value: &str) -> anyhow::Result<()> {
    let label = format!("{LABEL}{value}");
    let arguments = ["label", "node", host, &label, "--overwrite"];
    stage.kubectl(&arguments).await.map(drop)
}

async fn told(stage: &Stage, spare: &str) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, NAMESPACE, "room");
    let spec = json!({
        "capacityPolicy": "Enforce",
        "controlPlane": { "placement": { "nodeSelector": { LABEL: "true" } } },
        "workers": [],
    });
    cluster.apply(0, &spec).await?;
    let (kind, reason) = ("CapacityAvailable", "HostLossNotSurvived");
    let machine = format!("{NAMESPACE}/room-cp-");
    let words = [
        "spec.capacityPolicy is Enforce",
        machine.as_str(),
        "one more host",
        LABEL,
    ];
    cluster
        .condition_says(kind, "False", reason, &words)
        .await?;
    tokio::time::sleep(QUIET).await;
    let vms = cluster.vms().await?;
    anyhow::ensure!(vms.is_empty(), "there are machines: {:?}", vms.keys());
    cluster.edit(&json!({ "capacityPolicy": "Warn" })).await?;
    cluster.is_whole_with(3, 0).await?;
    let words = [machine.as_str(), "would find no host", "one more host"];
    cluster
        .condition_says(kind, "False", reason, &words)
        .await?;
    let capacity = cluster.get().await?.status.context("no status")?.capacity;
    anyhow::ensure!(
        capacity.survives_host_loss == Some(false) && capacity.worst_host.is_some(),
        "status says {capacity:?}"
    );
    label(stage, spare, "=true").await?;
    cluster.condition(kind, "True", "SurvivesHostLoss").await?;
    // Whatever the zones of four hosts are, the larger one leaves too few for three machines.
    cluster.edit(&json!({ "capacityScope": "Zone" })).await?;
    let words = ["zone ", machine.as_str()];
    cluster
        .condition_says(kind, "False", "ZoneLossNotSurvived", &words)
        .await?;
    cluster.edit(&json!({ "capacityPolicy": "Ignore" })).await?;
    cluster
        .condition(kind, "Unknown", "CapacityIgnored")
        .await?;
    gone(stage, &cluster).await
}

/// Its machines are not in the way of others.
async fn gone(stage: &Stage, cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let arguments = ["-n", NAMESPACE, "delete", "gc", "room", "--timeout=120s"];
    stage.kubectl(&arguments).await?;
    until("no machine is left", QUIET, || async {
        Ok(cluster.instances().await?.is_empty().then_some(()))
    })
    .await
}
