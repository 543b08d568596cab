//! Disks of etcd that one storage host takes with it.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use guestcluster_api::names;
use serde_json::json;

use super::hosts;
use crate::cluster::Cluster;
use crate::stage::Stage;

const NAMESPACE: &str = "storage-spread";
/// Within so long it is told of.
const FOUND: Duration = Duration::from_secs(30);

/// Volumes that say nothing of where they lie are not judged. Then they are given hosts, which the API
/// server allows once: two of them the same. Status names disks, volume and host, and nothing is moved.
pub async fn etcd_disks_on_one_storage_host_are_found(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, NAMESPACE, "disks");
    let spec = json!({ "controlPlane": { "replicas": 3 }, "workers": [] });
    cluster.apply(0, &spec).await?;
    cluster.is_whole_with(3, 0).await?;
    let kind = "StorageSpread";
    cluster.condition(kind, "Unknown", "StorageUnknown").await?;
    let machines = cluster.control_plane().await?;
    let hosts = hosts(stage).await?;
    let (Some(shared), Some(other)) = (hosts.first(), hosts.get(1)) else {
        anyhow::bail!("it takes two hosts, there are {hosts:?}");
    };
    let mut words = vec![shared.clone(), "Delete no disk by hand".to_owned()];
    for (machine, host) in machines.iter().zip([shared, shared, other]) {
        let volume = lay(stage, machine, host).await?;
        if host == shared {
            words.extend([names::root_disk(machine), volume]);
        }
    }
    let begun = Instant::now();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    cluster
        .condition_says(kind, "False", "StorageHostShared", &words)
        .await?;
    let found = begun.elapsed();
    println!("  told of after {:.1} s", found.as_secs_f32());
    anyhow::ensure!(found <= FOUND, "it took {found:?}");
    cluster.is_whole_with(3, 0).await?;
    let status = cluster.get().await?.status.context("no status")?;
    anyhow::ensure!(
        status.control_plane.disks_sharing_storage == Some(2),
        "status says {:?}",
        status.control_plane.disks_sharing_storage
    );
    let selector = "--field-selector=reason=StorageHostShared";
    let events = ["-n", NAMESPACE, "get", "events", "-o", "name", selector];
    let told = stage.kubectl(&events).await?;
    anyhow::ensure!(told.lines().count() == 1, "events: {told:?}");
    anyhow::ensure!(cluster.control_plane().await? == machines, "machines went");
    let arguments = ["-n", NAMESPACE, "delete", "gc", "disks", "--timeout=120s"];
    stage.kubectl(&arguments).await.map(drop)
}

/// The volume of a machine's root disk can be reached from this host alone from now on. Answers its
/// name.
async fn lay(stage: &Stage, machine: &str, host: &str) -> anyhow::Result<String> {
    let claim = names::root_disk(machine);
    let name = "jsonpath={.spec.volumeName}";
    let get = ["-n", NAMESPACE, "get", "pvc", &claim, "-o", name];
    let volume = stage.kubectl(&get).await?.trim().to_owned();
    let on = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [host] });
    let terms = json!([{ "matchExpressions": [on] }]);
    let affinity = json!({ "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } });
    let patch = json!({ "spec": affinity }).to_string();
    let arguments = ["patch", "pv", &volume, "--type=merge", "-p", &patch];
    stage.kubectl(&arguments).await?;
    Ok(volume)
}
