//! Makes the machines that are missing.
//!
//! The first control-plane machine initialises the guest. Once it answers, everything else joins at
//! once: kubeadm waits while etcd has a learner, so that joins of control-plane machines queue up by
//! themselves (ADR 0005). Later additions to a control plane come one at a time.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::Reason;
use guestcluster_api::labels::Role;
use guestcluster_api::names;

use super::foundation::is_taken;
use super::{Context, Draft, Flow, host_refusals};
use crate::action::{Action, FirstBoot, UserData};
use crate::machines::{MachineView, Phase, recorded};
use crate::render;
use crate::wanted::Pool;

pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let wanted = context
        .wanted
        .pools
        .iter()
        .map(|pool| (pool, names_wanted(context, draft, pool)))
        .collect::<Vec<_>>();
    let unrecorded = wanted
        .iter()
        .filter_map(|(pool, names)| Some((pool.name.clone(), names.record?)))
        .collect::<BTreeMap<_, _>>();
    if !unrecorded.is_empty() {
        draft.act(Action::RecordOrdinals(unrecorded));
        return Flow::Stop;
    }
    for (pool, names) in &wanted {
        for name in &names.all {
            make(context, draft, (pool, name));
        }
    }
    draft.look_again(
        context.in_seconds(if settled(context) { 60 } else { 1 }),
        "machines",
    );
    Flow::Next
}

/// Nothing is on its way.
fn settled(context: &Context<'_>) -> bool {
    let ready = |m: &MachineView<'_>| matches!(m.phase(), Phase::Ready | Phase::Stopped);
    let wanted = context.wanted.control_plane_size() + context.wanted.worker_count();
    let count = context.machines.values().filter(|m| ready(m)).count();
    count == usize::try_from(wanted).unwrap_or(usize::MAX)
}

/// Machines of a pool that should exist.
struct Names {
    /// Those that exist or are reserved.
    all: Vec<String>,
    /// The highest ordinal to record before more can be made.
    record: Option<u32>,
}

fn names_wanted(context: &Context<'_>, draft: &mut Draft, pool: &Pool) -> Names {
    let existing = context
        .machines
        .values()
        .filter(|m| m.pool == pool.name && !matches!(m.phase(), Phase::Leaving | Phase::Failed))
        .map(|m| m.name.clone())
        .collect::<Vec<_>>();
    let size = size(context, draft, pool);
    let missing = size.saturating_sub(u32::try_from(existing.len()).unwrap_or(u32::MAX));
    if missing == 0 {
        say_surplus(draft, pool, existing.len());
        return Names {
            all: existing,
            record: None,
        };
    }
    let recorded = recorded_ordinal(context, pool);
    let fresh = recorded.saturating_sub(highest_used(context, pool));
    if fresh < missing {
        return Names {
            all: existing,
            record: Some(recorded.max(highest_used(context, pool)) + missing),
        };
    }
    // The highest ones: lower ordinals that were recorded may belong to machines that are gone.
    let first = recorded - missing + 1;
    let cluster = &context.wanted.identity.name;
    let fresh = (first..=recorded).map(|ordinal| names::machine(cluster, &pool.name, ordinal));
    Names {
        all: existing.into_iter().chain(fresh).collect(),
        record: None,
    }
}

/// How many machines the pool may have on the hosts there are. A control plane stays odd: four
/// members tolerate no more than three do.
fn size(context: &Context<'_>, draft: &mut Draft, pool: &Pool) -> u32 {
    if pool.role == Role::Worker {
        return pool.replicas;
    }
    let refusals = host_refusals(pool, context.seen);
    let hosts = context.seen.infra.hosts.len();
    let eligible = u32::try_from(hosts - refusals.len()).unwrap_or(u32::MAX);
    if eligible >= pool.replicas {
        return pool.replicas;
    }
    let reasons = refusals
        .iter()
        .map(|(host, why)| format!("{host} {why}"))
        .collect::<Vec<_>>();
    let size = if eligible == 0 {
        0
    } else {
        eligible - (eligible + 1) % 2
    };
    let detail = if reasons.is_empty() {
        String::new()
    } else {
        format!(": {}", reasons.join("; "))
    };
    draft.hold(
        Reason::TooFewHosts,
        format!(
            "{} control-plane machines need as many hosts, and {eligible} of {hosts} can take one\
             {detail}. {size} are made; add hosts or lower spec.controlPlane.replicas",
            pool.replicas
        ),
    );
    size
}

fn say_surplus(draft: &mut Draft, pool: &Pool, existing: usize) {
    let surplus = existing.saturating_sub(usize::try_from(pool.replicas).unwrap_or(usize::MAX));
    if surplus > 0 {
        draft.hold_for_person(
            Reason::Surplus,
            format!(
                "pool {} has {surplus} machines more than asked for; this release does not remove \
                 machines: set replicas back to {existing}",
                pool.name
            ),
        );
    }
}

