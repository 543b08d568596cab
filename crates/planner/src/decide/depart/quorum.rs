//! Whether etcd can do without a member, for a while or for good.

use guestcluster_api::labels::Role;

use crate::decide::{Context, rollout};
use crate::departure::Departure;
use crate::machines::{MachineView, Phase};
use crate::observed::{Etcd, EtcdMember};

/// Whether the voters besides `member` that answer are a quorum, of all there will be then.
///
/// A member that comes back, or whose successor is still `to_come`, is counted as one that does not
/// answer: it is no help until it votes.
pub(in crate::decide) fn spares(etcd: &Etcd, member: &EtcdMember, to_come: bool) -> bool {
    let others = || {
        let voters = etcd.members.iter().filter(|m| !m.learner);
        voters.filter(|m| m.id != member.id)
    };
    let healthy = others().filter(|m| m.healthy).count();
    let voters = others().count() + usize::from(to_come);
    etcd.leader.is_some() && healthy * 2 > voters
}

/// Whether etcd was asked and spares the machine; one that is no member is spared by everybody.
pub(super) fn allows(context: &Context<'_>, machine: &MachineView<'_>, why: Departure) -> bool {
    let Some(etcd) = context.seen.etcd.known() else {
        return false;
    };
    let to_come = is_to_come(context, machine, why);
    machine
        .member
        .is_none_or(|member| spares(etcd, member, to_come))
}

/// Whether etcd can do without the machine while it moves, or has no other member anyway.
pub(super) fn may_move(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    let is_alone = context.seen.etcd.known().is_some_and(has_one_voter);
    machine.role == Role::Worker || is_alone || allows(context, machine, Departure::Evicted)
}

fn has_one_voter(etcd: &Etcd) -> bool {
    etcd.members.iter().filter(|m| !m.learner).count() == 1
}

/// The machine comes back, or another one will join in its place.
fn is_to_come(context: &Context<'_>, machine: &MachineView<'_>, why: Departure) -> bool {
    let pool = context.wanted.pool(&machine.pool);
    let replicas = pool.map_or(0, |pool| pool.replicas);
    let others = rollout::counted(context, &machine.pool).into_iter();
    let stay = others.filter(|m| m.name != machine.name).count();
    why.returns() || u32::try_from(stay).is_ok_and(|stay| stay < replicas)
}

/// What stands against taking a control-plane machine away now; nothing if the guest stays whole.
pub(super) fn objection(
    context: &Context<'_>,
    machine: &MachineView<'_>,
    why: Departure,
) -> Option<String> {
    if context.seen.guest.known().is_none() {
        return Some("the guest does not answer".to_owned());
    }
    if machine.role == Role::Worker {
        return None;
    }
    let Some(etcd) = context.seen.etcd.known() else {
        return Some("etcd does not answer".to_owned());
    };
    // It is out of etcd already and serves nobody: whatever became of the others since, it goes on, and
    // would be in their way.
    if machine.member.is_none() && machine.joined_before() {
        return None;
    }
    let own = |m: &EtcdMember| machine.member.is_some_and(|member| member.id == m.id);
    let mut others = etcd.members.iter().filter(|m| !own(m));
    if let Some(learner) = others.find(|m| m.learner) {
        return Some(format!("etcd has a learner ({:x})", learner.id));
    }
    let failed = matches!(why, Departure::Lost | Departure::Unhealthy);
    if let Some(other) = (!failed).then(|| unready(context, machine, why)).flatten() {
        return Some(other);
    }
    let member = machine.member.filter(|member| !member.learner)?;
    // A guest with one member is away while its machine moves: nothing else could be done.
    if has_one_voter(etcd) && why.returns() {
        return None;
    }
    let sick = etcd.members.iter().find(|m| !own(m) && !m.healthy);
    if let Some(sick) = sick.filter(|_| !failed) {
        return Some(format!("etcd member {} does not answer", sick.name));
    }
    let to_come = is_to_come(context, machine, why);
    (!spares(etcd, member, to_come)).then(|| "the other members are no quorum".to_owned())
}

/// Another control-plane machine that does not serve. Whoever waits for a host to be drained does not
/// wait for machines that have never joined.
fn unready(context: &Context<'_>, machine: &MachineView<'_>, why: Departure) -> Option<String> {
    let mut others = context.machines.values().filter(|m| {
        let counts = !why.returns() || m.joined_before();
        m.role == Role::ControlPlane && m.name != machine.name && !m.is_leaving() && counts
    });
    let other = others.find(|m| m.phase() != Phase::Ready)?;
    Some(format!("{} is {}", other.name, other.phase().as_str()))
}
