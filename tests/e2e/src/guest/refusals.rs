//! Wrong specifications: refused at admission with a sentence, or told in a condition.

use guestcluster_infra::faults::Fault;
use serde_json::{Value, json};

use crate::cluster::{Cluster, merge};
use crate::stage::Stage;

struct Wrong {
    what: &'static str,
    spec: Value,
    says: &'static str,
}

fn wrong(what: &'static str, spec: Value, says: &'static str) -> Wrong {
    Wrong { what, spec, says }
}

/// What admission refuses, and the words that tell what to write instead.
#[allow(clippy::too_many_lines, reason = "a table, one row after another")]
fn table() -> Vec<Wrong> {
    let machine = |machine: Value| json!({ "controlPlane": { "machine": machine } });
    let endpoint = |endpoint: Value| json!({ "controlPlane": { "endpoint": endpoint } });
    let network = |network: Value| json!({ "network": network });
    let devices =
        |devices: Value| json!({ "workers": [{ "name": "a", "replicas": 1, "devices": devices }] });
    vec![
        wrong(
            "even replicas",
            json!({ "controlPlane": { "replicas": 4 } }),
            "must be 1, 3 or 5",
        ),
        wrong(
            "unknown version",
            json!({ "version": "v1.20.0" }),
            "written like v1.36.3",
        ),
        wrong(
            "version without v",
            json!({ "version": "1.36.3" }),
            "written like v1.36.3",
        ),
        wrong(
            "image without tag",
            json!({ "image": { "registry": "r.example.com/node" } }),
            "needs a registry and a tag or digest",
        ),
        wrong(
            "no image source",
            json!({ "image": { "registry": null } }),
            "exactly one source",
        ),
        wrong(
            "memory 8G1",
            machine(json!({ "memory": "8G1" })),
            "written like 8Gi",
        ),
        wrong(
            "zero CPUs",
            machine(json!({ "cpu": 0 })),
            "whole number from 1 to 256",
        ),
        wrong(
            "fractional CPUs",
            machine(json!({ "cpu": 1.5 })),
            "must be of type integer",
        ),
        wrong(
            "numa without hugepages",
            machine(json!({ "numa": "Passthrough" })),
            "needs hugepages",
        ),
        wrong(
            "ranges overlap",
            network(json!({ "serviceCIDR": "10.200.128.0/20" })),
            "overlap",
        ),
        wrong(
            "no range",
            network(json!({ "podCIDR": "10.200.0.0" })),
            "must be an IPv4 range",
        ),
        wrong(
            "a range that holds what machines behind masquerade see themselves as",
            network(json!({ "podCIDR": "10.0.0.0/16", "machine": { "binding": "Masquerade" } })),
            "without 10.0.2.0/24",
        ),
        wrong(
            "access mode that lets nobody write",
            machine(json!({ "rootDisk": { "accessMode": "ReadOnlyMany" } })),
            "supported values",
        ),
        wrong(
            "external without host",
            endpoint(json!({ "type": "External" })),
            "needs host",
        ),
        wrong(
            "host with scheme",
            endpoint(json!({ "type": "External", "host": "https://a" })),
            "without scheme",
        ),
        wrong(
            "a certificate's name in capitals",
            endpoint(json!({ "certSANs": ["Api.example.com"] })),
            "in small letters",
        ),
        wrong(
            "a certificate's name that is no address",
            endpoint(json!({ "certSANs": ["10.0.0.300"] })),
            "must be IP addresses or DNS names",
        ),
        wrong(
            "class of another type",
            endpoint(json!({ "type": "ClusterIP", "loadBalancerClass": "a/b" })),
            "belong to an endpoint of type LoadBalancer",
        ),
        wrong(
            "pool with dots",
            json!({ "workers": [{ "name": "a.b", "replicas": 1 }] }),
            "lower-case letters",
        ),
        wrong(
            "pool called cp",
            json!({ "workers": [{ "name": "cp", "replicas": 1 }] }),
            "'cp' is the control plane",
        ),
        wrong(
            "etcd disk on workers",
            json!({ "workers": [{ "name": "a", "replicas": 1, "machine": { "cpu": 1, "memory": "2Gi", "etcdDisk": {} } }] }),
            "workers have no etcd",
        ),
        wrong(
            "workers beside converged machines",
            json!({ "topology": "Converged" }),
            "remove workers, or write topology: Dedicated",
        ),
        wrong(
            "lab with three control-plane machines",
            json!({ "profile": "Lab" }),
            "write controlPlane.replicas: 1",
        ),
        wrong(
            "rollout that may do nothing",
            json!({ "workers": [{ "name": "a", "replicas": 1, "rollout": { "maxSurge": 0 } }] }),
            "write maxSurge: 1, or maxUnavailable: 1",
        ),
        wrong(
            "device without domain",
            devices(json!([{ "deviceName": "gpu" }])),
            "written like nvidia.com/GA102GL_A10",
        ),
        wrong(
            "no device",
            devices(json!([{ "deviceName": "nvidia.com/A10", "count": 0 }])),
            "whole number from 1 to 16",
        ),
        wrong(
            "one device twice",
            devices(
                json!([{ "deviceName": "nvidia.com/A10" }, { "deviceName": "nvidia.com/A10" }]),
            ),
            "write count for several of it",
        ),
        wrong(
            "address arguments of etcd",
            json!({ "controlPlane": { "etcd": { "extraArgs": { "name": "x" } } } }),
            "leave these arguments out",
        ),
    ]
}