fn recorded_ordinal(context: &Context<'_>, pool: &Pool) -> u32 {
    if pool.role == Role::ControlPlane {
        return context.previous.control_plane.last_ordinal;
    }
    let pools = &context.previous.workers;
    pools
        .iter()
        .find(|p| p.name == pool.name)
        .map_or(0, |p| p.last_ordinal)
}

/// The highest ordinal that was certainly used: by objects, in the last status, in the guest.
fn highest_used(context: &Context<'_>, pool: &Pool) -> u32 {
    let cluster = &context.wanted.identity.name;
    let guest = context
        .seen
        .guest
        .known()
        .into_iter()
        .flat_map(|guest| guest.nodes.keys());
    let etcd = context
        .seen
        .etcd
        .known()
        .into_iter()
        .flat_map(|etcd| &etcd.members);
    let names = recorded(context.previous)
        .map(|machine| &machine.name)
        .chain(guest)
        .chain(etcd.map(|member| &member.name))
        .chain(context.machines.keys());
    names
        .filter_map(|name| names::ordinal(cluster, &pool.name, name))
        .max()
        .unwrap_or(0)
}

/// Makes what a machine lacks. Disks and address come at once, so that they are there when the
/// machine's turn to boot has come.
fn make(context: &Context<'_>, draft: &mut Draft, (pool, name): (&Pool, &String)) {
    let machine = context.machines.get(name);
    if machine.is_some_and(|machine| machine.vm.is_some()) {
        return;
    }
    let wanted = context.wanted;
    if is_taken(context, draft, name) || is_taken(context, draft, &names::root_disk(name)) {
        return;
    }
    let service = machine.and_then(|machine| machine.service);
    if pool.role == Role::ControlPlane && service.is_none() {
        draft.act(Action::Create(render::address_service(wanted, pool, name)));
    }
    let disks = [
        Some(render::root_disk(wanted, pool, name)),
        render::etcd_disk(wanted, pool, name),
    ];
    for disk in disks.into_iter().flatten() {
        if !context.seen.disks.contains_key(&disk.name) {
            draft.act(Action::Create(disk));
        }
    }
    let address = service.and_then(|service| service.cluster_ip.clone());
    let has_address = pool.role == Role::Worker || address.is_some();
    let (Some(boot), true, Some(endpoint)) = (
        first_boot(context, pool, name),
        has_address,
        context.endpoint(),
    ) else {
        return;
    };
    if machine.and_then(|machine| machine.user_data).is_none() {
        draft.act(Action::WriteUserData(Box::new(UserData {
            machine: name.clone(),
            pool: pool.name.clone(),
            boot,
            endpoint,
            address,
            metadata: render::user_data_metadata(wanted, pool, name),
        })));
    }
    draft.act(Action::Create(render::vm(wanted, pool, name)));
}

/// How the machine comes in, if its turn has come.
fn first_boot(context: &Context<'_>, pool: &Pool, name: &str) -> Option<FirstBoot> {
    if !context.initialised() {
        let leads =
            pool.role == Role::ControlPlane && leader(context, pool).is_none_or(|l| l == name);
        return leads.then_some(FirstBoot::Init);
    }
    context.seen.guest.known()?;
    if pool.role == Role::Worker {
        return Some(FirstBoot::JoinWorker);
    }
    let control_plane = context.machines.values().filter(|m| m.pool == pool.name);
    let (joined, on_its_way): (BTreeSet<_>, BTreeSet<_>) = control_plane
        .filter(|m| m.vm.is_some() && m.phase() != Phase::Leaving)
        .map(|m| (m.has_joined(), m.name.clone()))
        .fold(
            (BTreeSet::new(), BTreeSet::new()),
            |(mut joined, mut other), (has, name)| {
                if has {
                    joined.insert(name)
                } else {
                    other.insert(name)
                };
                (joined, other)
            },
        );
    let is_new = joined.len() == 1;
    (is_new || on_its_way.is_empty()).then_some(FirstBoot::JoinControlPlane)
}

/// The machine that initialises the guest: one that has begun to, else the first by ordinal of
/// those there are or will be.
fn leader(context: &Context<'_>, pool: &Pool) -> Option<String> {
    let alive = |m: &&MachineView<'_>| {
        m.pool == pool.name && !matches!(m.phase(), Phase::Leaving | Phase::Failed)
    };
    let of_pool = || context.machines.values().filter(alive);
    let begun = of_pool().filter(|m| m.user_data.is_some());
    let first = |a: &&MachineView<'_>, b: &&MachineView<'_>| a.ordinal.cmp(&b.ordinal);
    begun
        .min_by(first)
        .or_else(|| of_pool().min_by(first))
        .map(|m| m.name.clone())
}
