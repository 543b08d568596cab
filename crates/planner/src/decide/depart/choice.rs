//! Whose turn it is.

use guestcluster_api::labels::Role;
use guestcluster_api::{GuestClusterStatus, Reason};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Turn, alive, emptied, quorum, share};
use crate::decide::rollout::{self, Target};
use crate::decide::{Context, Draft, objection};
use crate::departure::Departure;
use crate::machines::{MachineView, Phase};
use crate::wanted::Pool;

/// So many machines of a pool are replaced one after another because they failed; then a person
/// must find the cause.
const REPAIRS: u32 = 5;
/// After so long without a failure the count begins anew.
pub(crate) const CALM: SignedDuration = SignedDuration::from_hours(1);

/// The machine of this role whose turn it is to go off.
///
/// What cannot be undone any more comes first, then failures, then hosts that wait to be drained, then
/// hosts that are shared, then what is merely wished. A machine that serves nobody costs nobody anything, and as long as it is
/// there no host is given free: the machine on it would wait for the other to be well.
pub(super) fn turn<'c, 'a>(
    context: &'c Context<'a>,
    draft: &mut Draft,
    role: Role,
) -> Option<Turn<'c, 'a>> {
    let begun = |m: &&'c MachineView<'a>| m.leaves().is_some() && is_past_return(context, m);
    if let Some(machine) = of_role(context, role).find(begun) {
        let why = machine.leaves()?;
        return Some(Turn { machine, why });
    }
    let is_settled = !context.seen.quorum_lost
        && objection(context.wanted, context.seen, context.previous).is_none();
    if let Some(turn) = is_settled.then(|| failure(context, draft, role)).flatten() {
        return Some(turn);
    }
    let asked = context.seen.guest.known().is_some()
        && (role == Role::Worker || context.seen.etcd.known().is_some());
    let wish = (is_settled && asked)
        .then(|| wished(context, role))
        .flatten();
    let evicted = of_role(context, role).filter(|m| is_evicted(context, m));
    let evicted = evicted.min_by_key(|m| (!has_begun(context, m), &m.name));
    let evicted = evicted.map(|machine| (machine, Departure::Evicted));
    let moves = if evicted.is_none() && is_settled && asked {
        let shares = share::machine(context, draft, role);
        shares.map(|machine| (machine, Departure::CoLocated))
    } else {
        evicted
    };
    // Of two members none can be spared for a while: first there must be one again, or three.
    match (moves, wish) {
        (Some((machine, _)), Some(wish)) if !quorum::may_move(context, machine) => Some(wish),
        (Some((machine, why)), _) => Some(Turn { machine, why }),
        (None, wish) => wish,
    }
}

/// Machines of this role that the operator may take away by a departure.
pub(super) fn of_role<'c, 'a>(
    context: &'c Context<'a>,
    role: Role,
) -> impl Iterator<Item = &'c MachineView<'a>> {
    let machines = context.machines.values();
    machines.filter(move |m| m.role == role && may_depart(m))
}

/// One that was given up has a way off of its own (`replace.rs`); on two at once it would leave the
/// endpoint and enter it in turn.
fn may_depart(machine: &MachineView<'_>) -> bool {
    !machine.is_leaving() && !machine.is_unmanaged() && machine.phase() != Phase::Failed
}

/// A machine that serves nobody: lost, or failed for long.
fn failure<'c, 'a>(
    context: &'c Context<'a>,
    draft: &mut Draft,
    role: Role,
) -> Option<Turn<'c, 'a>> {
    if let Some(machine) = of_role(context, role).find(|m| is_lost(context, m)) {
        return Some(Turn {
            machine,
            why: Departure::Lost,
        });
    }
    let failed = of_role(context, role).filter(|m| has_failed(context, m));
    // One that was chosen stays chosen as long as it has failed.
    let machine = failed.min_by_key(|m| (m.leaves() != Some(Departure::Unhealthy), &m.name))?;
    may_repair(context, draft, machine).then_some(Turn {
        machine,
        why: Departure::Unhealthy,
    })
}

/// Its member is out of etcd: it can only go on.
fn is_past_return(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    let is_member = machine.member.is_some() || context.seen.etcd.known().is_none();
    machine.role == Role::ControlPlane && machine.joined_before() && !is_member
}

fn is_evicted(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    let stays = machine.instance.is_some_and(|i| !i.meta.deleting);
    stays && !machine.is_stopped() && emptied::is_asked_away(context, machine)
}

/// Something of its departure was done already.
pub(super) fn has_begun(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    let launcher = machine.instance.and_then(|i| i.launcher.as_ref());
    machine
        .node
        .is_some_and(|node| node.drained_since.is_some())
        || launcher.is_some_and(|pod| pod.out_since.is_some())
        || alive::is_under_way(context, machine)
}

/// A person deleted its VM, and the guest can do without it. Where it cannot, the machine comes back
/// on its disks (`machines.rs`).
pub(super) fn is_lost(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    machine.is_lost()
        && machine.asked
        && machine.joined_before()
        && (machine.role == Role::Worker || quorum::allows(context, machine, Departure::Lost))
}

