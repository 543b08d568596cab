//! A host dies for good while a guest changes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use guestcluster_infra::faults::Fault;
use kube::ResourceExt as _;
use serde_json::json;

use super::CHANGE;
use super::faults::{PATIENT, stands};
use crate::cluster::Cluster;
use crate::prober::Prober;
use crate::stage::Stage;
use crate::wait::until;

/// The taint that says that a host is off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// With two thirds of an endpoint that answer there is no such long time without an answer, elections
/// of a leader included.
const SILENCE: Duration = Duration::from_secs(10);

/// A host dies in the middle of an upgrade, with a member that is still to be replaced. Until a person
/// says that it is off nothing is forced, and a condition says what to do; then its machine comes back
/// elsewhere, and the upgrade comes to its end. There was a quorum at any time.
pub async fn a_host_dies_amid_an_upgrade(stage: &Stage) -> anyhow::Result<()> {
    let cluster = stands(stage, PATIENT).await?;
    let old: BTreeSet<String> = cluster.vms().await?.into_keys().collect();
    // The oldest machine goes first.
    let last = cluster.control_plane().await?.pop().context("no machine")?;
    let (version, image) = stage.next_image()?;
    let prober = Prober::start(cluster.guest_config().await?);
    let begun = Instant::now();
    cluster
        .edit(&json!({ "version": version, "image": { "registry": image } }))
        .await?;
    a_successor_votes(&cluster, (&last, &old)).await?;
    let host = cluster.host_of(&last).await?;
    stage.fault(Fault::KillHost(host.clone())).await?;
    println!(
        "  {host} died with {last} after {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    let ended = async {
        is_awaited(&cluster, (&last, &host)).await?;
        is_fenced(&cluster, (&last, &host)).await?;
        cluster.is_whole_with(3, 1).await
    }
    .await;
    stage.fault(Fault::ReviveHost(host.clone())).await?;
    let untaint = format!("{OUT_OF_SERVICE}-");
    let untainted = stage.kubectl(&["taint", "node", &host, &untaint]).await;
    ended?;
    untainted?;
    println!(
        "  3 + 1 ran {version} after {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    let outcome = prober.stop().await?;
    let (asked, failed) = outcome.since(Duration::ZERO);
    let silence = outcome.longest_silence();
    println!("  {failed} of {asked} requests were lost, the longest silence was {silence:.1?}");
    anyhow::ensure!(silence < SILENCE, "nobody answered for {silence:?}");
    is_new(&cluster, (&version, &old)).await?;
    until("the host is back", Duration::from_secs(60), || async {
        let is_ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        let arguments = ["get", "node", &host, "-o", is_ready];
        let ready = stage.kubectl(&arguments).await?;
        Ok((ready == "True").then_some(()))
    })
    .await?;
    cluster.is_whole_with(3, 1).await
}

/// Waits until one of the new control-plane machines votes, asked of one that stays for long.
async fn a_successor_votes(
    cluster: &Cluster<'_>,
    (asked, old): (&str, &BTreeSet<String>),
) -> anyhow::Result<()> {
    until("a successor votes", CHANGE, || async {
        let members = cluster.etcd_members(asked).await?;
        let new = |name: &String| !name.is_empty() && !old.contains(name);
        let votes = members.iter().any(|m| !m.learner && new(&m.name));
        Ok(votes.then_some(()))
    })
    .await
}

/// What died is told of with what a person can do, and left as it is until somebody does.
async fn is_awaited(cluster: &Cluster<'_>, (machine, host): (&str, &str)) -> anyhow::Result<()> {
    let before = traces(cluster, machine).await?;
    let command = format!("kubectl taint node {host} {OUT_OF_SERVICE}=nodeshutdown:NoExecute");
    let words = [host, machine, "may still run", &command];
    cluster
        .condition_says("Remediating", "True", "AwaitingFence", &words)
        .await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let now = traces(cluster, machine).await?;
    anyhow::ensure!(
        now == before,
        "{machine} was {before:?} and is {now:?} before anybody said that {host} is off"
    );
    Ok(())
}

/// UIDs of a machine's VM, instance and launcher Pod, and whether they are being deleted.
async fn traces(cluster: &Cluster<'_>, machine: &str) -> anyhow::Result<[(String, bool); 3]> {
    let vm = cluster.vms().await?.remove(machine).context("no VM")?;
    let mut instances = cluster.instances().await?;
    let instance = instances.remove(machine).context("no instance")?;
    let mut launchers = cluster.launchers().await?;
    let launcher = launchers.remove(machine).context("no launcher Pod")?;
    let metas = [vm.metadata, instance.metadata, launcher.metadata];
    Ok(metas.map(|meta| {
        let going = meta.deletion_timestamp.is_some();
        (meta.uid.unwrap_or_default(), going)
    }))
}

/// A person says that the host is off, in the words of the condition: its machine comes back on another.
async fn is_fenced(cluster: &Cluster<'_>, (machine, host): (&str, &str)) -> anyhow::Result<()> {
    let uid = || async { anyhow::Ok(cluster.vms().await?.remove(machine).and_then(|vm| vm.uid())) };
    let before = uid().await?;
    let taint = format!("{OUT_OF_SERVICE}=nodeshutdown:NoExecute");
    let begun = Instant::now();
    let arguments = ["taint", "node", host, &taint];
    cluster.stage.kubectl(&arguments).await?;
    until("it runs elsewhere", Duration::from_secs(120), || async {
        let now = cluster.host_of(machine).await?;
        Ok((now != host).then_some(()))
    })
    .await?;
    println!(
        "  {machine} was on another host {:.0} s after the taint",
        begun.elapsed().as_secs_f32()
    );
    anyhow::ensure!(uid().await? == before, "{machine} is another machine");
    Ok(())
}

/// Every machine is another one, of the new version.
async fn is_new(
    cluster: &Cluster<'_>,
    (version, old): (&str, &BTreeSet<String>),
) -> anyhow::Result<()> {
    for (name, node) in cluster.nodes().await? {
        anyhow::ensure!(!old.contains(&name), "{name} is one of the old machines");
        let info = node.status.and_then(|status| status.node_info);
        let kubelet = info.context("no nodeInfo")?.kubelet_version;
        anyhow::ensure!(kubelet == version, "the kubelet of {name} is {kubelet}");
    }
    Ok(())
}
