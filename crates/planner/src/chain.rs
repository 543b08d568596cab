//! The chain from tenant to host: which machine of which guest is which VM, instance and launcher
//! Pod, and where it runs.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::labels;
use guestcluster_foreign::core::LauncherPod;
use guestcluster_foreign::kubevirt::{VirtualMachine, VirtualMachineInstance};
use kube::{Resource, ResourceExt};

/// Objects that carry the labels of machines.
#[derive(Clone, Debug, Default)]
pub struct Objects<'a> {
    /// Machines.
    pub vms: Vec<&'a VirtualMachine>,
    /// Their instances.
    pub instances: Vec<&'a VirtualMachineInstance>,
    /// Pods in which instances run, those that are over too.
    pub launchers: Vec<&'a LauncherPod>,
}

/// What becomes of a machine just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It has no instance, or one that is over.
    #[default]
    Off,
    /// Its instance has no host.
    Waits,
    /// It runs on its host.
    Runs,
    /// It runs on its host, and a Pod for it is on this other one: it migrates.
    MovesTo(String),
}

/// One machine, from its tenant to its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Tenant of the guest.
    pub tenant: String,
    /// Namespace of all its objects.
    pub namespace: String,
    /// Name of the GuestCluster.
    pub cluster: String,
    /// Name of the machine and of its Node in the guest.
    pub machine: String,
    /// `control-plane` or `worker`.
    pub role: String,
    /// Pool.
    pub pool: String,
    /// Its VM; `None` if that was deleted while its instance still runs.
    pub vm: Option<String>,
    /// Phase of its instance.
    pub instance: Option<String>,
    /// The launcher Pod in which it runs or is going to.
    pub pod: Option<String>,
    /// The host on which it runs.
    pub host: Option<String>,
    /// What becomes of it.
    pub state: State,
}

/// One link for each machine that has a VM or an instance, by namespace, guest and machine.
pub fn links(objects: &Objects<'_>) -> Vec<Link> {
    let (vms, instances) = (by_machine(&objects.vms), by_machine(&objects.instances));
    let mut launchers: BTreeMap<Key<'_>, Vec<&LauncherPod>> = BTreeMap::new();
    for pod in &objects.launchers {
        if let Some(key) = key(*pod).filter(|_| !is_over(pod)) {
            launchers.entry(key).or_default().push(pod);
        }
    }
    let keys: BTreeSet<_> = vms.keys().chain(instances.keys()).copied().collect();
    let link = |key: Key<'_>| {
        let pods = launchers.get(&key).map_or(&[][..], Vec::as_slice);
        let (vm, instance) = (vms.get(&key), instances.get(&key));
        let labels = vm
            .map(|vm| vm.labels())
            .or_else(|| instance.map(|instance| instance.labels()));
        let text = |label: &str| labels.and_then(|all| all.get(label)).cloned();
        let status = instance.and_then(|instance| instance.status.as_ref());
        let phase = status.and_then(|status| status.phase.clone());
        let is_on = instance.is_some() && !is_end(phase.as_deref());
        let at = status.and_then(|status| status.node_name.clone());
        let host = at.filter(|host| is_on && !host.is_empty());
        let pod = launcher(pods, host.as_deref()).filter(|_| is_on);
        Link {
            tenant: text(labels::TENANT).unwrap_or_default(),
            namespace: key.0.to_owned(),
            cluster: key.1.to_owned(),
            machine: key.2.to_owned(),
            role: text(labels::ROLE).unwrap_or_default(),
            pool: text(labels::POOL).unwrap_or_default(),
            vm: vm.map(|vm| vm.name_any()),
            instance: instance.map(|_| phase.unwrap_or_else(|| "Pending".to_owned())),
            pod: pod.map(ResourceExt::name_any),
            state: state(pods, host.as_deref(), is_on),
            host,
        }
    };
    keys.into_iter().map(link).collect()
}

/// Namespace, guest and machine.
type Key<'a> = (&'a str, &'a str, &'a str);

fn key<K: Resource>(object: &K) -> Option<Key<'_>> {
    let label = |name: &str| object.labels().get(name).map(String::as_str);
    let namespace = object.meta().namespace.as_deref()?;
    Some((namespace, label(labels::CLUSTER)?, label(labels::MACHINE)?))
}

fn by_machine<'a, K: Resource>(objects: &[&'a K]) -> BTreeMap<Key<'a>, &'a K> {
    let keyed = objects
        .iter()
        .map(|object| key(*object).map(|key| (key, *object)));
    keyed.flatten().collect()
}