/// What admission takes, though it stands near to what it refuses.
fn taken() -> Vec<(&'static str, Value)> {
    let shared = json!({ "rootDisk": { "accessMode": "ReadWriteMany" } });
    let masquerade = json!({
        "network": { "machine": { "binding": "Masquerade" } },
        "controlPlane": { "machine": shared },
        "workers": [{ "name": "a", "replicas": 1, "machine": shared }],
    });
    let bridged = json!({ "network": { "podCIDR": "10.0.0.0/16" } });
    vec![
        ("masquerade on shared disks", masquerade),
        ("a range that only masquerade forbids", bridged),
    ]
}

/// Every wrong specification is refused by the API server with words that help.
pub async fn wrong_specs_are_refused_with_a_sentence(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, "refusals", "wrong");
    cluster.namespace().await?;
    let mut faults = Vec::new();
    for wrong in table() {
        let document = cluster.document(1, &wrong.spec)?;
        if let Some(fault) = refused(stage, &document, wrong.says).await {
            faults.push(format!("{}: {fault}", wrong.what));
        }
    }
    for (what, spec) in taken() {
        let document = cluster.document(1, &spec)?;
        let dry = ["apply", "--dry-run=server", "-f", "-"];
        if let Err(error) = stage.kubectl_with(&dry, &document).await {
            faults.push(format!("{what}: {error}"));
        }
    }
    for name in [
        "with.dots",
        "a-name-that-is-far-too-long-to-be-a-host-name",
        "Upper",
    ] {
        let mut document: Value = serde_json::from_str(&cluster.document(1, &json!({}))?)?;
        merge(&mut document, &json!({ "metadata": { "name": name } }));
        let says = if name == "Upper" {
            "lowercase RFC 1123"
        } else {
            "at most 30 lower-case"
        };
        if let Some(fault) = refused(stage, &document.to_string(), says).await {
            faults.push(format!("name {name}: {fault}"));
        }
    }
    anyhow::ensure!(faults.is_empty(), "{faults:#?}");
    Ok(())
}

async fn refused(stage: &Stage, document: &str, says: &str) -> Option<String> {
    match stage
        .kubectl_with(&["apply", "--dry-run=server", "-f", "-"], document)
        .await
    {
        Ok(_) => Some("accepted".to_owned()),
        Err(error) if error.to_string().contains(says) => None,
        Err(error) => Some(format!("does not say {says:?}: {error}")),
    }
}

/// Overlap with the infrastructure, a missing class, an unmarked namespace, too few hosts, an
/// endpoint that never comes: said in a condition, and nothing is made that could not live.
pub async fn what_only_the_cluster_can_tell_becomes_a_condition(
    stage: &Stage,
) -> anyhow::Result<()> {
    accepted_says(
        stage,
        "overlap",
        json!({ "network": { "serviceCIDR": service_range(stage) } }),
        "RangeOverlap",
        "choose another range",
    )
    .await?;
    let class = json!({ "machine": { "cpu": 2, "memory": "4Gi", "rootDisk": { "storageClassName": "nope" } } });
    accepted_says(
        stage,
        "class",
        json!({ "controlPlane": class }),
        "StorageClassNotFound",
        "does not exist",
    )
    .await?;
    unmarked_namespace(stage).await?;
    a_name_that_is_taken(stage).await?;
    five_on_three_hosts(stage).await?;
    endpoint_that_never_comes(stage).await
}

