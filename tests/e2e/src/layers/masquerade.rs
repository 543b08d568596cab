//! A guest whose machines can live-migrate: behind masquerade, on disks that several hosts can have.

use std::time::Duration;

use anyhow::Context as _;
use guestcluster_api::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::stage::Stage;
use crate::wait::until;

const NAMESPACE: &str = "masquerade";
/// The longest that Pods may take to run and to find each other.
const PODS: Duration = Duration::from_secs(120);

/// One control-plane machine and one worker, each behind its own Service's address: kubelets answer
/// there, Pods of both Nodes reach each other through the tunnel, and KubeVirt holds that both machines
/// can move.
pub async fn a_guest_behind_masquerade_serves(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, NAMESPACE, "mobile");
    cluster.apply(0, &mobile(1)).await?;
    cluster.is_whole_with(1, 1).await?;
    nodes_go_by_their_services(&cluster).await?;
    pods_reach_each_other(&cluster).await?;
    cluster
        .condition("LiveMigratable", "True", "Migratable")
        .await?;
    let arguments = ["-n", NAMESPACE, "delete", "gc", "--all", "--timeout=180s"];
    stage.kubectl(&arguments).await.map(drop)
}

/// A guest of so many control-plane machines and one worker, all of which can live-migrate.
pub(super) fn mobile(control_plane: usize) -> Value {
    let shared =
        json!({ "cpu": 2, "memory": "4Gi", "rootDisk": { "accessMode": "ReadWriteMany" } });
    json!({
        "network": { "machine": { "binding": "Masquerade" } },
        "controlPlane": { "replicas": control_plane, "machine": shared },
        "workers": [{ "name": "general", "replicas": 1, "machine": shared }],
    })
}

/// The InternalIP of each Node is the address of its machine's Service, and launcher Pods say so.
async fn nodes_go_by_their_services(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    for (name, node) in cluster.nodes().await? {
        let path = "jsonpath={.spec.clusterIP}";
        let arguments = ["-n", NAMESPACE, "get", "service", &name, "-o", path];
        let service = cluster.stage.kubectl(&arguments).await?;
        let addresses = node.status.and_then(|status| status.addresses);
        let mut addresses = addresses.unwrap_or_default().into_iter();
        let internal = addresses.find(|address| address.type_ == "InternalIP");
        let internal = internal.map(|address| address.address);
        anyhow::ensure!(
            internal.as_ref() == Some(&service),
            "{name} has {internal:?}, its Service {service}"
        );
    }
    for (machine, pod) in cluster.launchers().await? {
        let labels = pod.metadata.labels.unwrap_or_default();
        let label = labels.get(labels::STABLE_ADDRESS);
        anyhow::ensure!(
            label.is_some_and(|value| value == labels::STABLE_ADDRESS_SERVICE),
            "{machine} is labelled {label:?}"
        );
    }
    Ok(())
}

/// A Pod on each Node shows its log, and answers from the other Node.
async fn pods_reach_each_other(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let guest = cluster.guest().await?;
    let request = http::Request::patch(
        "/apis/apps/v1/namespaces/default/daemonsets/hello?fieldManager=e2e&force=true",
    )
    .header("Content-Type", "application/apply-patch+yaml")
    .body(serde_json::to_vec(&daemon_set())?)?;
    guest.request::<Value>(request).await?;
    let pods = Api::<Pod>::namespaced(guest.clone(), "default");
    let of_set = ListParams::default().labels("app=hello");
    until("a Pod runs on each Node", PODS, || async {
        let found = pods.list(&of_set).await?.items;
        let is_on = |pod: &&Pod| pod.status.as_ref().is_some_and(|s| s.pod_ip.is_some());
        Ok((found.iter().filter(is_on).count() == 2).then_some(()))
    })
    .await?;
    for pod in pods.list(&of_set).await?.items {
        let name = pod.metadata.name.context("no name")?;
        let address = pod.status.and_then(|status| status.pod_ip);
        let url = format!("http://{}:8080/", address.context("no address")?);
        shows_its_log(&guest, &name).await?;
        for machine in cluster.vms().await?.into_keys() {
            let what = format!("{name} answers on {machine}");
            until(&what, PODS, || async {
                let argv = ["curl", "--silent", "--fail", "--max-time", "5", &*url];
                let target = cluster.target(&machine);
                let answer = cluster.stage.on_console(target, &argv).await?;
                Ok(answer.contains("hello").then_some(()))
            })
            .await?;
        }
    }
    Ok(())
}

/// The API server finds the kubelet.
async fn shows_its_log(guest: &Client, pod: &str) -> anyhow::Result<()> {
    until(&format!("{pod} shows its log"), PODS, || async {
        let path = format!("/api/v1/namespaces/default/pods/{pod}/log");
        let request = http::Request::get(path).body(Vec::new())?;
        let log = guest.request_text(request).await?;
        Ok(log.contains("serving").then_some(()))
    })
    .await
}

fn daemon_set() -> Value {
    let labels = json!({ "app": "hello" });
    let serve = "echo serving; echo hello > /tmp/index.html; exec httpd -f -p 8080 -h /tmp";
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "hello" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{
                        "name": "hello",
                        "image": "registry.local/busybox:1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/sh", "-c", serve],
                    }],
                },
            },
        },
    })
}
