//! One capacity for both layers, as the real programs count it: what a launcher Pod asks of its host, and
//! what the kubelet of a machine offers.

mod shapes;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use guestcluster_bootstrap::{Reservation, Size};
use guestcluster_capacity::{
    InitContainer, Kubelet, PodShape, Quantity, Requests, Threshold, guest_memory, resource,
};
use guestcluster_planner::Wanted;
use guestcluster_planner::wanted::Settings;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Stated;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use shapes::{GPU, Shape};

use crate::cluster::Cluster;
use crate::stage::Stage;
use crate::wait::until;

/// No guest has machines here.
const PLAIN: &str = "sizes";
const GUESTS: &str = "sizes-guests";
/// virt-controller makes a Pod within seconds.
const RENDERED: Duration = Duration::from_secs(60);

/// The requests and limits of the launcher Pods that virt-controller makes equal the model of them to the
/// byte. Nothing of it starts: no host has the label that is asked for.
pub async fn launcher_pods_ask_for_what_is_counted(stage: &Stage) -> anyhow::Result<()> {
    // Devices need leave, which is not taken on a cluster of others.
    let devices = stage.infra().is_ok();
    let shapes = shapes::all(devices)?;
    if devices {
        permit(stage, &json!({ "pciHostDevices": [{
            "pciVendorSelector": "10DE:1EB8", "resourceName": GPU, "externalResourceProvider": true,
        }]}))
        .await?;
    }
    let compared = are_as_counted(stage, &shapes).await;
    stage
        .kubectl(&[
            "delete",
            "namespace",
            PLAIN,
            "--wait=false",
            "--ignore-not-found",
        ])
        .await?;
    if devices {
        permit(stage, &json!(null)).await?;
    }
    compared
}

async fn permit(stage: &Stage, devices: &serde_json::Value) -> anyhow::Result<()> {
    let patch = json!({ "spec": { "configuration": { "permittedHostDevices": devices } } });
    let arguments = [
        "-n",
        "kubevirt",
        "patch",
        "kubevirt",
        "kubevirt",
        "--type=merge",
        "-p",
    ];
    let patch = patch.to_string();
    let arguments = [&arguments[..], &[&patch]].concat();
    stage.kubectl(&arguments).await.map(drop)
}

async fn are_as_counted(stage: &Stage, shapes: &[Shape]) -> anyhow::Result<()> {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": PLAIN } });
    let apply = ["apply", "-f", "-"];
    stage.kubectl_with(&apply, &namespace.to_string()).await?;
    for shape in shapes {
        // The webhooks learn of a permitted device a moment after it is written.
        until(&format!("{} is accepted", shape.name), RENDERED, || async {
            let arguments = ["-n", PLAIN, "apply", "-f", "-"];
            let document = shape.document.to_string();
            stage.kubectl_with(&arguments, &document).await.map(Some)
        })
        .await?;
    }
    let pods = Api::<Pod>::namespaced(stage.client(), PLAIN);
    let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
    let pods = until("every launcher Pod is made", RENDERED, || async {
        let pods = pods.list(&launchers).await?.items;
        let pods = pods.into_iter().filter_map(|pod| {
            let machine = pod.annotations().get("kubevirt.io/domain")?.clone();
            Some((machine, pod))
        });
        let pods = pods.collect::<BTreeMap<_, _>>();
        let missing = shapes.iter().find(|shape| !pods.contains_key(&shape.name));
        anyhow::ensure!(missing.is_none(), "{:?} has none", missing.map(|s| &s.name));
        Ok(Some(pods))
    })
    .await?;
    let mut faults = Vec::new();
    for shape in shapes {
        let (requests, limits) = held(&pods[&shape.name])?;
        let mut bound = shape.requests.clone();
        // A Pod has no limit of Pods, and KubeVirt sets none of its files.
        for unbound in [resource::PODS, resource::EPHEMERAL_STORAGE] {
            bound.take(&Requests::new().with(unbound, bound.of(unbound)));
        }
        for (what, seen, counted) in [
            ("requests", requests, &shape.requests),
            ("has limits", limits, &bound),
        ] {
            if seen != nonzero(counted) {
                faults.push(format!(
                    "{} {what} {seen:?}, counted {counted:?}",
                    shape.name
                ));
            }
        }
    }
    anyhow::ensure!(faults.is_empty(), "{faults:#?}");
    println!("  {} launcher Pods are as counted", shapes.len());
    Ok(())
}

fn nonzero(requests: &Requests) -> Requests {
    let amounts = requests.iter();
    amounts
        .filter(|(_, amount)| *amount > Quantity::default())
        .collect()
}

type Amounts = BTreeMap<String, Stated>;

fn read(amounts: Option<&Amounts>) -> anyhow::Result<Requests> {
    let amounts = amounts.into_iter().flatten();
    // A host offers a thousand of each of KubeVirt's own devices: they are not counted.
    let counted = amounts.filter(|(name, _)| !name.starts_with("devices.kubevirt.io/"));
    counted
        .map(|(name, amount)| Ok((name, amount.0.parse()?)))
        .collect()
}