/// It has not served for long, and not because its host waits to be fenced.
fn has_failed(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    let patience = context.wanted.settings.unhealthy_after();
    let since = machine.unhealthy_since(context.now);
    let over = since.is_some_and(|since| context.now.duration_since(since) >= patience);
    let stranded = machine.role == Role::Worker && machine.host_is_dead;
    over && !stranded && machine.asked
}

/// Failures that follow one another have a cause that a new machine does not cure.
fn may_repair(context: &Context<'_>, draft: &mut Draft, machine: &MachineView<'_>) -> bool {
    if machine.leaves() == Some(Departure::Unhealthy) {
        return true;
    }
    if machine.role == Role::ControlPlane && context.wanted.control_plane_size() == 1 {
        draft.hold_for_person(
            Reason::Unhealthy,
            format!(
                "{} does not serve and is the only control-plane machine: it holds the only copy \
                 of etcd and is never replaced; see its console, or restore from a snapshot",
                machine.name
            ),
        );
        return false;
    }
    let (count, last) = repairs(context.previous, &machine.pool);
    let Some(last) = last.filter(|last| context.now.duration_since(*last) < CALM) else {
        return true;
    };
    if count >= REPAIRS {
        draft.hold_for_person(
            Reason::RepairLimit,
            format!(
                "{} does not serve, and {count} machines of pool {} were replaced before it: find \
                 the cause; the next one is replaced an hour after the last",
                machine.name, machine.pool
            ),
        );
        return false;
    }
    let wait = SignedDuration::from_mins(1 << count.min(REPAIRS));
    if context.now < last + wait {
        draft.look_again(last + wait, "the next repair");
        return false;
    }
    true
}

/// How many machines of a pool were replaced because they failed, and when the last one was.
pub(crate) fn repairs(status: &GuestClusterStatus, pool: &str) -> (u32, Option<Timestamp>) {
    if pool == guestcluster_api::names::CONTROL_PLANE_POOL {
        let cp = &status.control_plane;
        return (cp.repairs, cp.last_repair.as_ref().map(|time| time.0));
    }
    let pool = status.workers.iter().find(|p| p.name == pool);
    pool.map_or((0, None), |p| {
        (p.repairs, p.last_repair.as_ref().map(|time| time.0))
    })
}

/// A machine that is too many or outdated.
fn wished<'c, 'a>(context: &'c Context<'a>, role: Role) -> Option<Turn<'c, 'a>> {
    for pool in context.wanted.pools.iter().filter(|p| p.role == role) {
        let target = rollout::target(context, pool);
        if let Some(turn) = of_pool(context, (pool, &target)) {
            return Some(turn);
        }
    }
    let unwanted = |m: &&MachineView<'_>| {
        m.role == role && context.wanted.pool(&m.pool).is_none() && is_choosable(m)
    };
    let left: Vec<_> = context.machines.values().filter(unwanted).collect();
    let machine = victim(&left, |_| false)?;
    Some(Turn {
        machine,
        why: Departure::Surplus,
    })
}

fn of_pool<'c, 'a>(
    context: &'c Context<'a>,
    (pool, target): (&Pool, &Target),
) -> Option<Turn<'c, 'a>> {
    let machines = rollout::counted(context, &pool.name);
    let outdated = |m: &MachineView<'_>| rollout::is_outdated(context, pool, m);
    let choosable: Vec<_> = machines
        .iter()
        .copied()
        .filter(|m| is_choosable(m))
        .collect();
    let excess = machines.len().saturating_sub(target.replicas);
    let why = match (excess, target.outdated) {
        (0, 0) => return None,
        (excess, outdated) if outdated == 0 || excess > target.surge => Departure::Surplus,
        (excess, _) if excess > 0 || target.deletes_first => Departure::Outdated,
        _ => return None,
    };
    let candidates: Vec<_> = choosable
        .into_iter()
        .filter(|m| why == Departure::Surplus || outdated(m))
        .collect();
    let machine = victim(&candidates, outdated)?;
    let stays_available = |m: &MachineView<'_>| {
        let ready = machines
            .iter()
            .filter(|m| m.phase() == Phase::Ready)
            .count();
        let left = ready - usize::from(m.phase() == Phase::Ready);
        left >= target.replicas.saturating_sub(target.max_unavailable)
    };
    let ok =
        why == Departure::Surplus || pool.role == Role::ControlPlane || stays_available(machine);
    ok.then_some(Turn { machine, why })
}

fn is_choosable(machine: &MachineView<'_>) -> bool {
    may_depart(machine) && !machine.is_stopped()
}

/// Which of several machines leaves: one that was chosen before, one without VM, one that does not
/// serve, an outdated one, one of the most crowded host, the oldest.
fn victim<'c, 'a>(
    candidates: &[&'c MachineView<'a>],
    outdated: impl Fn(&MachineView<'a>) -> bool,
) -> Option<&'c MachineView<'a>> {
    let crowd = |m: &MachineView<'_>| {
        let there = |other: &&&MachineView<'_>| m.host().is_some() && other.host() == m.host();
        candidates.iter().filter(there).count()
    };
    candidates.iter().copied().min_by_key(|m| {
        (
            m.leaves().is_none(),
            m.vm.is_some(),
            m.phase() == Phase::Ready,
            !outdated(m),
            std::cmp::Reverse(crowd(m)),
            m.ordinal,
        )
    })
}
