//! The ways to reach a guest other than its own load balancer.

use std::time::Duration;

use anyhow::Context as _;
use guestcluster_api::names;
use guestcluster_infra::faults::Fault;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::stage::Stage;
use crate::wait::until;

const NAMESPACE: &str = "endpoints";

/// A ClusterIP, a node port, and a balancer of the user's own, each for a cluster of one machine.
/// One of them is called as a cluster in another namespace is, and keeps etcd on a disk of its own.
/// While they are made, the infrastructure's API server goes away for some seconds.
pub async fn endpoints_of_every_type_serve(stage: &Stage) -> anyhow::Result<()> {
    let inner = Cluster::new(stage, NAMESPACE, super::PROD);
    let ported = Cluster::new(stage, NAMESPACE, "ported");
    let external = Cluster::new(stage, NAMESPACE, "balanced");
    inner.namespace().await?;
    let nodes = node_addresses(stage).await?;
    let node = nodes.into_iter().next().context("no host has an address")?;
    let balancer = own_balancer(&external).await?;
    let etcd = json!({ "cpu": 2, "memory": "4Gi", "etcdDisk": { "size": "2Gi" } });
    make(&inner, json!({ "type": "ClusterIP" }), etcd).await?;
    make(
        &ported,
        json!({ "type": "NodePort", "host": node, "port": 31443 }),
        small(),
    )
    .await?;
    make(
        &external,
        json!({ "type": "External", "host": balancer }),
        small(),
    )
    .await?;
    interrupt(stage, &inner).await?;
    let clusters = [&inner, &ported, &external];
    for cluster in clusters {
        cluster.ready().await?;
        cluster.nodes_ready(1).await?;
        let machines: Vec<_> = cluster.vms().await?.into_keys().collect();
        anyhow::ensure!(
            machines == [names::machine(cluster.name, "cp", 1)],
            "{machines:?}"
        );
    }
    let address = cluster_ip(&inner).await?;
    serves_at(&inner, &format!("https://{address}:6443")).await?;
    serves_at(&ported, &format!("https://{node}:31443")).await?;
    serves_at(&external, &format!("https://{balancer}:6443")).await?;
    etcd_is_on_its_disk(&inner).await?;
    for cluster in clusters {
        delete(cluster, "--wait=false").await?;
    }
    for cluster in clusters {
        delete(cluster, "--timeout=120s").await?;
    }
    Ok(())
}

fn small() -> Value {
    json!({ "cpu": 2, "memory": "4Gi" })
}

async fn make(cluster: &Cluster<'_>, endpoint: Value, machine: Value) -> anyhow::Result<()> {
    let spec = json!({ "controlPlane": {
        "replicas": 1,
        "endpoint": endpoint,
        "machine": machine,
    }});
    cluster.apply(0, &spec).await
}

async fn delete(cluster: &Cluster<'_>, how: &str) -> anyhow::Result<()> {
    let arguments = ["-n", NAMESPACE, "delete", "gc", cluster.name, how];
    let arguments = [&arguments[..], &["--ignore-not-found"]].concat();
    cluster.stage.kubectl(&arguments).await.map(drop)
}

/// The API server is away for some seconds once the first VM exists.
async fn interrupt(stage: &Stage, cluster: &Cluster<'_>) -> anyhow::Result<()> {
    if stage.infra().is_err() {
        return Ok(());
    }
    until("there is a VM", Duration::from_secs(60), || async {
        Ok((!cluster.vms().await?.is_empty()).then_some(()))
    })
    .await?;
    stage.fault(Fault::StopApiServer).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    stage.fault(Fault::StartApiServer).await?;
    until(
        "the API server is back",
        Duration::from_secs(60),
        || async { cluster.get().await.map(Some) },
    )
    .await
    .map(drop)
}

/// Addresses of hosts, behind which node ports are.
pub(crate) async fn node_addresses(stage: &Stage) -> anyhow::Result<Vec<String>> {
    let nodes = Api::<Node>::all(stage.client())
        .list(&ListParams::default())
        .await?;
    let addresses = nodes
        .items
        .into_iter()
        .filter_map(|node| node.status?.addresses);
    let inner = addresses.flatten().filter(|a| a.type_ == "InternalIP");
    Ok(inner.map(|address| address.address).collect())
}

/// A balancer that is not the operator's: here a Service of the user's, before the cluster's
/// control-plane machines.
async fn own_balancer(cluster: &Cluster<'_>) -> anyhow::Result<String> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "own-balancer", "namespace": NAMESPACE },
        "spec": {
            "type": "LoadBalancer",
            "selector": {
                guestcluster_api::labels::CLUSTER: cluster.name,
                guestcluster_api::labels::ROLE: "control-plane",
            },
            "ports": [{ "port": 6443, "targetPort": 6443 }],
        },
    });
    let arguments = ["apply", "-f", "-"];
    let stage = cluster.stage;
    stage.kubectl_with(&arguments, &service.to_string()).await?;
    let services = Api::<Service>::namespaced(stage.client(), NAMESPACE);
    until(
        "the balancer has an address",
        Duration::from_secs(60),
        || async {
            let status = services.get("own-balancer").await?.status;
            let ingress = status.and_then(|status| status.load_balancer?.ingress);
            Ok(ingress.and_then(|ingress| ingress.into_iter().next()?.ip))
        },
    )
    .await
}

async fn cluster_ip(cluster: &Cluster<'_>) -> anyhow::Result<String> {
    let services = Api::<Service>::namespaced(cluster.stage.client(), NAMESPACE);
    let service = services.get(&names::endpoint_service(cluster.name)).await?;
    service
        .spec
        .and_then(|spec| spec.cluster_ip)
        .context("no ClusterIP")
}

/// The kubeconfig that users get names this server, and status does.
async fn serves_at(cluster: &Cluster<'_>, server: &str) -> anyhow::Result<()> {
    let kubeconfig = cluster.kubeconfig().await?;
    let named = kubeconfig
        .clusters
        .into_iter()
        .find_map(|cluster| cluster.cluster?.server)
        .context("no server")?;
    anyhow::ensure!(named == server, "{}: {named}, not {server}", cluster.name);
    let said = [server.trim_start_matches("https://")];
    cluster
        .condition_says("EndpointReady", "True", "Settled", &said)
        .await
}

async fn etcd_is_on_its_disk(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = names::machine(cluster.name, "cp", 1);
    let claims = cluster
        .stage
        .kubectl(&["-n", NAMESPACE, "get", "pvc", "-o", "name"])
        .await?;
    let claim = format!("persistentvolumeclaim/{}", names::etcd_disk(&machine));
    anyhow::ensure!(claims.lines().any(|line| line == claim), "{claims}");
    if cluster.stage.infra().is_err() {
        return Ok(());
    }
    let look = ["stat", "-c", "%m", "/var/lib/etcd/member"];
    let mount = cluster
        .stage
        .on_console(cluster.target(&machine), &look)
        .await?;
    anyhow::ensure!(mount.trim() == "/var/lib/etcd", "etcd lies on {mount}");
    Ok(())
}
