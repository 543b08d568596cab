//! Makes the machines that are missing.
//!
//! The first control-plane machine initialises the guest. Once it answers, all workers join, and the
//! other control-plane machines each as soon as the one before it votes in etcd (ADR 0005).

use std::collections::BTreeMap;

use guestcluster_api::Reason;
use guestcluster_api::labels::Role;
use guestcluster_api::names;
use k8s_openapi::jiff::SignedDuration;

use super::foundation::is_taken;
use super::{Context, Draft, Flow, host_refusals};
use crate::action::{Action, FirstBoot, UserData};
use crate::machines::{MachineView, Phase};
use crate::observed::{Probe, Vm};
use crate::render;
use crate::wanted::Pool;

pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let wanted = context
        .wanted
        .pools
        .iter()
        .map(|pool| (pool, names_wanted(context, draft, pool)))
        .collect::<Vec<_>>();
    say_unwanted(context, draft);
    say_stopped(context, draft);
    say_outdated(context, draft);
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
    let fresh = wanted.iter().any(|(_, names)| names.fresh);
    draft.look_again(context.now + pause(context, fresh), "machines");
    Flow::Next
}

/// Time until the next look, if nothing else calls for one: the guest has no watch. A guest that grows
/// waits for us several times, each time for half of this in the mean.
fn pause(context: &Context<'_>, fresh: bool) -> SignedDuration {
    let phases = || context.machines.values().map(MachineView::phase);
    let on_its_way = |phase| {
        matches!(
            phase,
            Phase::Wanted
                | Phase::Creating
                | Phase::Booting
                | Phase::Joined
                | Phase::Failed
                | Phase::Leaving
        )
    };
    let silent = matches!(context.seen.guest, Probe::Unreachable(_));
    if fresh || phases().any(on_its_way) {
        SignedDuration::from_millis(500)
    } else if silent || phases().any(|phase| phase == Phase::Unhealthy) {
        SignedDuration::from_secs(5)
    } else {
        SignedDuration::from_mins(1)
    }
}

/// Machines of a pool that should exist.
struct Names {
    /// Those that exist or are recorded.
    all: Vec<String>,
    /// Some of them have no object yet.
    fresh: bool,
    /// The highest ordinal to record before more can be made.
    record: Option<u32>,
}

