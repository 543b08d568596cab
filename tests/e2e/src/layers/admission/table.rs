//! Machines that the rules refuse, each with its sentence, and machines that they let pass.

use guestcluster_api::{GuestCluster, labels};
use guestcluster_planner::Wanted;
use guestcluster_planner::render;
use guestcluster_planner::wanted::Settings;
use serde_json::{Value, json};

use crate::cluster::merge;

/// A machine that breaks one rule.
pub struct Refused {
    /// How it breaks it.
    pub what: &'static str,
    /// The object.
    pub document: Value,
    /// The whole sentence of the refusal.
    pub says: String,
}

const NO_HOST: &str = "may share a host with another control-plane machine of its cluster: write a required \
    podAntiAffinity with topologyKey kubernetes.io/hostname and the matchLabels guestcluster.dev/cluster and \
    guestcluster.dev/role of its own; or label it guestcluster.dev/profile: lab";
const NO_CPUS: &str =
    "is a control plane without CPUs of its own: write domain.cpu.dedicatedCpuPlacement: true";
const NO_GUARANTEE: &str = "is a control plane without Guaranteed resources: write the same cpu and memory in \
    domain.resources.requests and in domain.resources.limits";
const TOO_LITTLE: &str = "is a control plane that asks for less memory than its guest has: write at least \
    domain.memory.guest in domain.resources.requests.memory and in domain.resources.limits.memory";
const FORGETS: &str = "is a control plane on a disk that forgets: write a dataVolume or persistentVolumeClaim in \
    place of containerDisk and ephemeral";
const UNREACHED: &str = "is a control plane whose address inside the guest no other machine reaches: write bridge \
    in place of masquerade, or label it guestcluster.dev/stable-address: service if its address inside is that \
    of its Service";
const NO_ROLE: &str = "has an unknown role: write guestcluster.dev/role: control-plane, or worker";

/// What a guest with this specification is to be.
pub fn wanted(spec: &Value) -> anyhow::Result<Wanted> {
    let mut document = json!({
        "apiVersion": "guestcluster.dev/v1alpha1",
        "kind": "GuestCluster",
        "metadata": { "name": "t", "namespace": super::GUESTS, "uid": "uid-of-t" },
        "spec": {
            "version": "v1.36.3",
            "image": { "registry": "registry.example.com/node:v1.36.3" },
        },
    });
    merge(&mut document, &json!({ "spec": spec }));
    let cluster: GuestCluster = serde_json::from_value(document)?;
    Ok(Wanted::parse(&cluster, &Settings::default())?)
}

/// The first machine of a pool, as the operator renders it.
fn rendered(spec: &Value, pool: &str) -> anyhow::Result<Value> {
    let wanted = wanted(spec)?;
    let pool = wanted
        .pool(pool)
        .ok_or_else(|| anyhow::anyhow!("no pool {pool}"))?;
    let machine = format!("t-{}-1", pool.name);
    let mut body = render::vm(&wanted, pool, (&machine, None)).body;
    // Its owner does not exist here.
    json_patch::merge(
        &mut body,
        &json!({ "metadata": { "namespace": null, "ownerReferences": null } }),
    );
    Ok(body)
}

/// A control-plane machine as it is rendered, with a merge patch (RFC 7396).
pub fn changed(patch: &Value) -> anyhow::Result<Value> {
    let mut machine = rendered(&json!({}), "cp")?;
    json_patch::merge(&mut machine, patch);
    Ok(machine)
}

/// The same for an instance of such a machine.
pub fn instance(patch: &Value) -> anyhow::Result<Value> {
    let machine = changed(&json!({}))?;
    let template = &machine["spec"]["template"];
    let mut instance = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "t-cp-1", "labels": template["metadata"]["labels"] },
        "spec": template["spec"],
    });
    json_patch::merge(&mut instance, patch);
    Ok(instance)
}

fn of_spec(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}

fn of_labels(here: &Value, in_template: &Value) -> Value {
    json!({
        "metadata": { "labels": here },
        "spec": { "template": { "metadata": { "labels": in_template } } },
    })
}

fn resources(requests: &Value, limits: &Value) -> Value {
    of_spec(&json!({ "domain": { "resources": { "requests": requests, "limits": limits } } }))
}

/// A required rule with these members over the usual ones.
fn apart(term: &Value) -> Value {
    let mut whole = json!({
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": { "matchLabels": { labels::CLUSTER: "t", labels::ROLE: "control-plane" } },
    });
    json_patch::merge(&mut whole, term);
    let rules = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [whole] });
    of_spec(&json!({ "affinity": { "podAntiAffinity": rules } }))
}

fn selecting(own: &Value) -> Value {
    apart(&json!({ "labelSelector": { "matchLabels": own } }))
}

fn on_root(volume: &Value) -> Value {
    of_spec(&json!({ "volumes": [volume] }))
}

fn masquerade() -> Value {
    let interface = json!({ "name": "default", "masquerade": {}, "model": "virtio" });
    of_spec(&json!({ "domain": { "devices": { "interfaces": [interface] } } }))
}

fn unlabelled(keys: &str) -> String {
    format!(
        "belongs to no guest: write {keys} in metadata.labels and with the same values in \
         spec.template.metadata.labels"
    )
}

