//! From objects as the API server shows them to what a plan looks at.

mod migration;
mod volume;

use std::collections::BTreeMap;

use guestcluster_api::labels;
use guestcluster_capacity::{Host, Taint};
use guestcluster_foreign::cdi::DataVolume;
use guestcluster_foreign::core::{HostNode, LauncherPod, SlimService};
use guestcluster_foreign::kubevirt::{VirtualMachine, VirtualMachineInstance, VmCondition};
use guestcluster_planner::observed::{
    Disk, Holding, Instance, Launcher, Meta, Secret, Service, Slice, Vm,
};
use guestcluster_planner::render;
use kube::{Resource, ResourceExt};

pub(super) use migration::{migration, migration_policy};
pub(super) use volume::reach;

use crate::host_pod::HostPod;
use crate::views::SlimSlice;

pub(super) fn meta<K: Resource>(object: &K) -> Meta {
    let meta = object.meta();
    Meta {
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        machine: object.labels().get(labels::MACHINE).cloned(),
        pool: object.labels().get(labels::POOL).cloned(),
    }
}

pub(super) fn secret<K: Resource>(object: &K) -> Secret {
    let annotations = object.annotations();
    Secret {
        meta: meta(object),
        token_id: annotations.get(labels::TOKEN_ID).cloned(),
        scrubbed: annotations
            .get(labels::SCRUBBED)
            .is_some_and(|value| value == "true"),
        renew_at: annotations
            .get(labels::RENEW_AT)
            .and_then(|time| time.parse().ok()),
        server: annotations.get(labels::SERVER).cloned(),
    }
}

pub(super) fn service(object: &SlimService) -> Service {
    let mut ingress = object.status.load_balancer.ingress.iter();
    let node_port = object.spec.ports.first().and_then(|port| port.node_port);
    Service {
        meta: meta(object),
        cluster_ip: address_of(object).map(str::to_owned),
        node_port: node_port.and_then(|port| u16::try_from(port).ok()),
        load_balancer: ingress
            .find_map(|ingress| ingress.ip.as_ref().or(ingress.hostname.as_ref()))
            .cloned(),
        render: object.annotations().get(render::RENDER).cloned(),
    }
}

/// A Service's own address. `None` is what Kubernetes writes for a headless one.
pub(super) fn address_of(object: &SlimService) -> Option<&str> {
    let address = object.spec.cluster_ip.as_deref()?;
    (!address.is_empty() && address != "None").then_some(address)
}

pub(super) fn slice(object: &SlimSlice) -> Slice {
    let endpoints = object.endpoints.iter().flatten();
    let addresses = endpoints
        .flat_map(|endpoint| endpoint.addresses.iter().cloned())
        .collect();
    Slice {
        meta: meta(object),
        addresses,
    }
}

pub(super) fn disk(object: &DataVolume) -> Disk {
    let status = object.status.as_ref();
    let conditions = status.map_or(&[][..], |status| &status.conditions);
    let complaint = |condition: &&VmCondition| {
        condition.status == "False" && condition.message.as_ref().is_some_and(|m| !m.is_empty())
    };
    Disk {
        meta: meta(object),
        phase: status.and_then(|status| status.phase.clone()),
        message: conditions
            .iter()
            .find(complaint)
            .and_then(|c| c.message.clone()),
        template_hash: object.labels().get(labels::TEMPLATE_HASH).cloned(),
    }
}

pub(super) fn vm(object: &VirtualMachine) -> Vm {
    let status = object.status.as_ref();
    let conditions = status.map_or(&[][..], |status| &status.conditions);
    let failure = conditions
        .iter()
        .find(|c| c.type_ == "Failure" && c.status == "True");
    Vm {
        meta: meta(object),
        template_hash: object.labels().get(labels::TEMPLATE_HASH).cloned(),
        run_strategy: object.spec.run_strategy.clone(),
        printable_status: status.and_then(|status| status.printable_status.clone()),
        ready: status.is_some_and(|status| status.ready),
        failure: failure.and_then(|condition| condition.message.clone()),
        unmanaged: object
            .annotations()
            .get(labels::UNMANAGED)
            .is_some_and(|value| value == "true"),
    }
}

