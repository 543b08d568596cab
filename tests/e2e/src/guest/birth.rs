//! From ten lines to a cluster that serves.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use guestcluster_api::{labels, names};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use super::{PROD, TENANT};
use crate::audit::{Mark, Write};
use crate::cluster::{Cluster, is_ready};
use crate::stage::Stage;
use crate::wait::until;

/// Most writes of the operator per 3 + 3 guest until it is Ready.
const WRITES: usize = 60;

/// The ten-line spec becomes a Ready cluster of six Nodes, with few writes and no refused one.
pub async fn three_and_three_become_ready(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let mark = Mark::now(stage);
    cluster.apply(3, &json!({})).await?;
    cluster.ready().await?;
    let nodes = cluster.nodes().await?;
    anyhow::ensure!(
        nodes.len() == 6 && nodes.values().all(is_ready),
        "{:?}",
        nodes.keys()
    );
    for (name, node) in &nodes {
        let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
        anyhow::ensure!(
            provider == Some(format!("kubevirt://{name}")),
            "{name}: {provider:?}"
        );
        let labels = node.metadata.labels.as_ref().context("no labels")?;
        let role = if name.contains("-cp-") {
            "control-plane"
        } else {
            "worker"
        };
        let role = format!("node-role.kubernetes.io/{role}");
        anyhow::ensure!(labels.contains_key(&role), "{name} lacks {role}");
        anyhow::ensure!(
            labels.contains_key(labels::NODE_HOST),
            "{name} does not name its host"
        );
    }
    let Ok(mark) = mark else { return Ok(()) };
    let refused = mark.refused(stage)?;
    anyhow::ensure!(
        refused.is_empty(),
        "refused: {:?}",
        refused.iter().map(Write::line).collect::<Vec<_>>()
    );
    let writes = mark.writes(stage)?;
    println!("  {} writes until Ready", writes.len());
    if writes.len() > WRITES {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for write in &writes {
            *counts.entry(write.line()).or_default() += 1;
        }
        anyhow::bail!("{} writes: {counts:#?}", writes.len());
    }
    Ok(())
}

/// The real scheduler put them apart, and status says where they are.
pub async fn control_planes_stand_on_three_hosts(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let hosts = cluster.control_plane_hosts().await?;
    anyhow::ensure!(hosts.len() == 3, "{hosts:?}");
    let status = cluster.get().await?.status.context("no status")?;
    let said: std::collections::BTreeSet<_> = status
        .control_plane
        .machines
        .iter()
        .filter_map(|m| m.host.clone())
        .collect();
    anyhow::ensure!(said == hosts, "status says {said:?}");
    cluster
        .condition("PlacementHealthy", "True", "Spread")
        .await?;
    cluster.condition("EtcdHealthy", "True", "Settled").await
}

/// QoS class Guaranteed as the rendered Pods show it; the machine's CPUs are whole; labels reach
/// the Pod.
pub async fn launcher_pods_are_guaranteed_with_whole_cpus(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let pods = cluster.launchers().await?;
    anyhow::ensure!(pods.len() == 6, "{:?}", pods.keys());
    for (machine, pod) in pods {
        let qos = pod
            .status
            .as_ref()
            .and_then(|status| status.qos_class.as_deref());
        anyhow::ensure!(qos == Some("Guaranteed"), "{machine}: {qos:?}");
        let containers = pod.spec.context("no spec")?.containers;
        let compute = containers
            .iter()
            .find(|c| c.name == "compute")
            .context("no compute")?;
        let requests = compute.resources.as_ref().and_then(|r| r.requests.as_ref());
        let cpu = requests.and_then(|requests| requests.get("cpu"));
        anyhow::ensure!(
            cpu.is_some_and(|cpu| cpu.0 == "4"),
            "{machine}: {cpu:?} CPUs"
        );
        let labels = pod.metadata.labels.unwrap_or_default();
        for key in [
            labels::TENANT,
            labels::CLUSTER,
            labels::CLUSTER_UID,
            labels::ROLE,
        ] {
            anyhow::ensure!(labels.contains_key(key), "{machine}: no label {key}");
        }
    }
    Ok(())
}

