//! Control-plane machines that share a host, however it came about: a Pod that somebody bound by hand
//! never passed the scheduler and its rules. One after another is stopped, and starts elsewhere,
//! where the scheduler puts it.

use std::collections::BTreeMap;

use guestcluster_api::Reason;
use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_api::spec::{CoLocation, Profile};
use guestcluster_placement::{Rollout, reasons};

use super::alive;
use super::choice::{has_begun, of_role};
use crate::decide::{Context, Draft, rollout};
use crate::machines::MachineView;
use crate::wanted::Wanted;

/// Hosts that carry several control-plane machines which stay there, where none may.
fn shared_hosts<'m>(
    wanted: &Wanted,
    machines: &'m BTreeMap<String, MachineView<'_>>,
) -> BTreeMap<&'m str, Vec<&'m str>> {
    let mut hosts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    if wanted.profile == Profile::Lab {
        return hosts;
    }
    let stays = |m: &&MachineView<'_>| {
        let goes = m.instance.is_none_or(|instance| instance.meta.deleting);
        m.role == Role::ControlPlane && !goes
    };
    for machine in machines.values().filter(stays) {
        if let Some(host) = machine.host() {
            hosts.entry(host).or_default().push(&machine.name);
        }
    }
    hosts.retain(|_, machines| machines.len() > 1);
    hosts
}

/// The machine that is to be moved from a shared host, if another host takes it: the one whose move
/// has begun, else one that does not lead etcd, else the newest. Says why if none is moved.
pub(super) fn machine<'c, 'a>(
    context: &'c Context<'a>,
    draft: &mut Draft,
    role: Role,
) -> Option<&'c MachineView<'a>> {
    if role != Role::ControlPlane {
        return None;
    }
    let hosts = shared_hosts(context.wanted, &context.machines);
    let (host, sharing) = hosts.first_key_value()?;
    let together = format!("{} share {host}", sharing.join(" and "));
    if context.wanted.co_location == CoLocation::Report {
        draft.hold(
            Reason::HostShared,
            format!(
                "{together}: its loss would take them all. They are left there, since \
                 spec.repair.coLocation is Report"
            ),
        );
        return None;
    }
    let leader = context.seen.etcd.known().and_then(|etcd| etcd.leader);
    let leads = |m: &MachineView<'_>| m.member.is_some_and(|member| Some(member.id) == leader);
    let candidates = of_role(context, role)
        .filter(|m| sharing.contains(&&*m.name) && m.joined_before() && !m.is_stopped());
    let chosen = candidates.min_by_key(|m| {
        (
            !has_begun(context, m),
            leads(m),
            std::cmp::Reverse(m.ordinal),
        )
    })?;
    // What moves has found its host, which its own Pod keeps from others.
    if !alive::is_under_way(context, chosen)
        && let Err(why) = another_host(context, chosen)
    {
        draft.hold(
            Reason::HostShared,
            format!(
                "{together}: its loss would take them all, and no other host takes {}: {why}. Add \
                 a host or make room on one",
                chosen.name
            ),
        );
        return None;
    }
    Some(chosen)
}

/// Whether a host takes the machine while it is still where it is; else why none does.
fn another_host(context: &Context<'_>, machine: &MachineView<'_>) -> Result<(), String> {
    let Some(pool) = context.wanted.pool(names::CONTROL_PLANE_POOL) else {
        return Err("there is no control-plane pool".to_owned());
    };
    let machines = rollout::counted(context, &pool.name);
    let hosts = (&*context.seen.infra.hosts, &*machine.name);
    match rollout::room(context, (pool, &machines), hosts) {
        Rollout::Surge { .. } => Ok(()),
        Rollout::DeleteFirst { why, .. } | Rollout::Neither { why } => Err(reasons(&why)),
    }
}
