//! Worlds as objects of the API, and what the scheduler makes of them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use guestcluster_capacity::{InitContainer, PodShape, Requests};
use guestcluster_placement::Toleration;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::residents::{RUNTIME, Resident, launcher_shape, overhead};
use crate::worlds::{Metal, Wanted, World};

const NAMESPACE: &str = "default";
/// How long the scheduler may think about all Pods together; seconds are usual.
const DECIDED: Duration = Duration::from_secs(120);
/// What every host of virtual machines offers a thousand of.
const KUBEVIRT_DEVICES: [&str; 3] = ["kvm", "tun", "vhost-net"];

/// Makes hosts, the Pods that are there, and for each host the launcher Pod that asks it.
pub async fn make(client: &Client, worlds: &[World]) {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    create(&accounts, &json!({ "metadata": { "name": "default" } })).await;
    let runtime = json!({
        "metadata": { "name": RUNTIME },
        "handler": RUNTIME,
        "overhead": { "podFixed": amounts(&overhead()) },
    });
    create(&Api::<RuntimeClass>::all(client.clone()), &runtime).await;
    let metals = worlds
        .iter()
        .flat_map(|world| world.metals.iter().map(move |metal| (world, metal)));
    stream::iter(metals)
        .for_each_concurrent(16, |(world, metal)| furnish(client, &world.machine, metal))
        .await;
}

async fn furnish(client: &Client, machine: &Wanted, metal: &Metal) {
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    create(&Api::<Node>::all(client.clone()), &node(metal)).await;
    for (at, resident) in metal.residents.iter().enumerate() {
        let name = format!("{}-{at}", metal.host.name);
        create(&pods, &resident_pod(&name, &metal.host.name, resident)).await;
        if resident.over {
            let failed = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
            let parameters = PatchParams::default();
            let patched = pods.patch_status(&name, &parameters, &failed).await;
            patched.unwrap();
        }
    }
    create(&pods, &probe(machine, &metal.host.name)).await;
}

async fn create<K>(api: &Api<K>, object: &Value)
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object_of_kind = serde_json::from_value(object.clone()).unwrap();
    let made = api.create(&PostParams::default(), &object_of_kind).await;
    made.unwrap_or_else(|error| panic!("{error}: {object:#}"));
}

