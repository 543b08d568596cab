//! How a machine goes off, one step after another.

use guestcluster_api::Reason;
use guestcluster_api::labels::Role;
use k8s_openapi::jiff::SignedDuration;

use super::{Turn, alive, drain, quorum};
use crate::action::{Action, Kind};
use crate::decide::replace::delete;
use crate::decide::{Context, Draft};
use crate::departure::Departure;
use crate::machines::{MachineView, Phase};

/// How long after leaving the endpoint a machine goes on serving: load balancers and kube-proxies
/// hear of it one after another. What was lost with it stands in `docs/measurements.md`.
const AFTERGLOW: SignedDuration = SignedDuration::from_secs(2);

/// What stands in a departure's message before what it waits for.
pub(crate) const WAITS: &str = "; it waits: ";

/// How long a machine may be on its way off a drained host before a person should know.
const STUCK: SignedDuration = SignedDuration::from_mins(10);

/// How a step ends.
pub(super) enum Wait {
    /// An action of this plan must take effect first.
    Acting,
    /// For this.
    For(String),
}

pub(super) fn go(context: &Context<'_>, draft: &mut Draft, turn: Turn<'_, '_>) {
    let (machine, why) = (turn.machine, turn.why);
    if !why.returns() && machine.leaves() != Some(why) {
        draft.act(Action::RecordDeparture {
            machine: machine.name.clone(),
            why,
        });
        return;
    }
    let waits = match depart(context, draft, turn) {
        Ok(()) | Err(Wait::Acting) => String::new(),
        Err(Wait::For(what)) => format!("{WAITS}{what}"),
    };
    let mut message = format!("{} leaves, because {}{waits}", machine.name, why.words());
    if !waits.is_empty() && is_stuck(context, turn) {
        message.push_str(&call_off(context, machine));
        draft.hold(Reason::EvictionStuck, message);
    } else {
        draft.hold(why.reason(), message);
    }
    let pause = if waits.is_empty() { 500 } else { 2_000 };
    draft.look_again(
        context.now + SignedDuration::from_millis(pause),
        "a departure",
    );
}

/// It should have left its host long ago, counted from KubeVirt's mark or from when its Pods were first
/// asked to go, whichever came first. A migration has a time limit of its own.
fn is_stuck(context: &Context<'_>, turn: Turn<'_, '_>) -> bool {
    let machine = turn.machine;
    let marked = machine.instance.and_then(|i| i.evicted_since);
    let drained = machine.node.and_then(|node| node.drained_since);
    let since = [marked, drained].into_iter().flatten().min();
    let is_long = since.is_some_and(|since| context.now.duration_since(since) >= STUCK);
    turn.why == Departure::Evicted && is_long && !alive::is_under_way(context, machine)
}

/// How a person takes the decision back.
fn call_off(context: &Context<'_>, machine: &MachineView<'_>) -> String {
    let marked = machine.instance.and_then(|i| i.evicted_from.as_ref());
    let Some(host) = marked else {
        return "; for more than 10 minutes: to call it off, delete the HostMaintenance".to_owned();
    };
    let namespace = &context.wanted.identity.namespace;
    format!(
        "; for more than 10 minutes: to call it off, run `kubectl uncordon {host}` and \
         `virtctl evacuate-cancel vmi {} -n {namespace}`, or without virtctl \
         `echo '{{\"evacuationNodeName\":\"{host}\"}}' | kubectl replace -f - --raw \
         /apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{}/evacuate/cancel`",
        machine.name, machine.name
    )
}

fn depart(context: &Context<'_>, draft: &mut Draft, turn: Turn<'_, '_>) -> Result<(), Wait> {
    let (machine, why) = (turn.machine, turn.why);
    if let Some(objection) = quorum::objection(context, machine, why) {
        // Whoever must stay serves as well: the others may not be able to.
        if machine.member.is_some() {
            enter_endpoint(draft, machine);
        }
        return Err(Wait::For(objection));
    }
    quiet(context, machine)?;
    if why.returns() {
        alive::step(context, draft, machine)?;
    }
    drain::step(context, draft, (machine, why))?;
    withdraw(context, draft, machine)?;
    if why.returns() {
        return stop(draft, turn);
    }
    leave_etcd(draft, machine)?;
    let why = format!("{} leaves, because {}", machine.name, why.words());
    if let Some(vm) = machine.vm.filter(|_| !draft.has_disruption()) {
        delete(draft, (Kind::VirtualMachine, &machine.name, &vm.meta), &why);
    }
    Ok(())
}

