//! A machine must leave its host: KubeVirt was asked to evict it and asks us to see to it.
//!
//! One machine of a Cluster goes at a time. A worker is drained like any other Node and starts
//! elsewhere. A control-plane machine whose address would change must not: its member of etcd would
//! come back under an address that nobody knows. It is reported as lost, one at a time, and replaced
//! by the control plane's own controller, which minds the quorum.

use guestcluster_foreign::kubevirt::VirtualMachineInstance;
use guestcluster_planner::observed::{GuestNode, GuestPod, Probe};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::action::{Action, Plan, Target};
use super::machine::{runs, was_ready};
use super::seen::{Machine, Seen};

/// How soon Pods that are leaving are looked at again.
const LOOK: SignedDuration = SignedDuration::from_secs(2);

/// Plans for a running machine that is to leave its host, or has come back from that. Answers why it
/// is to be replaced instead, if so.
pub(super) fn plan(
    seen: &Seen,
    (machine, instance, node): (&Machine, &VirtualMachineInstance, Option<&GuestNode>),
    now: Timestamp,
    plan: &mut Plan,
) -> Option<String> {
    if !must_leave(machine) {
        if let Some(node) = node.filter(|node| node.drained_since.is_some()) {
            plan.actions.push(Action::SetDrain {
                node: machine.name().to_owned(),
                uid: node.uid.clone(),
                since: None,
            });
        }
        return None;
    }
    if turn(seen) != Some(machine.name()) {
        return None;
    }
    if machine.is_control_plane() && !keeps_its_address(machine) {
        let host = instance
            .status
            .as_ref()
            .and_then(|status| status.node_name.as_deref());
        return Some(format!(
            "it must leave host {}, and would come back under another address, which etcd does not \
             allow: it is to be replaced",
            host.unwrap_or("that is drained")
        ));
    }
    if is_empty(seen, (machine, node), now, plan) {
        plan.actions
            .push(Action::DeleteInstance(Target::of(instance)));
    }
    None
}

/// Whether KubeVirt has handed the machine's eviction to us and it has not gone yet.
pub(super) fn must_leave(machine: &Machine) -> bool {
    let strategy = &machine.object.spec.virtual_machine_template.spec;
    let strategy = strategy.pointer("/template/spec/evictionStrategy");
    let Some(instance) = &machine.instance else {
        return false;
    };
    let status = instance.status.as_ref();
    let asked = status.is_some_and(|status| match &status.evacuation_node_name {
        // KubeVirt's mark stays when the machine has moved.
        Some(from) => !from.is_empty() && status.node_name.as_ref() == Some(from),
        None => false,
    });
    asked
        && instance.metadata.deletion_timestamp.is_none()
        && strategy.and_then(|strategy| strategy.as_str()) == Some("External")
}

/// Whose turn it is: nobody's while a machine of the Cluster is on its way, else the one whose drain
/// has begun, else the first by name.
fn turn(seen: &Seen) -> Option<&str> {
    let is_away = |machine: &&Machine| {
        let joined = machine.object.spec.provider_id.is_some();
        // One that failed serves none the less until it is replaced, and has its own turn.
        let serves = was_ready(machine) || has_failed(machine);
        joined && !(serves && machine.instance.as_ref().is_some_and(runs))
    };
    let is_lost = |machine: &&Machine| has_failed(machine) && !must_leave(machine);
    let mut all = seen.machines.values();
    if all.any(|machine| is_away(&machine) || is_lost(&machine) || machine.is_deleting()) {
        return None;
    }
    let waiting = || seen.machines.values().filter(|machine| must_leave(machine));
    let drained = |machine: &&Machine| {
        let node = seen
            .guest
            .known()
            .and_then(|guest| guest.nodes.get(machine.name()));
        node.is_some_and(|node| node.drained_since.is_some())
    };
    let begun = waiting().find(|machine| has_failed(machine) || drained(machine));
    begun.or_else(|| waiting().next()).map(Machine::name)
}

/// Whether it was said to be beyond help.
fn has_failed(machine: &Machine) -> bool {
    let status = machine.object.status.as_ref();
    status.is_some_and(|status| status.failure_message.is_some())
}

/// On the pod network every start brings another address; a network of the user's own keeps it.
fn keeps_its_address(machine: &Machine) -> bool {
    let spec = &machine.object.spec.virtual_machine_template.spec;
    let first = spec.pointer("/template/spec/domain/devices/interfaces/0/name");
    let networks = spec
        .pointer("/template/spec/networks")
        .and_then(|all| all.as_array());
    let of_first = |network: &&serde_json::Value| network.get("name") == first;
    let network = networks.and_then(|all| all.iter().find(of_first));
    network.is_some_and(|network| network.get("multus").is_some())
}

/// Whether nothing of the tenant's runs on the machine any more. What the guest does not say is not
/// taken for nothing.
fn is_empty(
    seen: &Seen,
    (machine, node): (&Machine, Option<&GuestNode>),
    now: Timestamp,
    plan: &mut Plan,
) -> bool {
    let Probe::Known(guest) = &seen.guest else {
        plan.look_again_at(now + LOOK);
        return false;
    };
    // A kubelet that is silent or gone ends no Pod, and the guest moves them by itself.
    let Some(node) = node.filter(|node| node.ready) else {
        return true;
    };
    let Some(since) = node.drained_since.filter(|_| node.unschedulable) else {
        plan.actions.push(Action::SetDrain {
            node: machine.name().to_owned(),
            uid: node.uid.clone(),
            since: Some(now),
        });
        return false;
    };
    plan.look_again_at(now + LOOK);
    let Some(pods) = guest.pods.get(machine.name()) else {
        return false;
    };
    let limit = machine
        .owner
        .as_ref()
        .and_then(|o| o.spec.deletion.node_drain_timeout_seconds);
    let limit = limit
        .filter(|seconds| *seconds > 0)
        .map(|s| SignedDuration::from_secs(s.into()));
    if pods.is_empty() || limit.is_some_and(|limit| now >= since + limit) {
        return true;
    }
    let due = |pod: &&GuestPod| !pod.deleting && pod.due;
    let due: Vec<_> = pods.iter().filter(due).cloned().collect();
    if !due.is_empty() {
        plan.actions.push(Action::Evict {
            node: machine.name().to_owned(),
            pods: due,
        });
    }
    false
}
