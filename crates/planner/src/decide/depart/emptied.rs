//! Machines that are to leave their host: because KubeVirt was asked to evict them, or because a
//! HostMaintenance empties the host.

use guestcluster_api::Reason;
use guestcluster_api::host_maintenance::CapacityPolicy;
use guestcluster_api::labels::Role;

use super::{alive, quorum};
use crate::decide::{Context, Draft, rollout};
use crate::departure::Departure;
use crate::machines::MachineView;

/// Somebody wants the machine off its host, and it may go.
///
/// KubeVirt's mark is answered whatever hosts there are: whoever evicts a machine by hand or by
/// `kubectl drain` has decided that it goes.
pub(super) fn is_asked_away(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    is_marked(machine)
        || (policy(context, machine).is_some() && obstacle(context, machine).is_none())
}

fn is_marked(machine: &MachineView<'_>) -> bool {
    machine.instance.is_some_and(|i| i.evicted_from.is_some())
}

/// What the maintenance that empties its host says of machines that find no other one.
fn policy(context: &Context<'_>, machine: &MachineView<'_>) -> Option<CapacityPolicy> {
    let emptied = &context.seen.infra.emptied;
    emptied.get(machine.host()?).copied()
}

/// Why the machine stays on a host that is being emptied: it would be off for as long as the host is
/// away, and nobody has allowed that.
fn obstacle(context: &Context<'_>, machine: &MachineView<'_>) -> Option<String> {
    let may_wait = match policy(context, machine)? {
        CapacityPolicy::Enforce => false,
        CapacityPolicy::Warn => {
            machine.role == Role::ControlPlane
                && quorum::allows(context, machine, Departure::Evicted)
        }
        CapacityPolicy::Ignore => true,
    };
    // What moves has found its host, which its own Pod may fill.
    if may_wait || alive::is_under_way(context, machine) {
        return None;
    }
    // Off already, it waits for nothing but a host.
    let runs = machine.instance.is_some_and(|i| !i.meta.deleting);
    rollout::no_other_host(context, machine).filter(|_| runs)
}

/// Names machines that stay on a host that is being emptied.
pub(super) fn say_staying(context: &Context<'_>, draft: &mut Draft) {
    for machine in context.machines.values().filter(|m| !is_marked(m)) {
        let Some(why) = obstacle(context, machine) else {
            continue;
        };
        let host = machine.host().unwrap_or_default();
        draft.hold(
            Reason::NoOtherHost,
            format!(
                "{} stays on {host}, which is being emptied, because no other host takes it: {why}; \
                 uncordon or add a host, or write capacityPolicy: Ignore",
                machine.name
            ),
        );
        draft.look_again(context.in_seconds(10), "another host");
    }
}
