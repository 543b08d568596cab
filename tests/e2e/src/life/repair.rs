//! Machines fail, and others take their place.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use guestcluster_infra::faults::Fault;
use serde_json::json;

use super::{LIFE, operator};
use crate::cluster::Cluster;
use crate::stage::Stage;
use crate::wait::until;

/// How long a machine may be unhealthy in these scenarios, where nobody waits for a person.
pub(super) const PATIENCE: &str = "--unhealthy-after=15s";

/// How long a replacement may take: repairs of one pool that follow each other are 2 and 4 minutes
/// apart, and these scenarios do two of them before others.
const REPLACEMENT: Duration = Duration::from_secs(240 + 180);

/// A member stands still: it is replaced, and etcd has three healthy members again.
pub async fn a_frozen_member_is_replaced(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, LIFE, LIFE);
    cluster
        .edit(&json!({
            "controlPlane": { "replicas": 3 },
            "workers": [{ "name": "general", "replicas": 1 }],
        }))
        .await?;
    cluster.is_whole_with(3, 1).await?;
    operator::runs_with(stage, &[PATIENCE]).await?;
    let leader = cluster.etcd_leader().await?;
    let begun = Instant::now();
    stage.fault(Fault::Freeze(cluster.target(&leader))).await?;
    has_successor(&cluster, &leader).await?;
    println!(
        "  {leader} was frozen; three healthy members after {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    // It is asked to shut down, and would be waited for.
    stage.fault(Fault::Thaw(cluster.target(&leader))).await?;
    is_replaced(&cluster, &leader).await
}

/// The disk under a member's etcd is full: the member dies, and its machine is replaced.
pub async fn a_member_with_a_full_disk_is_replaced(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, LIFE, LIFE);
    let machine = cluster.control_plane().await?.pop().context("no machine")?;
    let begun = Instant::now();
    stage
        .fault(Fault::FillDisk(cluster.target(&machine)))
        .await?;
    cluster.guest_writes_much().await?;
    has_successor(&cluster, &machine).await?;
    println!(
        "  {machine} had no space left; three healthy members after {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    is_replaced(&cluster, &machine).await
}

/// A person deletes a control-plane machine's VM, and a worker's: others take their places under other
/// names, and nothing of the old ones is left in the guest.
pub async fn vms_deleted_by_hand_are_replaced(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, LIFE, LIFE);
    for role in ["-cp-", "-general-"] {
        let mut machines = cluster.vms().await?.into_keys();
        let machine = machines
            .find(|name| name.contains(role))
            .context("no machine")?;
        let arguments = ["-n", LIFE, "delete", "vm", &machine, "--timeout=120s"];
        stage.kubectl(&arguments).await?;
        is_replaced(&cluster, &machine).await?;
    }
    Ok(())
}

/// Two of three members stand still: nothing is replaced, the status says so, and all is well again
/// when they go on.
pub async fn a_lost_quorum_freezes_everything(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, LIFE, LIFE);
    let machines = cluster.control_plane().await?;
    let vms: Vec<String> = cluster.vms().await?.into_keys().collect();
    let lost = machines.get(..2).context("fewer than two machines")?;
    for machine in lost {
        stage.fault(Fault::Freeze(cluster.target(machine))).await?;
    }
    let said = cluster
        .condition_says("EtcdHealthy", "False", "QuorumLost", &["snapshot"])
        .await;
    // Longer than what it takes to replace a machine.
    tokio::time::sleep(Duration::from_secs(25)).await;
    let now: Vec<String> = cluster.vms().await?.into_keys().collect();
    for machine in lost {
        stage.fault(Fault::Thaw(cluster.target(machine))).await?;
    }
    said?;
    anyhow::ensure!(now == vms, "machines were {vms:?} and are {now:?}");
    cluster.is_whole_with(3, 1).await
}

/// Waits until etcd has three healthy voters and the machine is none of them.
pub(super) async fn has_successor(cluster: &Cluster<'_>, machine: &str) -> anyhow::Result<()> {
    until("etcd has three others", REPLACEMENT, || async {
        let others = cluster.control_plane().await?;
        let mut others = others.into_iter().filter(|name| name != machine);
        let asked = others.next().context("no other machine")?;
        let members = cluster.etcd_members(&asked).await?;
        let voters = members.iter().filter(|m| !m.learner && m.name != machine);
        anyhow::ensure!(members.len() == 3 && voters.count() == 3, "{members:?}");
        cluster.etcd_answers(&asked).await.map(Some)
    })
    .await
}

/// Waits until a machine is gone and the guest is whole again.
pub(super) async fn is_replaced(cluster: &Cluster<'_>, machine: &str) -> anyhow::Result<()> {
    until(
        &format!("{machine} is gone"),
        Duration::from_secs(180),
        || async { Ok((!cluster.vms().await?.contains_key(machine)).then_some(())) },
    )
    .await?;
    cluster.is_whole_with(3, 1).await
}