/// An instance, and its launcher Pod, which hears first why no host takes it.
pub(super) fn instance(
    object: &VirtualMachineInstance,
    launcher: Option<&LauncherPod>,
) -> Instance {
    let status = object.status.clone().unwrap_or_default();
    let refused = status
        .conditions
        .iter()
        .find(|c| c.type_ == "PodScheduled" && c.status == "False")
        .and_then(|condition| condition.message.clone());
    Instance {
        meta: meta(object),
        address: status.interfaces.iter().find_map(|i| i.ip_address.clone()),
        unschedulable: if status.node_name.is_some() {
            None
        } else {
            refused.or_else(|| launcher.and_then(unschedulable))
        },
        migratable: migration::migratable(&status.conditions),
        evicted_since: migration::evicted_since(&status.conditions),
        phase: status.phase.unwrap_or_default(),
        host: status.node_name,
        evicted_from: status.evacuation_node_name.filter(|host| !host.is_empty()),
        launcher: launcher.map(self::launcher),
    }
}

fn launcher(pod: &LauncherPod) -> Launcher {
    let serving = pod.labels().get(labels::ENDPOINT);
    let left = pod.annotations().get(labels::LEFT_ENDPOINT);
    Launcher {
        name: pod.name_any(),
        meta: meta(pod),
        serving: serving.is_some_and(|value| value == labels::ENDPOINT_SERVING),
        out_since: left.and_then(|time| time.parse().ok()),
        migration_ruled_out: pod.annotations().contains_key(labels::MIGRATION_RULED_OUT),
    }
}

/// Addresses to which a slice sends connections.
pub(super) fn ready_addresses(object: &SlimSlice) -> impl Iterator<Item = String> + '_ {
    let endpoints = object.endpoints.iter().flatten();
    endpoints
        .filter(|endpoint| endpoint.conditions.ready != Some(false))
        .flat_map(|endpoint| endpoint.addresses.iter().cloned())
}

fn unschedulable(launcher: &LauncherPod) -> Option<String> {
    let conditions = launcher.status.conditions.iter();
    let refused = |c: &&guestcluster_foreign::core::PodCondition| {
        c.type_ == "PodScheduled" && c.status == "False"
    };
    conditions
        .filter(refused)
        .find_map(|condition| condition.message.clone())
}

pub(super) fn host(object: &HostNode) -> Host {
    let taint = |taint: &k8s_openapi::api::core::v1::Taint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.clone(),
    };
    Host {
        name: object.name_any(),
        labels: object.labels().clone(),
        taints: object.spec.taints.iter().map(taint).collect(),
        unschedulable: object.spec.unschedulable,
        ready: object.is_ready(),
        allocatable: object
            .status
            .allocatable
            .iter()
            // A resource whose amount cannot be read is one that cannot be counted on.
            .filter_map(|(name, amount)| Some((name.clone(), amount.0.parse().ok()?)))
            .collect(),
    }
}

/// What a machine's Pod holds; nothing for a Pod of no machine.
pub(super) fn holding(object: &HostPod) -> Option<Holding> {
    Some(Holding {
        machine: object.labels().get(labels::MACHINE)?.clone(),
        host: object.host.to_string(),
        requests: object.requests.clone(),
    })
}

