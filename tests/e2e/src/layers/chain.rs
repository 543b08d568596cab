//! From a tenant to the host and back: what a guest's Nodes and `kubectl guestcluster map` say of where
//! machines run.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use guestcluster_api::labels;
use k8s_openapi::api::core::v1::Node as Host;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::wait::until;

/// Longest time until a Node names the host to which its machine has moved. Its kubelet may take as
/// long to be Ready there; the labels do not wait for that.
const SOON: Duration = Duration::from_secs(20);

/// Within seconds a machine's Node in the guest names its host and that host's zone, and the map shows
/// it there.
pub(super) async fn is_shown_soon(cluster: &Cluster<'_>, machine: &str) -> anyhow::Result<()> {
    until("the host is shown", SOON, || async {
        is_shown_where_it_runs(cluster, machine).await.map(Some)
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
    let text = ["map", "-n", cluster.namespace, "-o", "json"];
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