fn service_range(stage: &Stage) -> &'static str {
    // On a real cluster the default of kubeadm and kind.
    if stage.infra().is_ok() {
        guestcluster_infra::addresses::SERVICE_RANGE
    } else {
        "10.96.0.0/16"
    }
}

async fn accepted_says(
    stage: &Stage,
    name: &str,
    spec: Value,
    reason: &str,
    says: &str,
) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, "refusals", name);
    cluster.apply(1, &spec).await?;
    cluster
        .condition_says("Accepted", "False", reason, &[says])
        .await?;
    nothing_was_made(&cluster).await?;
    delete(&cluster).await
}

async fn nothing_was_made(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let vms = cluster.vms().await?;
    anyhow::ensure!(vms.is_empty(), "{:?} were made", vms.keys());
    Ok(())
}

async fn delete(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let arguments = [
        "-n",
        cluster.namespace,
        "delete",
        "gc",
        cluster.name,
        "--timeout=120s",
    ];
    cluster.stage.kubectl(&arguments).await.map(drop)
}

async fn unmarked_namespace(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, "not-for-guests", "lost");
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "not-for-guests" } });
    stage
        .kubectl_with(&["apply", "-f", "-"], &namespace.to_string())
        .await?;
    let document = cluster.document(1, &json!({}))?;
    stage.kubectl_with(&["apply", "-f", "-"], &document).await?;
    let words = ["kubectl label namespace not-for-guests"];
    cluster
        .condition_says("Accepted", "False", "NamespaceNotForGuests", &words)
        .await?;
    nothing_was_made(&cluster).await?;
    delete(&cluster).await
}

/// A Secret of somebody else's has a name that the cluster needs: it is told of, and left alone.
async fn a_name_that_is_taken(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, "refusals", "taken");
    let theirs = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "taken-ca", "namespace": "refusals" },
        "stringData": { "theirs": "stays" },
    });
    let theirs = theirs.to_string();
    stage.kubectl_with(&["apply", "-f", "-"], &theirs).await?;
    cluster.apply(1, &json!({})).await?;
    let words = ["taken-ca is taken by", "remove or rename it"];
    cluster
        .condition_says("Stalled", "True", "NameTaken", &words)
        .await?;
    nothing_was_made(&cluster).await?;
    delete(&cluster).await?;
    let value = "jsonpath={.data.theirs}";
    let stays = ["-n", "refusals", "get", "secret", "taken-ca", "-o", value];
    anyhow::ensure!(stage.kubectl(&stays).await? == "c3RheXM=", "it was changed");
    let arguments = ["-n", "refusals", "delete", "secret", "taken-ca"];
    stage.kubectl(&arguments).await.map(drop)
}

/// Two hosts of five are cordoned: no fourth machine, and each host that does not count is
/// named with its reason.
async fn five_on_three_hosts(stage: &Stage) -> anyhow::Result<()> {
    if stage.infra().is_err() {
        return Ok(());
    }
    let cluster = Cluster::new(stage, "refusals", "five");
    stage.kubectl(&["cordon", "host-4", "host-5"]).await?;
    let applied = cluster
        .apply(0, &json!({ "controlPlane": { "replicas": 5 } }))
        .await;
    let words = ["3 of 5", "host-4 is cordoned"];
    let said = cluster
        .condition_says("PlacementHealthy", "False", "TooFewHosts", &words)
        .await;
    stage.kubectl(&["uncordon", "host-4", "host-5"]).await?;
    applied?;
    said?;
    let vms = cluster.vms().await?;
    anyhow::ensure!(vms.len() <= 3, "{:?}", vms.keys());
    delete(&cluster).await
}

async fn endpoint_that_never_comes(stage: &Stage) -> anyhow::Result<()> {
    if stage.infra().is_err() {
        return Ok(());
    }
    let cluster = Cluster::new(stage, "refusals", "mute");
    stage
        .fault(Fault::MuteLoadBalancer("refusals".to_owned()))
        .await?;
    let applied = cluster.apply(0, &json!({})).await;
    let said = cluster
        .condition_says(
            "EndpointReady",
            "False",
            "EndpointPending",
            &["load balancer"],
        )
        .await;
    stage
        .fault(Fault::UnmuteLoadBalancer("refusals".to_owned()))
        .await?;
    applied?;
    said?;
    delete(&cluster).await
}
