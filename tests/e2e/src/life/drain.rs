//! Hosts are drained with plain `kubectl drain`.

use std::time::Instant;

use anyhow::Context as _;
use serde_json::json;

use super::LIFE;
use crate::cluster::Cluster;
use crate::prober::Prober;
use crate::stage::Stage;

/// The host of the etcd leader is drained: `kubectl drain` ends well, the machine runs on another host
/// with its old member, and no request is lost.
pub async fn a_drained_host_loses_no_request(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, LIFE, LIFE);
    cluster
        .edit(&json!({ "controlPlane": { "replicas": 3 } }))
        .await?;
    cluster.is_whole_with(3, 1).await?;
    let leader = cluster.etcd_leader().await?;
    let member = cluster.member_id(&leader).await?;
    let host = cluster.host_of(&leader).await?;
    let prober = Prober::start(cluster.guest_config().await?);
    let begun = Instant::now();
    let drained = drain(stage, &host).await;
    let took = begun.elapsed();
    stage.kubectl(&["uncordon", &host]).await?;
    drained?;
    cluster.is_whole_with(3, 1).await?;
    println!("  {leader} left {host} in {:.0} s", took.as_secs_f32());
    prober.stop().await?.has_lost_nothing()?;
    anyhow::ensure!(
        cluster.host_of(&leader).await? != host,
        "{leader} is on {host} still"
    );
    anyhow::ensure!(
        cluster.member_id(&leader).await? == member,
        "{leader} came back as another member"
    );
    Ok(())
}

/// As a person drains a host.
async fn drain(stage: &Stage, host: &str) -> anyhow::Result<()> {
    let arguments = [
        "drain",
        host,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=240s",
    ];
    stage.kubectl(&arguments).await.map(drop)
}

/// A worker whose Pods a budget holds stays where it is and says why; once the budget allows, it goes.
pub async fn workers_move_when_their_budgets_allow(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, LIFE, LIFE);
    let worker = cluster
        .vms()
        .await?
        .into_keys()
        .find(|name| name.contains("-general-"))
        .context("no worker")?;
    cluster.guest_deploys("web", 1, Some(1)).await?;
    let host = cluster.host_of(&worker).await?;
    let drained = async {
        let drained = drain(stage, &host).await;
        stage.kubectl(&["uncordon", &host]).await?;
        drained
    };
    let allowed = async {
        let words = [worker.as_str(), "disruption budget web"];
        cluster
            .condition_says("Reconciling", "True", "Evicted", &words)
            .await?;
        cluster.guest_deletes_budget("web").await
    };
    let (drained, allowed) = tokio::join!(drained, allowed);
    allowed?;
    drained?;
    cluster.is_whole_with(3, 1).await
}