/// First-boot Secrets hold neither keys nor tokens once their machines have joined, and no token is
/// left in the guest.
pub async fn secrets_hold_no_keys_after_join(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let selector = format!(
        "{}={},{}={}",
        labels::CLUSTER,
        PROD,
        labels::SECRET,
        labels::secret_purpose::USER_DATA
    );
    let api = Api::<Secret>::namespaced(stage.client(), TENANT);
    let params = ListParams::default().labels(&selector);
    until(
        "first-boot Secrets are scrubbed",
        Duration::from_secs(30),
        || async {
            let secrets = api.list(&params).await?.items;
            anyhow::ensure!(secrets.len() == 6, "{} Secrets", secrets.len());
            for secret in secrets {
                for value in secret.data.unwrap_or_default().into_values() {
                    let text = String::from_utf8(value.0)?;
                    anyhow::ensure!(
                        !text.contains("PRIVATE KEY") && !text.contains("token"),
                        "keys"
                    );
                }
            }
            Ok(Some(()))
        },
    )
    .await?;
    let guest = Api::<Secret>::namespaced(cluster.guest().await?, "kube-system");
    // The token of kubeadm init, which nobody uses, lapses by itself after a minute.
    let limit = Duration::from_secs(100);
    until("no bootstrap token is left in the guest", limit, || async {
        let tokens = guest.list(&ListParams::default()).await?.items;
        let is_token = |s: &Secret| s.type_.as_deref() == Some("bootstrap.kubernetes.io/token");
        Ok((!tokens.iter().any(is_token)).then_some(()))
    })
    .await
}

/// A tenant to whom both roles are bound manages its clusters and reads their kubeconfig, and
/// neither keys nor machines.
pub async fn a_tenant_reads_its_kubeconfig_and_nothing_else(stage: &Stage) -> anyhow::Result<()> {
    let role = format!("--role={}", names::secrets::kubeconfig(PROD));
    for role in ["--clusterrole=guestcluster-tenant", &role] {
        let name = format!("jane-{}", role.trim_start_matches("--").replace('=', "-"));
        let bind = ["-n", TENANT, "create", "rolebinding", &name, role];
        stage
            .kubectl(&[&bind[..], &["--user=jane"]].concat())
            .await?;
    }
    let ask = |verb: &'static str, what: String| async move {
        let arguments = ["-n", TENANT, "--as=jane", "auth", "can-i", verb, &what];
        // A plain no ends with an error code.
        let answer = stage.kubectl(&arguments).await;
        answer.is_ok_and(|said| said.starts_with("yes"))
    };
    for (verb, what, may) in [
        ("create", "guestclusters".to_owned(), true),
        (
            "get",
            format!("secret/{}", names::secrets::kubeconfig(PROD)),
            true,
        ),
        (
            "update",
            format!("secret/{}", names::secrets::kubeconfig(PROD)),
            false,
        ),
        ("get", format!("secret/{}", names::secrets::ca(PROD)), false),
        ("list", "secrets".to_owned(), false),
        ("get", "virtualmachines".to_owned(), false),
        ("get", "pods".to_owned(), false),
    ] {
        anyhow::ensure!(
            ask(verb, what.clone()).await == may,
            "{verb} {what}: not {may}"
        );
    }
    let bindings = ["-n", TENANT, "delete", "rolebinding", "--all"];
    stage.kubectl(&bindings).await.map(drop)
}