fn names_wanted(context: &Context<'_>, draft: &mut Draft, pool: &Pool) -> Names {
    // One that failed counts until it really goes: it may still come back by itself, and then its
    // successor would be one too many.
    let stays = |m: &&MachineView<'_>| m.phase() != Phase::Leaving;
    let mut all = context
        .machines
        .values()
        .filter(|m| m.pool == pool.name)
        .filter(stays)
        .map(|m| m.name.clone())
        .collect::<Vec<_>>();
    let existing = count(all.len());
    say_surplus(draft, pool, existing);
    let missing = size(context, draft, (pool, existing)).saturating_sub(existing);
    let reserved = context.ordinals().reserved(&pool.name);
    let unrecorded = missing.saturating_sub(count(reserved.len()));
    all.extend(
        reserved
            .into_iter()
            .take(usize::try_from(missing).unwrap_or(usize::MAX)),
    );
    Names {
        fresh: missing > 0,
        record: (unrecorded > 0).then(|| context.ordinals().last(&pool.name) + unrecorded),
        all,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// How many machines the pool may have on the hosts there are. A control plane stays odd: four
/// members tolerate no more than three do.
///
/// Hosts that are down for a while are no concern of machines that exist.
fn size(context: &Context<'_>, draft: &mut Draft, (pool, existing): (&Pool, u32)) -> u32 {
    if pool.role == Role::Worker || existing >= pool.replicas {
        return pool.replicas;
    }
    let refusals = host_refusals(pool, context.seen);
    let hosts = context.seen.infra.hosts.len();
    let eligible = count(hosts - refusals.len());
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
    let size = size.max(existing);
    let detail = if reasons.is_empty() {
        String::new()
    } else {
        format!(": {}", reasons.join("; "))
    };
    draft.hold(
        Reason::TooFewHosts,
        format!(
            "{} control-plane machines need as many hosts, and {eligible} of {hosts} can take one\
             {detail}. There will be {size}; add hosts or lower spec.controlPlane.replicas",
            pool.replicas
        ),
    );
    size
}

fn say_surplus(draft: &mut Draft, pool: &Pool, existing: u32) {
    if existing > pool.replicas {
        draft.hold_for_person(
            Reason::Surplus,
            format!(
                "pool {} has {existing} machines and {} are asked for; this release does not \
                 remove machines: set replicas back to {existing}",
                pool.name, pool.replicas
            ),
        );
    }
}

/// Machines that an earlier specification made: a template is written once, and only a rollout
/// replaces machines.
fn say_outdated(context: &Context<'_>, draft: &mut Draft) {
    for pool in &context.wanted.pools {
        let wanted = render::template_hash(context.wanted, pool);
        let vms = context
            .machines
            .values()
            .filter(|m| m.pool == pool.name)
            .filter_map(|m| m.vm);
        let outdated = |vm: &&Vm| {
            vm.template_hash
                .as_ref()
                .is_some_and(|hash| *hash != wanted)
        };
        let count = vms.filter(outdated).count();
        if count > 0 {
            draft.hold_for_person(
                Reason::Outdated,
                format!(
                    "{count} machines of pool {} were made from an earlier specification; this \
                     release does not replace machines: set version, image, machine and placement \
                     back",
                    pool.name
                ),
            );
        }
    }
}

/// Machines that a person stopped: they stay so.
fn say_stopped(context: &Context<'_>, draft: &mut Draft) {
    let stopped = |m: &&MachineView<'_>| m.phase() == Phase::Stopped;
    for machine in context.machines.values().filter(stopped) {
        let name = &machine.name;
        draft.hold_for_person(
            Reason::StoppedByUser,
            format!(
                "{name} was stopped and is left so: start it with `virtctl start {name} -n {}`",
                context.wanted.identity.namespace
            ),
        );
    }
}

/// Machines of pools that the specification does not name any more.
fn say_unwanted(context: &Context<'_>, draft: &mut Draft) {
    let unwanted = |m: &&MachineView<'_>| context.wanted.pool(&m.pool).is_none();
    if let Some(machine) = context.machines.values().find(unwanted) {
        draft.hold_for_person(
            Reason::Surplus,
            format!(
                "pool {} is not in the specification any more and still has machines; this release \
                 does not remove machines: put the pool back",
                machine.pool
            ),
        );
    }
}

/// Makes what a machine lacks. Disks and address come at once, so that they are there when the
/// machine's turn to boot has come.
fn make(context: &Context<'_>, draft: &mut Draft, (pool, name): (&Pool, &String)) {
    let machine = context.machines.get(name);
    let is_made = |m: &MachineView<'_>| m.vm.is_some() || m.phase() == Phase::Failed;
    if machine.is_some_and(|machine| is_made(machine) || !has_its_disk(draft, machine)) {
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
    let has_document = machine.is_some_and(|machine| machine.user_data.is_some());
    // A machine of a guest that exists comes back whatever the guest says now: a person deleted its
    // VM, and it may be the one that the guest waits for.
    let comes_back = has_document && context.initialised();
    if !comes_back {
        let address = service.and_then(|service| service.cluster_ip.clone());
        let has_address = pool.role == Role::Worker || address.is_some();
        let boot = first_boot(context, draft, (pool, name));
        let (Some(boot), true, Some(endpoint)) = (boot, has_address, context.endpoint()) else {
            return;
        };
        if !has_document {
            draft.act(Action::WriteUserData(Box::new(UserData {
                machine: name.clone(),
                pool: pool.name.clone(),
                boot,
                endpoint,
                address,
                metadata: render::user_data_metadata(wanted, pool, name),
            })));
        }
    }
    draft.act(Action::Create(render::vm(wanted, pool, name)));
}

/// Whether a machine that has booted still has the disk that it booted from. On an empty one etcd
/// would start as another member under the old one's name.
fn has_its_disk(draft: &mut Draft, machine: &MachineView<'_>) -> bool {
    if !machine.has_lost_disk() {
        return true;
    }
    draft.hold_for_person(
        Reason::Degraded,
        format!(
            "the root disk of {} is gone, and it does not come back on an empty one: restore \
             DataVolume {}, or delete the cluster",
            machine.name,
            names::root_disk(&machine.name)
        ),
    );
    false
}

/// How the machine comes in, if its turn has come.
fn first_boot(
    context: &Context<'_>,
    draft: &Draft,
    (pool, name): (&Pool, &str),
) -> Option<FirstBoot> {
    if !context.initialised() {
        let leads = pool.role == Role::ControlPlane && leads(context, pool, name);
        return leads.then_some(FirstBoot::Init);
    }
    context.seen.guest.known()?;
    if pool.role == Role::Worker {
        return Some(FirstBoot::JoinWorker);
    }
    // etcd takes one learner at a time. A machine that joined meanwhile would wait for its turn with
    // its kubelet running, which tries ever more seldom to reach an API server that is not there yet.
    let with_vm = |m: &&MachineView<'_>| m.pool == pool.name && m.vm.is_some();
    let control_plane = context.machines.values().filter(with_vm);
    let mut others = control_plane.filter(|m| m.phase() != Phase::Leaving);
    let free = others.all(|m| m.has_joined() || m.votes()) && !draft.begins_join(&pool.name);
    free.then_some(FirstBoot::JoinControlPlane)
}

/// Whether this machine initialises the guest: it has begun to, or none has and it is the first by
/// ordinal of those there are. One that was given up must be off before another begins: while its
/// API server stood behind the endpoint, kubeadm would write half of the new guest into the old.
fn leads(context: &Context<'_>, pool: &Pool, name: &str) -> bool {
    let of_pool = || context.machines.values().filter(|m| m.pool == pool.name);
    let is_on = |m: &MachineView<'_>| m.vm.is_some() || m.instance.is_some();
    if of_pool().any(|m| m.name != name && is_on(m)) {
        return false;
    }
    let stays = |m: &&MachineView<'_>| !matches!(m.phase(), Phase::Leaving | Phase::Failed);
    let leader = of_pool()
        .filter(stays)
        .min_by_key(|m| (m.user_data.is_none(), m.ordinal));
    leader.is_none_or(|leader| leader.name == name)
}