fn is_end(phase: Option<&str>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// A launcher Pod that is over has let go of its machine's disks.
pub fn is_over(pod: &LauncherPod) -> bool {
    is_end(pod.status.phase.as_deref())
}

fn is_on(pod: &LauncherPod, host: Option<&str>) -> bool {
    host.is_some() && pod.spec.node_name.as_deref() == host
}

/// Of an instance's launcher Pods the one that it runs in: the one on its host, since during a live
/// migration there is another on the host that it goes to, and after it one on the host that it left;
/// else one that stays, and of several the one that was made last.
pub fn launcher<'a>(pods: &[&'a LauncherPod], host: Option<&str>) -> Option<&'a LauncherPod> {
    let rank = |pod: &&LauncherPod| {
        let meta = pod.meta();
        let made = meta.creation_timestamp.as_ref().map(|time| time.0);
        let stays = meta.deletion_timestamp.is_none();
        (is_on(pod, host), stays, made)
    };
    pods.iter().copied().max_by_key(rank)
}

fn state(pods: &[&LauncherPod], host: Option<&str>, on: bool) -> State {
    match (on, host) {
        (false, _) => State::Off,
        (true, None) => State::Waits,
        (true, Some(_)) => {
            let mut coming = pods.iter().filter(|pod| {
                let stays = pod.meta().deletion_timestamp.is_none();
                stays && !is_on(pod, host)
            });
            let target = coming.find_map(|pod| pod.spec.node_name.clone());
            target.map_or(State::Runs, State::MovesTo)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn object<K: DeserializeOwned>(name: &str, mut rest: Value) -> K {
        rest["metadata"] = json!({
            "name": name, "namespace": "tenant-a",
            "labels": {
                labels::TENANT: "acme", labels::CLUSTER: "prod", labels::MACHINE: "prod-cp-1",
                labels::ROLE: "control-plane", labels::POOL: "cp",
            },
        });
        serde_json::from_value(rest).unwrap()
    }

    fn vm() -> VirtualMachine {
        object("prod-cp-1", json!({ "spec": {} }))
    }

    fn instance(phase: &str, host: Option<&str>) -> VirtualMachineInstance {
        let status = json!({ "phase": phase, "nodeName": host });
        object("prod-cp-1", json!({ "spec": {}, "status": status }))
    }

    fn pod(name: &str, host: Option<&str>, phase: &str) -> LauncherPod {
        let (spec, status) = (json!({ "nodeName": host }), json!({ "phase": phase }));
        object(name, json!({ "spec": spec, "status": status }))
    }

    fn link(instance: Option<&VirtualMachineInstance>, launchers: &[LauncherPod]) -> Link {
        let vm = vm();
        let objects = Objects {
            vms: vec![&vm],
            instances: instance.into_iter().collect(),
            launchers: launchers.iter().collect(),
        };
        let mut links = links(&objects);
        assert_eq!(links.len(), 1);
        links.remove(0)
    }

    #[test]
    fn a_machine_leads_from_its_tenant_to_its_host() {
        let runs = instance("Running", Some("host-1"));
        let pods = [
            pod("old", Some("host-2"), "Succeeded"),
            pod("now", Some("host-1"), "Running"),
        ];
        let own = |text: &str| text.to_owned();
        assert_eq!(
            link(Some(&runs), &pods),
            Link {
                tenant: own("acme"),
                namespace: own("tenant-a"),
                cluster: own("prod"),
                machine: own("prod-cp-1"),
                role: own("control-plane"),
                pool: own("cp"),
                vm: Some(own("prod-cp-1")),
                instance: Some(own("Running")),
                pod: Some(own("now")),
                host: Some(own("host-1")),
                state: State::Runs,
            }
        );
    }

    #[test]
    fn a_machine_with_pods_on_two_hosts_moves_and_is_still_on_the_first() {
        let runs = instance("Running", Some("host-1"));
        let pods = [
            pod("target", Some("host-3"), "Running"),
            pod("source", Some("host-1"), "Running"),
        ];
        let seen = link(Some(&runs), &pods);
        assert_eq!(seen.state, State::MovesTo("host-3".to_owned()));
        assert_eq!(seen.pod.as_deref(), Some("source"));
    }

    #[test]
    fn an_instance_without_a_host_waits() {
        let seen = link(
            Some(&instance("Scheduling", None)),
            &[pod("new", None, "Pending")],
        );
        assert_eq!((seen.state, seen.host), (State::Waits, None));
        assert_eq!(seen.pod.as_deref(), Some("new"));
    }

    #[test]
    fn a_machine_whose_instance_is_gone_or_over_is_off_and_on_no_host() {
        let over = instance("Succeeded", Some("host-1"));
        for instance in [None, Some(&over)] {
            let seen = link(instance, &[]);
            assert_eq!((seen.state, seen.host, seen.pod), (State::Off, None, None));
        }
    }
}