/// A Deployment on all workers answers through its Service: asked through the guest's API, from
/// every machine's console, and by DNS name from a Pod on every worker.
pub async fn a_deployment_answers_through_a_service(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let guest = cluster.guest().await?;
    let jobs = Api::<Job>::namespaced(guest.clone(), "default");
    // A Job of an earlier run cannot be changed.
    if jobs.get_opt("ask").await?.is_some() {
        jobs.delete("ask", &DeleteParams::background()).await?;
        until(
            "the former Job is gone",
            Duration::from_secs(30),
            || async { Ok(jobs.get_opt("ask").await?.is_none().then_some(())) },
        )
        .await?;
    }
    apply(
        &guest,
        "apis/apps/v1/namespaces/default/deployments/hello",
        &deployment(),
    )
    .await?;
    apply(
        &guest,
        "api/v1/namespaces/default/services/hello",
        &service(),
    )
    .await?;
    apply(&guest, "apis/batch/v1/namespaces/default/jobs/ask", &job()).await?;
    until("the Service answers", Duration::from_secs(120), || async {
        let path = "/api/v1/namespaces/default/services/hello:80/proxy/";
        let answer = guest
            .request_text(http::Request::get(path).body(Vec::new())?)
            .await?;
        Ok(answer.contains("hello").then_some(()))
    })
    .await?;
    until(
        "three Pods know the Service's name",
        Duration::from_secs(120),
        || async {
            let status = jobs.get("ask").await?.status.unwrap_or_default();
            Ok((status.succeeded == Some(3)).then_some(()))
        },
    )
    .await?;
    if stage.infra().is_ok() {
        asked_from_consoles(&cluster, &guest).await?;
    }
    Ok(())
}

/// Every machine reaches the Service's address, wherever its Pods are.
async fn asked_from_consoles(cluster: &Cluster<'_>, guest: &kube::Client) -> anyhow::Result<()> {
    let services = Api::<Service>::namespaced(guest.clone(), "default");
    let spec = services.get("hello").await?.spec.context("no spec")?;
    let url = format!("http://{}", spec.cluster_ip.context("no ClusterIP")?);
    for machine in cluster.vms().await?.into_keys() {
        let argv = ["curl", "--silent", "--fail", "--max-time", "5", &url];
        let answer = cluster
            .stage
            .on_console(cluster.target(&machine), &argv)
            .await;
        let answer = answer.with_context(|| format!("on {machine}"))?;
        anyhow::ensure!(answer.contains("hello"), "{machine}: {answer}");
    }
    Ok(())
}

async fn apply(guest: &kube::Client, path: &str, object: &serde_json::Value) -> anyhow::Result<()> {
    let request = http::Request::patch(format!("/{path}?fieldManager=e2e&force=true"))
        .header("Content-Type", "application/apply-patch+yaml")
        .body(serde_json::to_vec(object)?)?;
    guest.request::<serde_json::Value>(request).await?;
    Ok(())
}

fn deployment() -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "hello", "namespace": "default" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "hello" } },
            "template": {
                "metadata": { "labels": { "app": "hello" } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "httpd",
                        "image": "registry.local/busybox:1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/sh", "-c", "echo hello > /tmp/index.html; trap 'exit 0' TERM; httpd -f -p 8080 -h /tmp & wait"],
                    }],
                },
            },
        },
    })
}

fn service() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "hello", "namespace": "default" },
        "spec": { "selector": { "app": "hello" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    })
}

fn job() -> serde_json::Value {
    let ask = "for i in $(seq 60); do \
        nslookup hello.default.svc.cluster.local && exit 0; sleep 1; done; exit 1";
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": "ask", "namespace": "default" },
        "spec": {
            "parallelism": 3, "completions": 3, "backoffLimit": 6,
            "template": {
                "metadata": { "labels": { "app": "ask" } },
                "spec": {
                    "restartPolicy": "Never",
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": { "matchLabels": { "app": "ask" } },
                    }],
                    "containers": [{
                        "name": "nslookup",
                        "image": "registry.local/busybox:1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/sh", "-c", ask],
                    }],
                },
            },
        },
    })
}
