//! Control-plane machines on one host, as somebody brought them there by hand.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;

use super::hosts;
use crate::cluster::Cluster;
use crate::prober::Prober;
use crate::stage::Stage;
use crate::wait::until;

const NAMESPACE: &str = "co-location";
/// Within so long two machines on one host are told of.
const FOUND: Duration = Duration::from_secs(10);
/// A machine is back within so long.
const BACK: Duration = Duration::from_secs(120);

/// The launcher Pod of a control-plane machine is bound to the host of another, past the scheduler and
/// its rules. Status tells within ten seconds, nothing is moved while no host takes the machine, and
/// then one is: with its old member, and without a lost request.
pub async fn machines_on_one_host_are_found_and_moved_apart(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, NAMESPACE, "pair");
    cluster
        .apply(
            0,
            &json!({ "controlPlane": { "replicas": 3 }, "workers": [] }),
        )
        .await?;
    cluster.is_whole_with(3, 0).await?;
    let machines = cluster.control_plane().await?;
    let [first, .., last] = machines.as_slice() else {
        anyhow::bail!("there are {machines:?}");
    };
    let host = cluster.host_of(first).await?;
    let hosts = hosts(stage).await?;
    for host in &hosts {
        stage.kubectl(&["cordon", host]).await?;
    }
    let paired = pair(&cluster, last, &host).await;
    let prober = Prober::start(cluster.guest_config().await?);
    for host in &hosts {
        stage.kubectl(&["uncordon", host]).await?;
    }
    paired?;
    let begun = Instant::now();
    until("three machines on three hosts", BACK, || async {
        let hosts = cluster.control_plane_hosts().await?;
        Ok((hosts.len() == 3).then_some(()))
    })
    .await?;
    cluster.is_whole_with(3, 0).await?;
    println!("  moved apart in {:.0} s", begun.elapsed().as_secs_f32());
    prober.stop().await?.has_lost_nothing()?;
    cluster
        .condition("PlacementHealthy", "True", "Spread")
        .await?;
    anyhow::ensure!(
        cluster.control_plane().await? == machines,
        "machines were replaced"
    );
    let arguments = ["-n", NAMESPACE, "delete", "gc", "pair", "--timeout=120s"];
    stage.kubectl(&arguments).await.map(drop)
}

/// Restarts a machine, binds its new Pod to this host while all are cordoned, and waits until that is
/// told and the machine serves again.
async fn pair(cluster: &Cluster<'_>, machine: &str, host: &str) -> anyhow::Result<()> {
    let stage = cluster.stage;
    let delete = ["-n", NAMESPACE, "delete", "vmi", machine, "--wait=false"];
    stage.kubectl(&delete).await?;
    let pod = until("its Pod waits for a host", BACK, || async {
        let pods = cluster.launchers().await?;
        let pod = pods.get(machine).context("no Pod")?;
        let is_bound = pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
        Ok(pod.metadata.name.clone().filter(|_| !is_bound))
    })
    .await?;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": { "name": pod, "namespace": NAMESPACE },
        "target": { "apiVersion": "v1", "kind": "Node", "name": host },
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding");
    let create = ["create", "--raw", &path, "-f", "-"];
    stage.kubectl_with(&create, &binding.to_string()).await?;
    until("it is on that host", BACK, || async {
        Ok((cluster.host_of(machine).await? == host).then_some(()))
    })
    .await?;
    let begun = Instant::now();
    let words = [machine, host];
    cluster
        .condition_says("PlacementHealthy", "False", "HostShared", &words)
        .await?;
    let found = begun.elapsed();
    println!("  told of after {:.1} s", found.as_secs_f32());
    anyhow::ensure!(found <= FOUND, "it took {found:?}");
    until("etcd is whole", BACK, || async {
        cluster.etcd_is_whole().await.map(Some)
    })
    .await?;
    let words = ["no other host takes"];
    cluster
        .condition_says("PlacementHealthy", "False", "HostShared", &words)
        .await
}