/// Objects by name.
pub(super) fn by_name<K, T>(
    objects: &[std::sync::Arc<K>],
    convert: impl Fn(&K) -> T,
) -> BTreeMap<String, T>
where
    K: Resource,
{
    objects
        .iter()
        .map(|object| (object.name_any(), convert(object)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn object<K: DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_service_has_the_address_that_its_load_balancer_gave() {
        let seen = service(&object(json!({
            "metadata": { "name": "a-api", "annotations": { "guestcluster.dev/render": "d" } },
            "spec": { "clusterIP": "10.98.0.7", "ports": [{ "port": 6443, "nodePort": 30001 }] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "10.79.0.1" }] } },
        })));
        assert_eq!(seen.cluster_ip.as_deref(), Some("10.98.0.7"));
        assert_eq!(seen.node_port, Some(30_001));
        assert_eq!(seen.load_balancer.as_deref(), Some("10.79.0.1"));
        assert_eq!(seen.render.as_deref(), Some("d"));
    }

    #[test]
    fn a_headless_service_has_no_address() {
        let seen = service(&object(
            json!({ "metadata": {}, "spec": { "clusterIP": "None" } }),
        ));
        assert_eq!(seen.cluster_ip, None);
    }

    #[test]
    fn a_slice_without_endpoints_leads_nowhere() {
        for endpoints in [json!(null), json!([])] {
            let seen = slice(&object(json!({ "metadata": {}, "endpoints": endpoints })));
            assert!(seen.addresses.is_empty());
        }
    }

    #[test]
    fn an_instance_without_a_host_says_why() {
        let refused = json!({ "type": "PodScheduled", "status": "False", "message": "0/4 nodes" });
        let waiting = json!({ "metadata": {}, "spec": {}, "status": { "phase": "Scheduling" } });
        let launcher: LauncherPod =
            object(json!({ "metadata": {}, "status": { "conditions": [refused] } }));
        let seen = instance(&object(waiting), Some(&launcher));
        assert_eq!(seen.unschedulable.as_deref(), Some("0/4 nodes"));
        let running = json!({ "metadata": {}, "spec": {}, "status": {
            "phase": "Running", "nodeName": "host-1",
            "interfaces": [{ "name": "default", "ipAddress": "10.77.0.9" }],
        }});
        let seen = instance(&object(running), Some(&launcher));
        assert_eq!(
            (seen.unschedulable, seen.address.as_deref()),
            (None, Some("10.77.0.9"))
        );
        assert_eq!(seen.host.as_deref(), Some("host-1"));
    }

    #[test]
    fn a_pod_holds_for_the_machine_that_it_is_labelled_with() {
        let pod = |labels| {
            holding(&object(json!({
                "metadata": { "labels": labels },
                "spec": { "nodeName": "host-1", "containers": [
                    { "name": "c", "resources": { "requests": { "cpu": "4" } } },
                ]},
            })))
        };
        let held = pod(json!({ labels::MACHINE: "a-cp-1" })).unwrap();
        assert_eq!((&*held.machine, &*held.host), ("a-cp-1", "host-1"));
        assert_eq!(held.requests.of("cpu").ceil(), 4);
        assert_eq!(pod(json!({ "app": "other" })), None);
    }

    #[test]
    fn a_machine_that_cannot_start_says_why() {
        let seen = vm(&object(json!({
            "metadata": { "labels": { "guestcluster.dev/template-hash": "h" } },
            "spec": { "runStrategy": "Always" },
            "status": { "ready": false, "conditions": [
                { "type": "Failure", "status": "True", "message": "admission webhook denied" },
            ]},
        })));
        assert_eq!(seen.failure.as_deref(), Some("admission webhook denied"));
        assert_eq!(seen.template_hash.as_deref(), Some("h"));
        assert_eq!(seen.run_strategy.as_deref(), Some("Always"));
    }

    #[test]
    fn a_first_boot_secret_tells_its_token_and_whether_it_is_scrubbed() {
        let seen = secret(&object::<k8s_openapi::api::core::v1::Secret>(json!({
            "metadata": {
                "name": "a-cp-1-user-data", "uid": "u", "resourceVersion": "7",
                "labels": { labels::MACHINE: "a-cp-1", labels::POOL: "cp" },
                "annotations": { labels::TOKEN_ID: "abcdef", labels::SCRUBBED: "true" },
            },
        })));
        assert_eq!(
            (seen.token_id.as_deref(), seen.scrubbed),
            (Some("abcdef"), true)
        );
        assert_eq!(seen.meta.machine.as_deref(), Some("a-cp-1"));
        assert_eq!(seen.meta.resource_version, "7");
    }

    #[test]
    fn a_host_offers_what_can_be_read_of_it() {
        let seen = host(&object(json!({
            "metadata": { "name": "host-1", "labels": { "zone": "a" } },
            "spec": { "unschedulable": true, "taints": [{ "key": "k", "effect": "NoSchedule" }] },
            "status": {
                "allocatable": { "cpu": "32", "memory": "128Gi", "odd": "none" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        })));
        assert!(seen.ready && seen.unschedulable);
        assert_eq!(
            seen.allocatable.keys().collect::<Vec<_>>(),
            ["cpu", "memory"]
        );
        assert_eq!(seen.taints[0].key, "k");
    }
}
