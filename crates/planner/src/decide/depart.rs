//! Machines that have joined and go off: for a drained host, from one that they share, because they are too many, outdated,
//! unhealthy or lost.
//!
//! The MUSTs:
//! 1. One control-plane machine and one worker at a time, and of these only one is taken away at a
//!    time: the other waits.
//! 2. Status has told why a machine leaves before anything is taken from it. A decision can be undone
//!    until its etcd member is removed or its VM is deleted.
//! 3. A control-plane machine goes when guest and etcd were asked and the rest is a quorum, in this
//!    order: Pods drained, out of the endpoint, leadership handed over, member removed (unless it
//!    comes back), instance or VM deleted.
//! 4. What a person stopped or took over is never chosen; a single control plane is never deleted to
//!    repair it.
//! 5. What runs on a dead host may still run: a worker there is left alone until its host is fenced.
//!    A control-plane machine is replaced, because a member that etcd has removed can do no harm.
//! 6. A machine that comes back moves while it runs, if it can (`alive.rs`).
//! 7. A host that a HostMaintenance empties keeps a machine that no other host takes, unless the
//!    maintenance allows that it waits.

mod alive;
mod choice;
mod drain;
mod emptied;
mod quorum;
mod share;
mod steps;

use std::collections::BTreeMap;

use guestcluster_api::Reason;
use guestcluster_api::labels::Role;

use super::{Context, Draft, Flow};
use crate::action::Action;
use crate::departure::Departure;
use crate::machines::{MachineView, Phase};
use crate::observed::Launcher;

pub(crate) use alive::LIMIT as MIGRATION_LIMIT;
pub(crate) use choice::{CALM, repairs};
pub(super) use quorum::spares;
pub(crate) use steps::WAITS;

/// The taint with which a person or a fencing agent says that a host is off
/// (Kubernetes' non-graceful node shutdown).
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A machine whose turn it is to go off.
#[derive(Clone, Copy, Debug)]
struct Turn<'c, 'a> {
    machine: &'c MachineView<'a>,
    why: Departure,
}

pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let mut departures = BTreeMap::new();
    for machine in context.machines.values().filter(|m| m.is_leaving()) {
        departures.extend(machine.leaves().map(|why| (machine.name.clone(), why)));
    }
    let mut turns = Vec::new();
    for role in [Role::ControlPlane, Role::Worker] {
        if let Some(turn) = choice::turn(context, draft, role) {
            if !turn.why.returns() {
                departures.insert(turn.machine.name.clone(), turn.why);
            }
            steps::go(context, draft, turn);
            turns.push(turn);
        }
    }
    draft.plan.departures = Some(departures);
    say_lost_quorum(context, draft);
    say_stranded(context, draft);
    emptied::say_staying(context, draft);
    say_handed_over(context, draft);
    for machine in context.machines.values() {
        let in_turn = turns.iter().any(|turn| turn.machine.name == machine.name);
        let goes = machine.is_leaving() || machine.phase() == Phase::Failed;
        if !in_turn && !goes && !machine.is_unmanaged() {
            bring_back(context, draft, machine);
        }
    }
    Flow::Next
}

/// Takes a machine that was given up out of the endpoint and from the lead; `true` if it serves nobody
/// any more. As long as it is the only one that serves, it goes on.
pub(super) fn is_withdrawn(
    context: &Context<'_>,
    draft: &mut Draft,
    machine: &MachineView<'_>,
) -> bool {
    let launcher = machine.instance.and_then(|i| i.launcher.as_ref());
    let is_out = |pod: &Launcher| !pod.serving || machine.vm.is_none_or(|vm| !vm.ready);
    steps::withdraw(context, draft, machine).is_ok() && launcher.is_none_or(is_out)
}

/// A machine without VM is replaced instead of coming back on its disks.
pub(super) fn replaces(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    let may = !context.seen.quorum_lost
        && super::objection(context.wanted, context.seen, context.previous).is_none();
    may && choice::is_lost(context, machine)
}

/// Undoes what was done to a machine that does not leave after all, or is back.
fn bring_back(context: &Context<'_>, draft: &mut Draft, machine: &MachineView<'_>) {
    alive::stay(context, draft, machine);
    steps::enter_endpoint(draft, machine);
    let waits = emptied::is_asked_away(context, machine);
    let guest = context.seen.guest.known();
    if let (Some(node), Some(_), false) = (machine.node, guest, waits)
        && node.drained_since.is_some()
        && machine.phase() == Phase::Ready
    {
        draft.act(Action::SetDrain {
            node: machine.name.clone(),
            uid: node.uid.clone(),
            since: None,
        });
    }
}

fn say_lost_quorum(context: &Context<'_>, draft: &mut Draft) {
    if context.seen.quorum_lost {
        draft.hold_for_person(
            Reason::QuorumLost,
            "too few members of etcd answer for a quorum: nothing is changed until enough are back. \
             Bring back the hosts of the missing machines; if their disks are lost, restore etcd \
             from a snapshot",
        );
    }
}

/// Machines on hosts that are dead: what is awaited, and how to say that a host is really off.
fn say_stranded(context: &Context<'_>, draft: &mut Draft) {
    let mut hosts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for machine in context.machines.values().filter(|m| m.host_is_dead) {
        let host = machine.host().unwrap_or_default();
        hosts.entry(host).or_default().push(&machine.name);
    }
    for (host, machines) in hosts {
        let mut all = context.seen.infra.hosts.iter();
        let is_fenced =
            all.any(|h| h.name == host && h.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE));
        let what = if is_fenced {
            "it is fenced: they come back on another host as soon as Kubernetes has let go of them"
                .to_owned()
        } else {
            format!(
                "they may still run there, so nothing is forced: bring the host back, or, if it is \
                 certainly off, run `kubectl taint node {host} \
                 {OUT_OF_SERVICE}=nodeshutdown:NoExecute`"
            )
        };
        let machines = machines.join(", ");
        let message = format!("host {host} does not answer and carries {machines}; {what}");
        draft.hold(Reason::AwaitingFence, message);
    }
}

fn say_handed_over(context: &Context<'_>, draft: &mut Draft) {
    for machine in context.machines.values().filter(|m| m.is_unmanaged()) {
        draft.hold(
            Reason::HandedOver,
            format!(
                "{0} is out of the operator's hands: nothing of it is written until \
                 `kubectl annotate vm {0} -n {1} {2}-`",
                machine.name,
                context.wanted.identity.namespace,
                guestcluster_api::labels::UNMANAGED
            ),
        );
    }
}