/// By host: whether its launcher Pod was bound, else the scheduler's reason.
pub async fn verdicts(client: &Client, worlds: &[World]) -> BTreeMap<String, Result<(), String>> {
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let hosts: usize = worlds.iter().map(|world| world.metals.len()).sum();
    let all = async {
        loop {
            let probes = ListParams::default().labels("asks");
            let probes = pods.list(&probes).await.unwrap();
            let verdicts = probes
                .iter()
                .filter_map(verdict)
                .collect::<BTreeMap<_, _>>();
            if verdicts.len() == hosts {
                return verdicts;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(DECIDED, all).await.unwrap()
}

fn verdict(probe: &Pod) -> Option<(String, Result<(), String>)> {
    let host = probe.labels()["asks"].clone();
    if let Some(bound) = probe.spec.as_ref()?.node_name.as_ref() {
        assert_eq!(*bound, host);
        return Some((host, Ok(())));
    }
    let mut conditions = probe.status.as_ref()?.conditions.iter().flatten();
    let refused = conditions.find(|condition| condition.reason.as_deref() == Some("Unschedulable"));
    Some((host, Err(refused?.message.clone().unwrap_or_default())))
}

fn amounts(requests: &Requests) -> Value {
    let amounts = requests
        .iter()
        .map(|(n, q)| (n.to_owned(), q.to_string().into()));
    Value::Object(amounts.collect())
}

fn node(metal: &Metal) -> Value {
    let host = &metal.host;
    let taints = host
        .taints
        .iter()
        .map(|taint| json!({ "key": taint.key, "value": taint.value, "effect": taint.effect }));
    let mut allocatable = amounts(&host.allocatable.iter().map(|(n, q)| (n, *q)).collect());
    for device in KUBEVIRT_DEVICES {
        allocatable[format!("devices.kubevirt.io/{device}")] = "1k".into();
    }
    let ready = if host.ready { "True" } else { "Unknown" };
    json!({
        "metadata": { "name": host.name, "labels": host.labels },
        "spec": {
            "unschedulable": host.unschedulable,
            "taints": taints.collect::<Vec<_>>(),
        },
        "status": {
            "allocatable": allocatable, "capacity": allocatable,
            "conditions": [{ "type": "Ready", "status": ready }],
        },
    })
}

/// A container; huge pages and devices are stated as limits too, or the API server takes neither.
fn container(name: &str, requests: &Requests) -> Value {
    let limited = |name: &str| name.starts_with("hugepages-") || name.contains('/');
    let limits = requests.iter().filter(|(name, _)| limited(name));
    json!({
        "name": name, "image": "none",
        "resources": { "requests": amounts(requests), "limits": amounts(&limits.collect()) },
    })
}

fn init_container(at: usize, init: &InitContainer) -> Value {
    let mut container = container(&format!("init-{at}"), &init.requests);
    if init.stays {
        container["restartPolicy"] = "Always".into();
    }
    container
}

fn spec(shape: &PodShape) -> Value {
    let containers = shape.containers.iter().enumerate();
    let containers = containers.map(|(at, requests)| container(&format!("c-{at}"), requests));
    let init = shape.init.iter().enumerate();
    let mut spec = json!({
        "containers": containers.collect::<Vec<_>>(),
        "initContainers": init.map(|(at, init)| init_container(at, init)).collect::<Vec<_>>(),
    });
    if shape.whole != Requests::new() {
        spec["resources"] = json!({ "requests": amounts(&shape.whole) });
    }
    if shape.overhead != Requests::new() {
        spec["runtimeClassName"] = RUNTIME.into();
    }
    spec
}

/// Whoever is apart is apart from control-plane machines.
fn labels(apart: bool) -> Value {
    json!({ "guest": "prod", "role": if apart { "control-plane" } else { "worker" } })
}

fn resident_pod(name: &str, host: &str, resident: &Resident) -> Value {
    let mut spec = spec(&resident.shape);
    spec["nodeName"] = host.into();
    let labels = if resident.kin {
        spec["affinity"] = json!({ "podAntiAffinity": anti_affinity() });
        labels(true)
    } else {
        json!({})
    };
    json!({ "metadata": { "name": name, "labels": labels }, "spec": spec })
}

fn anti_affinity() -> Value {
    json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": { "matchLabels": labels(true) },
    }]})
}

/// The machine's launcher Pod, which may go to this host alone.
fn probe(machine: &Wanted, host: &str) -> Value {
    let shape = launcher_shape(&machine.launcher);
    assert_eq!(shape.requests(), machine.launcher.requests());
    let mut spec = spec(&shape);
    for device in KUBEVIRT_DEVICES {
        let name = format!("devices.kubevirt.io/{device}");
        spec["containers"][0]["resources"]["limits"][name] = "1".into();
    }
    spec["affinity"] = json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{
            "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [host] }],
        }]},
    }});
    if machine.apart {
        spec["affinity"]["podAntiAffinity"] = anti_affinity();
    }
    let mut selector = json!(machine.requirements.node_selector);
    for label in ["kubevirt.io/schedulable", "cpumanager"] {
        selector[label] = "true".into();
    }
    spec["nodeSelector"] = selector;
    let tolerations = machine.requirements.tolerations.iter().map(toleration);
    spec["tolerations"] = tolerations.collect();
    let mut labels = labels(machine.apart);
    labels["asks"] = host.into();
    json!({ "metadata": { "name": format!("ask-{host}"), "labels": labels }, "spec": spec })
}

fn toleration(toleration: &Toleration) -> Value {
    let operator = if toleration.exists { "Exists" } else { "Equal" };
    let mut rendered = json!({ "operator": operator, "value": toleration.value });
    if let Some(key) = &toleration.key {
        rendered["key"] = json!(key);
    }
    if let Some(effect) = &toleration.effect {
        rendered["effect"] = json!(effect);
    }
    rendered
}
