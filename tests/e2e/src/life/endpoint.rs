//! The guest's API moves to another name while it is in use.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::json;

use super::CHANGE;
use crate::cluster::Cluster;
use crate::guest::node_addresses;
use crate::prober::Prober;
use crate::stage::Stage;
use crate::wait::until;

/// A further name that the change brings.
const NAME: &str = "api.moved.example.com";

/// A guest of three members and a worker is reached at one host's address, then at another's. Clients of
/// the old one lose no request until the last machine has moved, those of the new one none from the moment
/// at which they are told of it.
pub async fn an_endpoint_moves_without_a_lost_request(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, "moves", "moved");
    let [old, new] = two_hosts(stage).await?;
    let at = |host: &str| json!({ "type": "NodePort", "host": host });
    let spec = json!({ "controlPlane": { "replicas": 3, "endpoint": at(&old) } });
    cluster.apply(1, &spec).await?;
    cluster.is_whole_with(3, 1).await?;
    port_stays(&cluster).await?;
    let before = cluster.vms().await?;
    let former = Prober::start(cluster.guest_config().await?);

    let mut endpoint = at(&new);
    endpoint["certSANs"] = json!([NAME]);
    cluster
        .edit(&json!({ "controlPlane": { "endpoint": endpoint } }))
        .await?;
    let told = ["vouch for", new.as_str()];
    cluster
        .condition_says("EndpointReady", "True", "Outdated", &told)
        .await?;
    until("the kubeconfig names the new one", CHANGE, || async {
        Ok(server(&cluster).await?.contains(&new).then_some(()))
    })
    .await?;
    let latter = Prober::start(cluster.guest_config().await?);
    until("every machine is another", CHANGE, || async {
        let now = cluster.vms().await?;
        let kept = now.keys().find(|name| before.contains_key(*name));
        anyhow::ensure!(kept.is_none(), "{kept:?} is still there");
        Ok(Some(()))
    })
    .await?;
    cluster.is_whole_with(3, 1).await?;
    former.stop().await?.has_lost_nothing()?;
    latter.stop().await?.has_lost_nothing()?;
    everybody_is_told(&cluster, &new).await?;
    answers_to(&cluster, NAME).await?;
    let arguments = ["-n", "moves", "delete", "gc", "moved", "--timeout=180s"];
    stage.kubectl(&arguments).await.map(drop)
}

async fn port_stays(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let port = json!({ "controlPlane": { "endpoint": { "port": 31999 } } });
    match cluster.edit(&port).await {
        Ok(()) => anyhow::bail!("another port was accepted"),
        Err(error) if error.to_string().contains("change host") => Ok(()),
        Err(error) => Err(error.context("it does not say what may change")),
    }
}

async fn two_hosts(stage: &Stage) -> anyhow::Result<[String; 2]> {
    let mut addresses = node_addresses(stage).await?.into_iter();
    match (addresses.next(), addresses.next()) {
        (Some(old), Some(new)) => Ok([old, new]),
        _ => anyhow::bail!("there are fewer than two hosts"),
    }
}

/// The server that the kubeconfig names.
async fn server(cluster: &Cluster<'_>) -> anyhow::Result<String> {
    let clusters = cluster.kubeconfig().await?.clusters.into_iter();
    let mut servers = clusters.filter_map(|cluster| cluster.cluster?.server);
    servers.next().context("no server")
}

/// Joins, kube-proxy and the worker's kubelet look for the guest's API there, and status says so.
async fn everybody_is_told(cluster: &Cluster<'_>, host: &str) -> anyhow::Result<()> {
    let guest = cluster.guest().await?;
    for (namespace, name) in [
        ("kube-public", "cluster-info"),
        ("kube-system", "kube-proxy"),
    ] {
        let map = Api::<ConfigMap>::namespaced(guest.clone(), namespace)
            .get(name)
            .await?;
        let told = map
            .data
            .into_iter()
            .flatten()
            .any(|(_, text)| text.contains(host));
        anyhow::ensure!(told, "{namespace}/{name} does not name {host}");
    }
    let machines = cluster.vms().await?.into_keys();
    let workers = machines.filter(|name| name.contains("-general-"));
    for worker in workers.filter(|_| cluster.stage.infra().is_ok()) {
        let look = ["grep", "server:", "/etc/kubernetes/kubelet.conf"];
        let told = cluster
            .stage
            .on_console(cluster.target(&worker), &look)
            .await?;
        anyhow::ensure!(told.contains(host), "{worker} was told {told}");
    }
    cluster
        .condition_says("EndpointReady", "True", "Settled", &[host])
        .await
}

/// Every machine behind the endpoint has a certificate with this name: one after another is asked.
async fn answers_to(cluster: &Cluster<'_>, name: &str) -> anyhow::Result<()> {
    for _ in 0..12 {
        let mut config = cluster.guest_config().await?;
        config.tls_server_name = Some(name.to_owned());
        config.read_timeout = Some(Duration::from_secs(5));
        Client::try_from(config)?.apiserver_version().await?;
    }
    Ok(())
}
