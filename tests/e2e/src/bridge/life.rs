//! What happens to a guest of Cluster API after its birth, with the operator as its provider.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::guest::Guest;
use super::{Provider, STEP};
use crate::stage::Stage;
use crate::wait::until;

/// The label by which a person gives a machine up.
const TERMINAL: &str = "capk.cluster.x-k8s.io/vm-is-terminal=disk-broken";
/// The longest that a rollout of all machines may take.
const ROLLOUT: Duration = Duration::from_secs(540);

/// A machine that a person gives up is replaced, a drained host's worker starts elsewhere, a control
/// plane that shares no host stays apart, and every machine follows a new version.
pub async fn a_guest_is_repaired_drained_and_upgraded(stage: &Stage) -> anyhow::Result<()> {
    Provider::Ours.take_over(stage).await?;
    let guest = Guest::new((stage, Provider::Ours), "bridge-life", "life");
    guest.apply().await?;
    guest.has_machines(1, 0).await?;
    guest.scale(3, 2).await?;
    guest.has_machines(3, 2).await?;
    stands_apart(&guest).await?;
    a_lost_machine_is_replaced(&guest).await?;
    a_drained_host_lets_its_worker_go(stage, &guest).await?;
    let begun = Instant::now();
    let version = guest.upgrade().await?;
    until("every Node runs the new version", ROLLOUT, || async {
        let kubelets = guest.kubelets().await?;
        anyhow::ensure!(kubelets.iter().all(|one| *one == version), "{kubelets:?}");
        Ok(Some(()))
    })
    .await?;
    guest.has_machines(3, 2).await?;
    println!(
        "  3 + 2 ran {version} after {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    stands_apart(&guest).await?;
    guest.delete().await?;
    guest.nothing_is_left().await
}

/// No host carries two control-plane machines.
async fn stands_apart(guest: &Guest<'_>) -> anyhow::Result<()> {
    let selector = "cluster.x-k8s.io/role=control-plane";
    let mut hosts = guest.hosts(selector).await?;
    let machines = hosts.len();
    hosts.sort();
    hosts.dedup();
    anyhow::ensure!(hosts.len() == machines, "{machines} machines on {hosts:?}");
    let cluster = guest.get("kubevirtcluster/life").await?;
    anyhow::ensure!(
        super::guest::has_condition(&cluster, "PlacementHealthy"),
        "{cluster}"
    );
    Ok(())
}

/// Cluster API's own MachineHealthCheck hears that a machine is beyond help.
async fn a_lost_machine_is_replaced(guest: &Guest<'_>) -> anyhow::Result<()> {
    let workers = guest.machines("cluster.x-k8s.io/role=worker").await?;
    let lost = workers.first().context("no worker")?;
    guest.kubectl(&["label", "vm", lost, TERMINAL]).await?;
    let begun = Instant::now();
    until("the lost machine is gone", STEP, || async {
        let left = guest.machines("cluster.x-k8s.io/role=worker").await?;
        Ok((!left.contains(lost)).then_some(()))
    })
    .await?;
    guest.has_machines(3, 2).await?;
    println!(
        "  {lost} was given up and replaced in {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    Ok(())
}

/// `kubectl drain` of a host drains the guest's Node and ends; the machine comes back elsewhere and
/// takes Pods again.
async fn a_drained_host_lets_its_worker_go(stage: &Stage, guest: &Guest<'_>) -> anyhow::Result<()> {
    let workers = guest.machines("cluster.x-k8s.io/role=worker").await?;
    let worker = workers.first().context("no worker")?;
    let host = guest.host_of(worker).await?;
    let others = guest.hosts("cluster.x-k8s.io/role=control-plane").await?;
    let begun = Instant::now();
    let selector = format!("capk.cluster.x-k8s.io/kubevirt-machine-name={worker}");
    let drain = [
        "drain",
        &host,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=240s",
        "--pod-selector",
        &selector,
    ];
    let drained = stage.kubectl(&drain).await;
    let moved = until("the worker is elsewhere", STEP, || async {
        let now = guest.host_of(worker).await?;
        anyhow::ensure!(now != host, "it is on {now}");
        Ok(Some(()))
    })
    .await;
    stage.kubectl(&["uncordon", &host]).await?;
    drained?;
    moved?;
    println!(
        "  {worker} left {host} after {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    guest.has_machines(3, 2).await?;
    until("its Node takes Pods", STEP, || async {
        let cordoned = guest.cordoned().await?;
        anyhow::ensure!(cordoned.is_empty(), "{cordoned:?} are cordoned");
        Ok(Some(()))
    })
    .await?;
    let after = guest.hosts("cluster.x-k8s.io/role=control-plane").await?;
    anyhow::ensure!(
        after == others,
        "members of etcd moved from {others:?} to {after:?}"
    );
    Ok(())
}
