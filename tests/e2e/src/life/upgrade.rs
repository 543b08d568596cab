//! Machines are replaced because their specification changes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::workload::Watcher;
use crate::audit::Mark;
use crate::cluster::Cluster;
use crate::prober::Prober;
use crate::stage::Stage;
use crate::wait::until;

/// Namespace and name of the cluster that is upgraded.
const UPGRADE: &str = "upgrade";

/// A guest of 3 + 3 goes from one minor to the next: every machine is another one afterwards, all of
/// the guest runs the new version, no request is lost, and a workload with a budget always has a ready
/// Pod.
pub async fn an_upgrade_loses_no_request(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, UPGRADE, UPGRADE);
    cluster.apply(3, &json!({})).await?;
    cluster.is_whole_with(3, 3).await?;
    cluster.guest_deploys("web", 3, Some(2)).await?;
    let before: BTreeSet<String> = cluster.vms().await?.into_keys().collect();
    let (version, image) = stage.next_image()?;
    let prober = Prober::start(cluster.guest_config().await?);
    let watcher = Watcher::start(&cluster, "web").await?;
    let (begun, mark) = (Instant::now(), Mark::now(stage)?);
    cluster
        .edit(&json!({ "version": version, "image": { "registry": image } }))
        .await?;
    cluster.is_whole_with(3, 3).await?;
    let took = begun.elapsed().as_secs_f32();
    let writes = mark.writes(stage)?.len();
    println!("  3 + 3 upgraded in {took:.0} s with {writes} writes");
    let outcome = prober.stop().await?;
    watcher.never_saw_none().await?;
    let after: BTreeSet<String> = cluster.vms().await?.into_keys().collect();
    anyhow::ensure!(before.is_disjoint(&after), "not all of {after:?} are new");
    outcome.has_lost_nothing()?;
    runs(&cluster, &version).await?;
    until("one image is left", Duration::from_secs(60), || async {
        let selector = "guestcluster.dev/disk=golden";
        let images = ["-n", UPGRADE, "get", "dv", "-l", selector, "-o", "name"];
        let images = stage.kubectl(&images).await?;
        anyhow::ensure!(images.lines().count() == 1, "there are {images}");
        Ok(Some(()))
    })
    .await
}

/// Kubelets, static Pods and add-ons are of this version.
async fn runs(cluster: &Cluster<'_>, version: &str) -> anyhow::Result<()> {
    let nodes = cluster.nodes().await?;
    for (name, node) in &nodes {
        let status = node.status.as_ref();
        let info = status.and_then(|status| status.node_info.as_ref());
        let kubelet = &info.context("no nodeInfo")?.kubelet_version;
        anyhow::ensure!(kubelet == version, "the kubelet of {name} is {kubelet}");
    }
    let guest = cluster.guest().await?;
    let pods = Api::<Pod>::namespaced(guest.clone(), "kube-system");
    let servers = ListParams::default().labels("component=kube-apiserver");
    // Pods of a Node that is gone go a little later.
    let is_there = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        node.is_some_and(|node| nodes.contains_key(node))
    };
    for pod in pods
        .list(&servers)
        .await?
        .items
        .into_iter()
        .filter(is_there)
    {
        let images: Vec<_> = pod.spec.iter().flat_map(|s| &s.containers).collect();
        let image = images
            .first()
            .and_then(|c| c.image.clone())
            .unwrap_or_default();
        anyhow::ensure!(image.ends_with(version), "an API server is {image}");
    }
    let sets = Api::<DaemonSet>::namespaced(guest.clone(), "kube-system");
    let servers = Api::<Deployment>::namespaced(guest, "kube-system");
    until("the add-ons run", Duration::from_secs(60), || async {
        let proxy = sets.get("kube-proxy").await?;
        let image = proxy
            .spec
            .as_ref()
            .and_then(|s| s.template.spec.as_ref()?.containers.first()?.image.clone());
        anyhow::ensure!(
            image.as_ref().is_some_and(|i| i.ends_with(version)),
            "kube-proxy is {image:?}"
        );
        let status = proxy.status.unwrap_or_default();
        let fresh = status.updated_number_scheduled == Some(status.desired_number_scheduled);
        anyhow::ensure!(
            fresh && status.number_ready == 6,
            "{} of 6 kube-proxies",
            status.number_ready
        );
        let dns = servers.get("coredns").await?.status.unwrap_or_default();
        anyhow::ensure!(
            dns.ready_replicas == Some(2),
            "{:?} of 2 CoreDNS",
            dns.ready_replicas
        );
        Ok(Some(()))
    })
    .await
}

/// More memory for the workers rolls the workers and nothing else; an edit that changes nothing about
/// machines writes to none.
pub async fn a_changed_template_rolls_and_a_null_change_does_not(
    stage: &Stage,
) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, UPGRADE, UPGRADE);
    let names = || async {
        let all = cluster.vms().await?.into_keys();
        anyhow::Ok(all.partition::<Vec<String>, _>(|name| name.contains("-cp-")))
    };
    let (control_plane, workers) = names().await?;
    let pool = |memory: &str| {
        json!({ "workers": [{
            "name": "general", "replicas": 3, "machine": { "memory": memory },
            "rollout": { "maxSurge": 3 }, "labels": { "tier": "web" },
        }]})
    };
    cluster.edit(&pool("8Gi")).await?;
    cluster.is_whole_with(3, 3).await?;
    anyhow::ensure!(
        names().await? == (control_plane.clone(), workers.clone()),
        "labels and limits of a rollout replaced machines"
    );
    cluster.edit(&pool("9Gi")).await?;
    cluster.is_whole_with(3, 3).await?;
    let (same, others) = names().await?;
    anyhow::ensure!(same == control_plane, "{same:?} are not {control_plane:?}");
    let is_new = others.iter().all(|name| !workers.contains(name));
    anyhow::ensure!(is_new, "{others:?} are not all new");
    let arguments = ["-n", UPGRADE, "delete", "gc", UPGRADE, "--timeout=180s"];
    stage.kubectl(&arguments).await.map(drop)
}