/// What a Pod requests and what its limits are, each summed up as the scheduler does.
fn held(pod: &Pod) -> anyhow::Result<(Requests, Requests)> {
    let requests = summed(pod, |container| {
        container.resources.as_ref()?.requests.as_ref()
    })?;
    let limits = summed(pod, |container| {
        container.resources.as_ref()?.limits.as_ref()
    })?;
    let limits = limits.with(resource::PODS, Quantity::default());
    Ok((nonzero(&requests), nonzero(&limits)))
}

fn summed(pod: &Pod, part: fn(&Container) -> Option<&Amounts>) -> anyhow::Result<Requests> {
    let spec = pod.spec.as_ref().context("no spec")?;
    let init = spec.init_containers.iter().flatten().map(|container| {
        Ok(InitContainer {
            requests: read(part(container))?,
            stays: container.restart_policy.as_deref() == Some("Always"),
        })
    });
    let containers = spec.containers.iter();
    let shape = PodShape {
        containers: containers
            .map(|container| read(part(container)))
            .collect::<anyhow::Result<_>>()?,
        init: init.collect::<anyhow::Result<_>>()?,
        whole: Requests::new(),
        overhead: read(spec.overhead.as_ref())?,
    };
    Ok(shape.requests())
}

/// What each Node of a guest offers is what its kubelet finds, less what it was told to keep; and what it
/// finds lies within the bounds for its machine's size. With a control plane of its own and without.
pub async fn guests_offer_what_is_counted(stage: &Stage) -> anyhow::Result<()> {
    let dedicated = Cluster::new(stage, GUESTS, "dedicated");
    let converged = Cluster::new(stage, GUESTS, "converged");
    let one = json!({ "controlPlane": { "replicas": 1 } });
    dedicated.apply(1, &one).await?;
    let lab = json!({
        "topology": "Converged", "profile": "Lab", "workers": [],
        "controlPlane": { "replicas": 1 },
    });
    converged.apply(0, &lab).await?;
    dedicated.is_whole_with(1, 1).await?;
    converged.is_whole_with(1, 0).await?;
    let mut faults = Vec::new();
    for (cluster, is_converged) in [(&dedicated, false), (&converged, true)] {
        faults.extend(offers_what_is_counted(cluster, is_converged).await?);
    }
    let delete = ["-n", GUESTS, "delete", "gc", "--all", "--timeout=180s"];
    stage.kubectl(&delete).await?;
    anyhow::ensure!(faults.is_empty(), "{faults:#?}");
    Ok(())
}

async fn offers_what_is_counted(
    cluster: &Cluster<'_>,
    is_converged: bool,
) -> anyhow::Result<Vec<String>> {
    let wanted = Wanted::parse(&cluster.get().await?, &Settings::default())?;
    let mut faults = Vec::new();
    for (name, node) in cluster.nodes().await? {
        let of_pool = |pool: &&guestcluster_planner::wanted::Pool| {
            name.starts_with(&format!("{}-{}-", cluster.name, pool.name))
        };
        let pool = wanted.pools.iter().find(of_pool);
        let machine = &pool
            .with_context(|| format!("{name} is of no pool"))?
            .machine;
        let cpus = u32::try_from(machine.cpu)?;
        let memory: Quantity = machine.memory.parse()?;
        let kubelet = if is_converged {
            let memory = u64::try_from(memory.ceil())?;
            told(Reservation::of(Size { cpus, memory }))
        } else {
            Kubelet::default()
        };
        faults.extend(judge(&name, &node, &kubelet, (cpus, memory))?);
    }
    Ok(faults)
}

/// What our first-boot document has the kubelet of a converged machine keep.
fn told(reservation: Reservation) -> Kubelet {
    let mebibytes = |number: u64| Quantity::units(number << 20);
    Kubelet {
        kube_reserved: Requests::new()
            .with(
                "cpu",
                Quantity::from_milli(reservation.system.millicpu.into()),
            )
            .with("memory", mebibytes(reservation.system.mebibytes)),
        memory_available: Some(Threshold::Amount(mebibytes(reservation.eviction))),
        ..Kubelet::default()
    }
}

fn judge(
    name: &str,
    node: &Node,
    kubelet: &Kubelet,
    (cpus, memory): (u32, Quantity),
) -> anyhow::Result<Vec<String>> {
    let status = node.status.as_ref().context("no status")?;
    let amounts = |amounts: Option<&Amounts>| -> anyhow::Result<BTreeMap<String, Quantity>> {
        let amounts = amounts.into_iter().flatten();
        amounts
            .map(|(name, amount)| Ok((name.clone(), amount.0.parse()?)))
            .collect()
    };
    let capacity = amounts(status.capacity.as_ref())?;
    let offered = amounts(status.allocatable.as_ref())?;
    let counted = kubelet.allocatable(&capacity);
    println!("  {name} offers {offered:?}");
    let mut faults = Vec::new();
    if offered != counted {
        faults.push(format!("{name} offers {offered:?}, counted {counted:?}"));
    }
    let found = |resource: &str| capacity.get(resource).copied().unwrap_or_default();
    if found("cpu") != Quantity::units(cpus.into()) {
        faults.push(format!("{name} finds {:?} of {cpus} CPUs", found("cpu")));
    }
    let bounds = guest_memory(memory);
    if !bounds.contains(&found("memory")) {
        faults.push(format!(
            "{name} finds {:?}, not {bounds:?}",
            found("memory")
        ));
    }
    Ok(faults)
}
