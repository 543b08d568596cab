//! One snapshot of a host and of what concerns it, from the stores.

use std::collections::BTreeSet;

use guestcluster_api::{HostMaintenance, labels};
use guestcluster_foreign::core::LauncherPod;
use guestcluster_planner::chain;
use guestcluster_planner::foresight::Foresight;
use guestcluster_planner::maintenance::{Node, Request, Seat, Seen, word};
use guestcluster_shell::NamespacedName;
use kube::ResourceExt;

use super::cordoned_by;
use crate::stores::{Stores, cluster_of};

/// How KubeVirt calls the Pods that virtual machines run in.
const LAUNCHER: &str = "virt-launcher-";

pub(super) fn seen(
    stores: &Stores,
    foresight: Foresight,
    (object, request): (&HostMaintenance, &Request),
) -> Seen {
    let host = &*request.host;
    let node = stores.hosts.get(&NamespacedName::new("", host));
    Seen {
        node: node.map(|node| Node {
            uid: node.uid().unwrap_or_default(),
            unschedulable: node.spec.unschedulable,
            cordoned_by: cordoned_by(&node),
        }),
        before: before(stores, object),
        machines: seats(stores, object, host),
        foreign: foreign(stores, host),
        foresight,
    }
}

/// The oldest other maintenance of the same host, if it is older than this one.
fn before(stores: &Stores, object: &HostMaintenance) -> Option<String> {
    let age = |one: &HostMaintenance| {
        let made = one.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (made, one.name_any())
    };
    let own = age(object);
    let oldest = stores.maintenances.fold(None, |oldest, other| {
        let other_age = age(other);
        let counts = other.spec.node_name == object.spec.node_name && other_age < own;
        let is_older = oldest.as_ref().is_none_or(|oldest| other_age < *oldest);
        if counts && is_older {
            Some(other_age)
        } else {
            oldest
        }
    });
    oldest.map(|(_, name)| name)
}

/// Machines that have a launcher Pod on the host, and those that status remembers.
fn seats(stores: &Stores, object: &HostMaintenance, host: &str) -> Vec<Seat> {
    let here = stores.launchers.fold(BTreeSet::new(), |mut here, pod| {
        if is_on(pod, host) {
            here.extend(owner(pod));
        }
        here
    });
    let told = object.status.iter().flat_map(|status| &status.machines);
    let told = told.map(|m| (m.namespace.clone(), m.guest.clone(), m.name.clone()));
    let all: BTreeSet<_> = here.iter().cloned().chain(told).collect();
    let seat = |machine: (String, String, String)| {
        let launcher = here.contains(&machine);
        seat(stores, machine, launcher)
    };
    all.into_iter().map(seat).collect()
}

fn is_on(pod: &LauncherPod, host: &str) -> bool {
    pod.spec.node_name.as_deref() == Some(host) && !chain::is_over(pod)
}

/// Namespace, guest and name of a launcher Pod's machine.
fn owner(pod: &LauncherPod) -> Option<(String, String, String)> {
    let cluster = cluster_of(pod)?;
    let machine = pod.labels().get(labels::MACHINE)?;
    Some((
        cluster.namespace.to_string(),
        cluster.name.to_string(),
        machine.clone(),
    ))
}

fn seat(
    stores: &Stores,
    (namespace, guest, name): (String, String, String),
    launcher: bool,
) -> Seat {
    let key = NamespacedName::new(&namespace, &name);
    let vm = stores.vms.get(&key);
    let instance = stores.instances.get(&key);
    let status = instance.as_ref().and_then(|i| i.status.clone());
    let status = status.unwrap_or_default();
    let refused = status.conditions.iter();
    let mut refused = refused.filter(|c| c.type_ == "PodScheduled" && c.status == "False");
    let cluster = stores
        .clusters
        .get(&NamespacedName::new(&namespace, &guest));
    let told = cluster.as_ref().and_then(|cluster| cluster.status.as_ref());
    let role = vm.as_ref().and_then(|vm| vm.labels().get(labels::ROLE));
    Seat {
        launcher,
        exists: vm.is_some(),
        running: status.phase.as_deref() == Some("Running"),
        stopping: instance.is_some_and(|i| i.metadata.deletion_timestamp.is_some()),
        unschedulable: refused.find_map(|c| c.message.clone()),
        host: status.node_name,
        role: role.cloned().unwrap_or_default(),
        word: told.map(|status| word(status, &name)).unwrap_or_default(),
        namespace,
        guest,
        name,
    }
}

/// Virtual machines on the host that belong to no guest cluster, by the name of their Pods: of Pods
/// that are not ours nothing else is kept.
fn foreign(stores: &Stores, host: &str) -> usize {
    stores.host_pods.fold(0, |count, pod| {
        let is_ours = pod.labels().contains_key(labels::MACHINE);
        let is_vm = pod.name_any().starts_with(LAUNCHER);
        count + usize::from(&*pod.host == host && is_vm && !is_ours)
    })
}
