//! Each machine: one Machine, one VM that runs, one Node, all of one name but the Machine.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Case, Reason, Verdict};
use crate::adopt::inventory::Member;
use crate::adopt::seen::{Kind, Seen, label, name, says, title};
use crate::capi;
use crate::import::value::{list, text};

const REPLACE: &str = "replace the machine through its pool, and ask again";

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    for machine in case.seen.own(Kind::Machine) {
        if machine["metadata"]["deletionTimestamp"].is_string() {
            continue;
        }
        let mut members = case.members.iter();
        if let Some(member) = members.find(|one| one.machine == name(machine)) {
            of_cluster_api(machine, verdict);
            if let Some((vm, instance)) = of_kubevirt(case.seen, member, verdict) {
                runs(vm, instance, verdict);
            }
            node(case.seen, member, verdict);
        }
    }
    strays(case, verdict);
    hosts(case.members, verdict);
    addresses(case, verdict);
}

fn of_cluster_api(machine: &Value, verdict: &mut Verdict) {
    let phase = text(machine, "/status/phase").unwrap_or_default();
    let has_node = text(machine, "/status/nodeRef/name").is_some();
    if phase != "Running" || !has_node {
        let what = if has_node {
            format!("its phase is {phase:?} and not Running")
        } else {
            format!("it has no Node yet (phase {phase:?})")
        };
        let cure = "wait until it is Running, or replace it through its pool, and ask again";
        verdict.say(Reason::NotRunning, title(machine), what, cure);
    }
}

/// Its VM and instance, if both are there and CAPK's.
fn of_kubevirt<'a>(
    seen: &'a Seen,
    member: &Member,
    verdict: &mut Verdict,
) -> Option<(&'a Value, &'a Value)> {
    let wanted = &member.infrastructure;
    let about = format!("Machine {}", member.machine);
    let mut missing = |what: String| verdict.say(Reason::NoMachine, &about, what, REPLACE);
    let Some(machine) = seen.named(Kind::KubevirtMachine, wanted) else {
        missing(format!("its KubevirtMachine {wanted:?} is not there"));
        return None;
    };
    let Some(vm) = seen.named(Kind::VirtualMachine, wanted) else {
        missing(format!("its VM {wanted:?} is not there"));
        return None;
    };
    let of_capk = label(vm, capi::MACHINE_NAME) == Some(wanted)
        && label(vm, capi::MACHINE_NAMESPACE) == Some(&*seen.namespace);
    if !of_capk {
        missing(format!(
            "VM {wanted} does not carry the labels of KubevirtMachine {wanted}"
        ));
        return None;
    }
    if let Some(why) = text(machine, "/status/failureReason") {
        missing(format!("CAPK has given its KubevirtMachine up ({why})"));
    }
    let instance = seen.named(Kind::VirtualMachineInstance, wanted);
    if instance.is_none() {
        let what = "it is off";
        let cure = "start it, wait until its Node is ready, and ask again";
        verdict.say(Reason::NotReady, title(vm), what, cure);
    }
    instance.map(|instance| (vm, instance))
}

fn runs(vm: &Value, instance: &Value, verdict: &mut Verdict) {
    let phase = text(instance, "/status/phase").unwrap_or_default();
    let wait = "wait until it runs and is ready, and ask again";
    if phase != "Running" {
        verdict.say(
            Reason::NotReady,
            title(instance),
            format!("its phase is {phase:?} and not Running"),
            wait,
        );
    } else if !says(instance, "Ready", "True") {
        verdict.say(Reason::NotReady, title(instance), "it is not ready", wait);
    }
    let status = &instance["status"];
    if let Some(host) = text(instance, "/status/evacuationNodeName").filter(|host| !host.is_empty())
    {
        verdict.say(
            Reason::Leaving,
            title(instance),
            format!("KubeVirt was asked to evict it from host {host}"),
            "wait until it has left, or call the eviction off, and ask again",
        );
    }
    let migration = &status["migrationState"];
    if !migration.is_null() && migration["completed"] != true && migration["failed"] != true {
        verdict.say(
            Reason::Leaving,
            title(instance),
            "it migrates to another host",
            "wait until it has arrived, and ask again",
        );
    }
    for object in [vm, instance] {
        if let Some(why) = label(object, capi::TERMINAL) {
            verdict.say(
                Reason::GivenUp,
                title(object),
                format!("its label {} says {why:?}", capi::TERMINAL),
                "take the label off, or let the machine be replaced first",
            );
        }
    }
    if says(vm, "RestartRequired", "True") {
        verdict.say(
            Reason::RestartPending,
            title(vm),
            "it was edited, so its next start is another machine than the one that runs",
            "know that; nothing of the adoption restarts it",
        );
    }
}