/// Nothing else of the guest is on its way off or back. What is stuck on a dead host does not count:
/// it would hold everything up.
fn quiet(context: &Context<'_>, machine: &MachineView<'_>) -> Result<(), Wait> {
    let mut others = context.machines.values().filter(|m| m.name != machine.name);
    let moves = |m: &&MachineView<'_>| {
        let goes = m.vm.is_some_and(|vm| vm.meta.deleting)
            || m.instance.is_some_and(|i| i.meta.deleting)
            || alive::is_on_two_hosts(context, m)
            || alive::is_under_way(context, m);
        let returns = m.role == Role::ControlPlane
            && m.joined_before()
            && m.vm.is_some()
            && matches!(m.phase(), Phase::Unhealthy | Phase::Joined);
        // The others' own quorum rules speak for the control plane.
        (goes || (returns && machine.role == Role::Worker)) && !m.host_is_dead && !m.is_unmanaged()
    };
    match others.find(moves) {
        Some(other) => Err(Wait::For(format!("{} is on its way", other.name))),
        None => Ok(()),
    }
}

/// Puts a machine back into the endpoint that was taken out.
pub(super) fn enter_endpoint(draft: &mut Draft, machine: &MachineView<'_>) {
    // One that is on its way off would be asked for as long as its API server still answers.
    let instance = machine.instance.filter(|instance| !instance.meta.deleting);
    let launcher = instance.and_then(|instance| instance.launcher.as_ref());
    let out = launcher.filter(|pod| !pod.serving && !pod.meta.deleting);
    if let Some(pod) = out.filter(|_| machine.role == Role::ControlPlane) {
        draft.act(Action::SetServing {
            machine: machine.name.clone(),
            pod: pod.clone(),
            out_since: None,
        });
    }
}

/// Nobody asks it any more, neither clients nor its peers.
pub(super) fn withdraw(
    context: &Context<'_>,
    draft: &mut Draft,
    machine: &MachineView<'_>,
) -> Result<(), Wait> {
    leave_endpoint(context, draft, machine)?;
    hand_over(context, draft, machine)
}

/// The last one that serves stays to the end: without it nobody would.
fn leave_endpoint(
    context: &Context<'_>,
    draft: &mut Draft,
    machine: &MachineView<'_>,
) -> Result<(), Wait> {
    let instance = machine
        .instance
        .filter(|_| machine.role == Role::ControlPlane);
    let Some(pod) = instance.and_then(|instance| instance.launcher.as_ref()) else {
        return Ok(());
    };
    let address = instance.and_then(|instance| instance.address.as_ref());
    let others = context
        .seen
        .serving
        .iter()
        .any(|other| Some(other) != address);
    if pod.serving && !others {
        return Ok(());
    }
    if pod.serving {
        draft.act(Action::SetServing {
            machine: machine.name.clone(),
            pod: pod.clone(),
            out_since: Some(context.now),
        });
        return Err(Wait::Acting);
    }
    if address.is_some_and(|address| context.seen.serving.contains(address)) {
        return Err(Wait::For("the endpoint still leads to it".to_owned()));
    }
    let end = pod.out_since.map(|since| since + AFTERGLOW);
    match end.filter(|end| context.now < *end) {
        Some(end) => {
            draft.look_again(end, "the endpoint's afterglow");
            Err(Wait::Acting)
        }
        None => Ok(()),
    }
}

/// Without this the guest has no leader for about a second.
fn hand_over(
    context: &Context<'_>,
    draft: &mut Draft,
    machine: &MachineView<'_>,
) -> Result<(), Wait> {
    let (Some(member), Some(etcd)) = (machine.member, context.seen.etcd.known()) else {
        return Ok(());
    };
    let fit = |m: &&crate::observed::EtcdMember| m.id != member.id && !m.learner && m.healthy;
    match etcd.members.iter().find(fit) {
        Some(heir) if etcd.leader == Some(member.id) => {
            draft.act(Action::MoveLeader {
                from: machine.name.clone(),
                to: heir.id,
            });
            Err(Wait::Acting)
        }
        _ => Ok(()),
    }
}

fn leave_etcd(draft: &mut Draft, machine: &MachineView<'_>) -> Result<(), Wait> {
    let Some(member) = machine.member else {
        return Ok(());
    };
    if draft.has_disruption() {
        return Err(Wait::Acting);
    }
    draft.act(Action::RemoveEtcdMember {
        id: member.id,
        machine: machine.name.clone(),
    });
    Err(Wait::Acting)
}

/// Its VM makes another instance, which the scheduler places on another host.
fn stop(draft: &mut Draft, turn: Turn<'_, '_>) -> Result<(), Wait> {
    let machine = turn.machine;
    if draft.has_disruption() {
        return Err(Wait::Acting);
    }
    if let Some(instance) = machine.instance {
        let why = format!("{} leaves, because {}", machine.name, turn.why.words());
        delete(draft, (Kind::Instance, &machine.name, &instance.meta), &why);
    }
    Ok(())
}
