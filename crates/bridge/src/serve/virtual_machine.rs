//! The virtual machine of a KubevirtMachine: what its user wrote, with what every one has.

use std::collections::BTreeMap;

use guestcluster_api::labels::{self, Role, TENANT, ZONE};
use serde_json::{Map, Value, json};

use super::endpoint::API_PORT;
use super::seen::{Machine, Seen};
use crate::capi;

/// Name of the volume with the first-boot document. It comes last, so that disks keep their places.
const USER_DATA_VOLUME: &str = "cloudinitvolume";
/// Topology key of single hosts.
const HOST: &str = "kubernetes.io/hostname";

/// Annotation in a machine's template: `Guaranteed` reserves all of its memory and whole processors.
pub const RESOURCE_POLICY: &str = "guestcluster.dev/resource-policy";
/// Value of [`RESOURCE_POLICY`].
pub const GUARANTEED: &str = "Guaranteed";
/// Annotation in a machine's template: `Preferred` lets control-plane machines share a host where
/// there are too few.
pub const ANTI_AFFINITY: &str = "guestcluster.dev/control-plane-anti-affinity";
/// Value of [`ANTI_AFFINITY`].
pub const PREFERRED: &str = "Preferred";

/// Labels by which all machines of one role of a Cluster are found.
pub fn role_selector(seen: &Seen, role: Role) -> BTreeMap<String, String> {
    [
        (capi::ROLE, role.as_str()),
        (capi::CLUSTER_NAME, seen.name.as_str()),
        (capi::MACHINE_NAMESPACE, seen.namespace.as_str()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// The VirtualMachine to be made.
pub fn render(seen: &Seen, machine: &Machine, user_data: &str) -> Value {
    let template = &machine.object.spec.virtual_machine_template;
    let meta = template.metadata.clone().unwrap_or_default();
    let labels = all_labels(seen, machine, meta.labels.unwrap_or_default());
    let annotations = meta.annotations.unwrap_or_default();
    let mut spec = template.spec.clone();
    name_disks(&mut spec, machine.name());
    let inner = object(&mut spec["template"]);
    let inner_meta = object(inner.entry("metadata").or_insert(Value::Null));
    let inner_labels = object(inner_meta.entry("labels").or_insert(Value::Null));
    for (key, value) in &labels {
        inner_labels.insert(key.clone(), json!(value));
    }
    let body = inner.entry("spec").or_insert(Value::Null);
    attach_user_data(body, user_data);
    if machine.is_control_plane() {
        keep_apart(body, seen, annotations.get(ANTI_AFFINITY));
        object(body).entry("readinessProbe").or_insert_with(answers);
    }
    if let Some(zone) = failure_domain(machine) {
        bind_to_zone(body, zone);
    }
    if annotations.get(RESOURCE_POLICY).map(String::as_str) == Some(GUARANTEED) {
        guarantee(body);
    }
    let mut metadata = json!({
        "name": machine.name(),
        "namespace": machine.vm_namespace(),
        "labels": labels,
    });
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": metadata,
        "spec": spec,
    })
}

fn all_labels(
    seen: &Seen,
    machine: &Machine,
    mut all: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let role = if machine.is_control_plane() {
        Role::ControlPlane
    } else {
        Role::Worker
    };
    let name = machine.name().to_owned();
    all.extend(role_selector(seen, role));
    // The tenant is who owns the namespace, and the role is told in our own words as well, so that rules
    // for the machines of all guests find them.
    all.extend([
        (TENANT.to_owned(), seen.namespace.clone()),
        (labels::ROLE.to_owned(), role.as_str().to_owned()),
        ("kubevirt.io/vm".to_owned(), name.clone()),
        ("name".to_owned(), name.clone()),
        (capi::MACHINE_NAME.to_owned(), name),
    ]);
    all
}

/// The zone that Cluster API chose for a machine.
fn failure_domain(machine: &Machine) -> Option<&str> {
    let owner = machine.owner.as_ref()?;
    owner
        .spec
        .failure_domain
        .as_deref()
        .filter(|zone| !zone.is_empty())
}

/// Disks are named after their machine, so that the machines of a pool do not share them.
fn name_disks(spec: &mut Value, machine: &str) {
    let prefixed = |name: &str| format!("{machine}-{name}");
    let mut renamed = Vec::new();
    for disk in list(&mut spec["dataVolumeTemplates"]) {
        let name = disk.pointer_mut("/metadata/name");
        if let Some(Value::String(name)) = name {
            renamed.push(name.clone());
            *name = prefixed(name);
        }
    }
    if renamed.is_empty() {
        object(spec).remove("dataVolumeTemplates");
    }
    for volume in volumes(spec) {
        for path in ["/dataVolume/name", "/persistentVolumeClaim/claimName"] {
            if let Some(Value::String(name)) = volume.pointer_mut(path)
                && renamed.contains(name)
            {
                *name = prefixed(name);
            }
        }
    }
}

fn volumes(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    let volumes = spec.pointer_mut("/template/spec/volumes");
    volumes.and_then(Value::as_array_mut).into_iter().flatten()
}

fn attach_user_data(body: &mut Value, secret: &str) {
    let body = object(body);
    let volume = json!({
        "name": USER_DATA_VOLUME,
        "cloudInitConfigDrive": { "secretRef": { "name": secret } },
    });
    list(body.entry("volumes").or_insert(Value::Null)).push(volume);
    let domain = object(body.entry("domain").or_insert(Value::Null));
    let devices = object(domain.entry("devices").or_insert(Value::Null));
    let disk = json!({ "name": USER_DATA_VOLUME, "disk": { "bus": "virtio" } });
    list(devices.entry("disks").or_insert(Value::Null)).push(disk);
}

/// No two control-plane machines of a Cluster on one host, unless their user says that they may.
fn keep_apart(body: &mut Value, seen: &Seen, wish: Option<&String>) {
    let term = json!({
        "topologyKey": HOST,
        "labelSelector": { "matchLabels": role_selector(seen, Role::ControlPlane) },
    });
    let affinity = object(object(body).entry("affinity").or_insert(Value::Null));
    let apart = object(affinity.entry("podAntiAffinity").or_insert(Value::Null));
    if wish.map(String::as_str) == Some(PREFERRED) {
        let terms = apart.entry("preferredDuringSchedulingIgnoredDuringExecution");
        list(terms.or_insert(Value::Null)).push(json!({ "weight": 100, "podAffinityTerm": term }));
    } else {
        let terms = apart.entry("requiredDuringSchedulingIgnoredDuringExecution");
        list(terms.or_insert(Value::Null)).push(term);
    }
}

/// A machine is behind the endpoint once something listens at the port of its API: without a probe of
/// its user's own it would be from the moment that it is switched on, and half of what a joining
/// machine asks would be refused. Servers that ask everybody who they are answer no anonymous question,
/// so none is asked.
fn answers() -> Value {
    json!({
        "tcpSocket": { "port": API_PORT },
        "periodSeconds": 2,
        "timeoutSeconds": 2,
        "failureThreshold": 2,
        "successThreshold": 1,
    })
}

/// Terms of a node selector are alternatives: each of them gets the zone.
fn bind_to_zone(body: &mut Value, zone: &str) {
    let wanted = json!({ "key": ZONE, "operator": "In", "values": [zone] });
    let affinity = object(object(body).entry("affinity").or_insert(Value::Null));
    let nodes = object(affinity.entry("nodeAffinity").or_insert(Value::Null));
    let required = nodes.entry("requiredDuringSchedulingIgnoredDuringExecution");
    let terms = object(required.or_insert(Value::Null)).entry("nodeSelectorTerms");
    let terms = list(terms.or_insert(Value::Null));
    if terms.is_empty() {
        terms.push(json!({}));
    }
    for term in terms {
        list(
            object(term)
                .entry("matchExpressions")
                .or_insert(Value::Null),
        )
        .push(wanted.clone());
    }
}

/// Whole processors and all of the memory: KubeVirt would otherwise ask for a tenth of the former.
fn guarantee(body: &mut Value) {
    let capacity = super::capacity::of_domain(&body["domain"]);
    let (Some(cpu), Some(memory)) = (capacity.get("cpu"), capacity.get("memory")) else {
        return;
    };
    let whole = json!({ "cpu": cpu, "memory": memory });
    let domain = object(&mut body["domain"]);
    object(domain.entry("cpu").or_insert(Value::Null))
        .insert("dedicatedCpuPlacement".to_owned(), json!(true));
    let resources = object(domain.entry("resources").or_insert(Value::Null));
    for side in ["requests", "limits"] {
        let amounts = object(resources.entry(side).or_insert(Value::Null));
        amounts.extend(object(&mut whole.clone()).clone());
    }
}

/// A JSON object in this place, made if there is none.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

/// A JSON list in this place, made if there is none.
fn list(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = json!([]);
    }
    match value {
        Value::Array(list) => list,
        _ => unreachable!("it was made a list above"),
    }
}