/// The Node is the one that the Machine says, and goes by the VM's name.
fn node(seen: &Seen, member: &Member, verdict: &mut Verdict) {
    let (Some(guest), Some(wanted)) = (seen.guest.known(), &member.node) else {
        return;
    };
    let about = format!("Machine {}", member.machine);
    let mut differs = |what: String, cure: &str| {
        verdict.say(Reason::NodeDiffers, &about, what, cure);
    };
    let Some(node) = guest.nodes.get(wanted) else {
        differs(format!("the guest has no Node {wanted}"), REPLACE);
        return;
    };
    let id = capi::provider_id(&member.infrastructure);
    match &node.provider_id {
        Some(found) if *found == id => {}
        found => differs(
            format!(
                "its Node {wanted} says that it is {:?} and not {id:?}",
                found.as_deref().unwrap_or_default()
            ),
            "check by hand which VM it is",
        ),
    }
    if *wanted != member.infrastructure {
        differs(
            format!(
                "its Node is {wanted} and its VM is {}, and a machine of a GuestCluster has one name",
                member.infrastructure
            ),
            "replace it by one without another host name",
        );
    }
    if !node.ready {
        verdict.say(
            Reason::NotReady,
            format!("Node {wanted}"),
            "it is not ready",
            "find out why, and ask again",
        );
    }
    if node.cordoned {
        verdict.say(
            Reason::Cordoned,
            format!("Node {wanted}"),
            "it is cordoned",
            "uncordon it if nobody wants that any more; the adoption does not",
        );
    }
}

/// Machines and Nodes that no Machine leads to.
fn strays(case: &Case<'_>, verdict: &mut Verdict) {
    let members = || case.members.iter();
    let known: BTreeSet<_> = members().map(|one| &*one.infrastructure).collect();
    for kind in [Kind::KubevirtMachine, Kind::VirtualMachine] {
        let own = case.seen.own(kind);
        for object in own.filter(|object| !known.contains(name(object))) {
            verdict.say(
                Reason::StrayMachine,
                title(object),
                "it is of this Cluster, and no Machine leads to it",
                "find out whose it is, and delete it or take its label off",
            );
        }
    }
    let nodes: BTreeSet<_> = members().filter_map(|one| one.node.as_ref()).collect();
    let guest = case.seen.guest.known();
    let found = guest.into_iter().flat_map(|guest| guest.nodes.keys());
    for node in found.filter(|node| !nodes.contains(node)) {
        verdict.say(
            Reason::StrayNode,
            format!("Node {node}"),
            "no Machine leads to it",
            "delete it from the guest if its machine is gone",
        );
    }
}

fn hosts(members: &[Member], verdict: &mut Verdict) {
    let mut by_host: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for member in members.iter().filter(|one| one.is_control_plane()) {
        if let Some(host) = &member.host {
            by_host.entry(host).or_default().push(&member.machine);
        }
    }
    for (host, machines) in by_host.into_iter().filter(|(_, all)| all.len() > 1) {
        verdict.say(
            Reason::SharesHost,
            format!("host {host}"),
            format!("it carries {} of the control plane", machines.join(" and ")),
            "know that its loss takes both; they come apart as they are replaced",
        );
    }
}

/// On the pod network a start brings another address, under which no member of etcd is known.
fn addresses(case: &Case<'_>, verdict: &mut Verdict) {
    let on_pod_network = |member: &&Member| {
        let vm = case
            .seen
            .named(Kind::VirtualMachine, &member.infrastructure);
        let networks = vm.map(|vm| list(vm, "/spec/template/spec/networks"));
        // A machine that names none is on the pod network.
        networks.is_some_and(|all| all.is_empty() || all[0].get("pod").is_some())
    };
    let members = case.members.iter().filter(|one| one.is_control_plane());
    let names: Vec<_> = members
        .filter(on_pod_network)
        .map(|one| &*one.machine)
        .collect();
    if !names.is_empty() {
        verdict.say(
            Reason::AddressOfPod,
            format!("control plane ({})", names.join(", ")),
            "its machines have the address of their Pods, and come back from a restart under \
             another one, which their member of etcd does not know",
            "do not restart them, here or with Cluster API; what replaces them keeps its address",
        );
    }
}