/// What is refused: each row breaks one rule.
#[allow(clippy::too_many_lines, reason = "a table, one row after another")]
pub fn refused() -> anyhow::Result<Vec<Refused>> {
    let none = json!({});
    let no_role = json!({ labels::ROLE: null });
    let etcd = json!({ labels::ROLE: "etcd" });
    let container_disk =
        json!({ "name": "root", "containerDisk": { "image": "registry.example.com/os:1" } });
    let ephemeral =
        json!({ "name": "root", "ephemeral": { "persistentVolumeClaim": { "claimName": "os" } } });
    let rows = [
        (
            "no tenant",
            of_labels(&json!({ labels::TENANT: null }), &none),
            unlabelled(labels::TENANT),
        ),
        (
            "an empty cluster",
            of_labels(
                &json!({ labels::CLUSTER: "" }),
                &json!({ labels::CLUSTER: "" }),
            ),
            unlabelled(labels::CLUSTER),
        ),
        (
            "no role",
            of_labels(&no_role, &no_role),
            unlabelled(labels::ROLE),
        ),
        (
            "no tenant in the template",
            of_labels(&none, &json!({ labels::TENANT: null })),
            unlabelled(labels::TENANT),
        ),
        (
            "no labels in the template",
            json!({ "spec": { "template": { "metadata": null } } }),
            unlabelled("guestcluster.dev/tenant, guestcluster.dev/cluster, guestcluster.dev/role"),
        ),
        (
            "a template of another role",
            of_labels(&json!({ labels::ROLE: "worker" }), &none),
            unlabelled(labels::ROLE),
        ),
        (
            "an unknown role",
            of_labels(&etcd, &etcd),
            NO_ROLE.to_owned(),
        ),
        (
            "no anti-affinity",
            of_spec(&json!({ "affinity": null })),
            NO_HOST.to_owned(),
        ),
        (
            "anti-affinity of zones",
            apart(&json!({ "topologyKey": "topology.kubernetes.io/zone" })),
            NO_HOST.to_owned(),
        ),
        (
            "anti-affinity to another cluster",
            selecting(&json!({ labels::CLUSTER: "u" })),
            NO_HOST.to_owned(),
        ),
        (
            "anti-affinity to workers",
            selecting(&json!({ labels::ROLE: "worker" })),
            NO_HOST.to_owned(),
        ),
        (
            "anti-affinity to itself alone",
            selecting(&json!({ labels::MACHINE: "t-cp-1" })),
            NO_HOST.to_owned(),
        ),
        (
            "anti-affinity in another namespace",
            apart(&json!({ "namespaces": ["elsewhere"] })),
            NO_HOST.to_owned(),
        ),
        (
            "shared CPUs",
            of_spec(&json!({ "domain": { "cpu": { "dedicatedCpuPlacement": false } } })),
            NO_CPUS.to_owned(),
        ),
        (
            "no limits",
            resources(&none, &Value::Null),
            NO_GUARANTEE.to_owned(),
        ),
        (
            "a limit above the request",
            resources(&none, &json!({ "memory": "64Gi" })),
            NO_GUARANTEE.to_owned(),
        ),
        (
            "less memory than the guest's",
            resources(&json!({ "memory": "1Gi" }), &json!({ "memory": "1Gi" })),
            TOO_LITTLE.to_owned(),
        ),
        (
            "a container disk",
            on_root(&container_disk),
            FORGETS.to_owned(),
        ),
        ("an ephemeral disk", on_root(&ephemeral), FORGETS.to_owned()),
        ("masquerade", masquerade(), UNREACHED.to_owned()),
    ];
    let mut all = Vec::new();
    for (what, patch, says) in rows {
        all.push(Refused {
            what,
            document: changed(&patch)?,
            says: format!("VirtualMachine t-cp-1 {says}"),
        });
    }
    all.push(Refused {
        what: "an instance by hand without anti-affinity",
        document: instance(&json!({ "spec": { "affinity": null } }))?,
        says: format!("VirtualMachineInstance t-cp-1 {NO_HOST}"),
    });
    Ok(all)
}

/// What passes: all that the operator renders, and what a person may write.
pub fn accepted() -> anyhow::Result<Vec<(&'static str, Value)>> {
    let machine = |machine: Value| json!({ "controlPlane": { "machine": machine } });
    let size = |more: Value| {
        let mut machine = json!({ "cpu": 4, "memory": "8Gi" });
        merge(&mut machine, &more);
        machine
    };
    let worker = json!({ "workers": [{ "name": "general", "replicas": 1 }] });
    let mut lab = json!({ "profile": "Lab", "controlPlane": { "replicas": 1 } });
    let lab_alone = rendered(&lab, "cp")?;
    lab["topology"] = json!("Converged");
    let stable = json!({ labels::STABLE_ADDRESS: "service" });
    let mut masked = masquerade();
    merge(&mut masked, &of_labels(&stable, &stable));
    let memory = json!({ "memory": "8192Mi" });
    let large = rendered(&machine(size(json!({}))), "cp")?;
    let mut same = large.clone();
    json_patch::merge(&mut same, &resources(&memory, &memory));
    let mut loose = rendered(&worker, "general")?;
    json_patch::merge(&mut loose, &masquerade());
    json_patch::merge(&mut loose, &resources(&json!({}), &Value::Null));
    Ok(vec![
        ("a control plane", changed(&json!({}))?),
        ("a worker", rendered(&worker, "general")?),
        ("a lab", lab_alone),
        ("a converged lab", rendered(&lab, "cp")?),
        (
            "a converged control plane",
            rendered(&json!({ "topology": "Converged" }), "cp")?,
        ),
        (
            "a disk for etcd",
            rendered(
                &machine(size(json!({ "etcdDisk": { "size": "10Gi" } }))),
                "cp",
            )?,
        ),
        (
            "huge pages",
            rendered(&machine(size(json!({ "hugepages": "1Gi" }))), "cp")?,
        ),
        ("the same memory in other words", same),
        ("masquerade with a Service's address", changed(&masked)?),
        ("a worker that is not pinned to anything", loose),
        ("an instance by hand", instance(&json!({}))?),
    ])
}
