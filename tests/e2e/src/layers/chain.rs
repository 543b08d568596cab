//! From a tenant to the host and back: what a guest's Nodes and `kubectl guestcluster map` say of where
//! machines run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use guestcluster_api::labels;
use k8s_openapi::api::core::v1::Node as Host;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::stage::Stage;
use crate::wait::until;

const NAME: &str = "chain";

/// Longest time until a Node names the host to which its machine has moved. Its kubelet may take as
/// long to be Ready there; the labels do not wait for that.
const SOON: Duration = Duration::from_secs(20);

/// A worker moves to another host: within seconds its Node in the guest names that host and its zone,
/// and the map shows it there.
pub async fn a_moved_machine_is_shown_where_it_runs(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, NAME, NAME);
    cluster
        .apply(1, &json!({ "controlPlane": { "replicas": 1 } }))
        .await?;
    cluster.is_whole_with(1, 1).await?;
    let machines = cluster.vms().await?.into_keys();
    for machine in machines {
        is_shown_where_it_runs(&cluster, &machine).await?;
    }
    let worker = format!("{NAME}-general-1");
    let before = cluster.host_of(&worker).await?;
    stage.kubectl(&["cordon", &before]).await?;
    let moved = moves_away(&cluster, &worker, &before).await;
    stage.kubectl(&["uncordon", &before]).await?;
    let begun = moved?;
    let shown = until("the new host is shown", SOON, || async {
        is_shown_where_it_runs(&cluster, &worker).await.map(Some)
    });
    shown.await?;
    let took = begun.elapsed().as_secs_f32();
    println!("  shown on its new host {took:.1} s after it ran there");
    let delete = ["-n", NAME, "delete", "gc", NAME, "--timeout=180s"];
    stage.kubectl(&delete).await.map(drop)
}

/// Starts the machine anew while its host takes none, and waits until it runs on another.
async fn moves_away(cluster: &Cluster<'_>, machine: &str, before: &str) -> anyhow::Result<Instant> {
    let delete = ["-n", NAME, "delete", "vmi", machine, "--wait=false"];
    cluster.stage.kubectl(&delete).await?;
    until("another host", Duration::from_secs(60), || async {
        let host = cluster.host_of(machine).await?;
        Ok((host != before).then(Instant::now))
    })
    .await
}

/// The labels of its Node and its line in the map agree with its instance and its host.
async fn is_shown_where_it_runs(cluster: &Cluster<'_>, machine: &str) -> anyhow::Result<()> {
    let host = cluster.host_of(machine).await?;
    let known = Api::<Host>::all(cluster.stage.client()).get(&host).await?;
    let zone = known.labels().get(labels::ZONE).cloned();
    let nodes = cluster.nodes().await?;
    let node = nodes.get(machine).context("no Node")?;
    let expected = BTreeMap::from([
        (labels::NODE_HOST, Some(host.clone())),
        (labels::NODE_ZONE, zone.clone()),
        (labels::ZONE, zone.clone()),
        (labels::NODE_VM, Some(machine.to_owned())),
    ]);
    for (label, value) in expected {
        let found = node.labels().get(label);
        anyhow::ensure!(
            found == value.as_ref(),
            "{machine} has {label}={found:?}, not {value:?}"
        );
    }
    let text = ["map", "-n", NAME, "-o", "json"];
    let map: Value = serde_json::from_str(&cluster.stage.plugin(&text).await?)?;
    let mut rows = map.as_array().into_iter().flatten();
    let row = rows.find(|row| row["machine"] == machine);
    let row = row.with_context(|| format!("{machine} is not in {map}"))?;
    anyhow::ensure!(
        row["host"] == json!(host) && row["zone"] == json!(zone) && row["vm"] == machine,
        "the map says {row}"
    );
    Ok(())
}
