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
use super::replace::delete;
use super::{Context, Draft, Flow, configuration, depart, host_refusals, rollout, room};
use crate::action::{Action, FirstBoot, Kind, UserData};
use crate::machines::{MachineView, Phase};
use crate::observed::{Disk, Probe};
use crate::render;
use crate::wanted::Pool;

pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let wanted = context
        .wanted
        .pools
        .iter()
        .map(|pool| (pool, names_wanted(context, draft, pool)))
        .collect::<Vec<_>>();
    say_stopped(context, draft);
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
    let silent = matches!(context.seen.guest, Probe::Unreachable(_))
        || matches!(context.seen.endpoint, Probe::Unreachable(_));
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
    let size = size(context, draft, (pool, existing));
    draft.size(&pool.name, size);
    let missing = size.saturating_sub(existing);
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

pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// How many machines the pool is to have now: those asked for, and one or a few more while outdated
/// ones are replaced.
fn size(context: &Context<'_>, draft: &mut Draft, (pool, existing): (&Pool, u32)) -> u32 {
    let target = rollout::target(context, pool);
    if let Some(note) = &target.note {
        if target.is_stuck {
            draft.hold_for_person(Reason::Outdated, note);
        } else {
            draft.hold(Reason::Outdated, note);
        }
    }
    if existing < pool.replicas && waits_for_control_plane(context, draft, pool) {
        return existing;
    }
    let mut size = fitting(context, draft, (pool, existing));
    if size >= pool.replicas {
        size = size.saturating_add(count(target.surge));
    }
    room::admitted(context, draft, (pool, existing, size))
}

/// A kubelet must not be newer than an API server: workers of another version come after the control
/// plane has it.
fn waits_for_control_plane(context: &Context<'_>, draft: &mut Draft, pool: &Pool) -> bool {
    let runs = context
        .previous
        .version
        .as_ref()
        .filter(|_| pool.role == Role::Worker);
    let Some(runs) = runs.filter(|runs| **runs != context.wanted.version) else {
        return false;
    };
    draft.hold(
        Reason::Outdated,
        format!(
            "new machines of pool {} wait until the control plane runs {}: it runs {runs}",
            pool.name, context.wanted.version
        ),
    );
    true
}

/// How many of the machines asked for there may be, and why not all.
fn fitting(context: &Context<'_>, draft: &mut Draft, (pool, existing): (&Pool, u32)) -> u32 {
    let existing = usize::try_from(existing).unwrap_or(usize::MAX);
    let size = count(rollout::attainable(context, pool, existing));
    if size >= pool.replicas {
        return size;
    }
    let refusals = host_refusals(pool, context.seen);
    let hosts = context.seen.infra.hosts.len();
    let eligible = hosts - refusals.len();
    let reasons = refusals
        .iter()
        .map(|(host, why)| format!("{host} {why}"))
        .collect::<Vec<_>>();
    let detail = if reasons.is_empty() {
        String::new()
    } else {
        format!(": {}", reasons.join("; "))
    };
    let (need, cure) = match pool.replicas {
        1 => (
            "the control-plane machine needs a host".to_owned(),
            "Add a host".to_owned(),
        ),
        many => (
            format!("{many} control-plane machines need as many hosts"),
            format!("There will be {size}; add hosts or lower spec.controlPlane.replicas"),
        ),
    };
    draft.hold(
        Reason::TooFewHosts,
        format!("{need}, and {eligible} of {hosts} can take one{detail}. {cure}"),
    );
    size
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

/// Makes what a machine lacks. Disks and address come at once, so that they are there when the
/// machine's turn to boot has come.
fn make(context: &Context<'_>, draft: &mut Draft, (pool, name): (&Pool, &String)) {
    let machine = context.machines.get(name);
    let waits = |m: &MachineView<'_>| {
        let is_made = m.vm.is_some() || m.instance.is_some();
        is_made || is_given_up(context, m) || depart::replaces(context, m)
    };
    if machine.is_some_and(|machine| waits(machine) || !has_its_disk(draft, machine)) {
        return;
    }
    let wanted = context.wanted;
    if is_taken(context, draft, name) || is_taken(context, draft, &names::root_disk(name)) {
        return;
    }
    let service = machine.and_then(|machine| machine.service);
    let has_service_address = wanted.has_service_address(pool.role);
    if has_service_address && service.is_none() {
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
    if machine.is_some_and(|machine| is_cloned_in_vain(context, draft, (pool, machine))) {
        return;
    }
    let has_document = machine.is_some_and(|machine| machine.user_data.is_some());
    // A machine of a guest that exists comes back whatever the guest says now: a person deleted its
    // VM, and it may be the one that the guest waits for.
    let comes_back = has_document && context.initialised();
    if !comes_back {
        let address = service.and_then(|service| service.cluster_ip.clone());
        let has_address = !has_service_address || address.is_some();
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
    let disk = machine.and_then(|machine| machine.root_disk);
    let made_from = disk.and_then(|disk| disk.template_hash.as_deref());
    let vm = render::vm(wanted, pool, (name, made_from));
    draft.act(Action::Create(vm));
}

/// Its first boot failed, and nothing waits for it. It may vote all the same: where etcd is silent, it is
/// missed perhaps, and comes back on its disk.
fn is_given_up(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    let missed = machine.role == Role::ControlPlane && context.seen.etcd.known().is_none();
    machine.phase() == Phase::Failed && !(missed && context.initialised())
}

/// The specification has changed since the machine's root disk was made, and nothing has booted from
/// it: it is made anew.
fn is_cloned_in_vain(
    context: &Context<'_>,
    draft: &mut Draft,
    (pool, machine): (&Pool, &MachineView<'_>),
) -> bool {
    let wanted = render::template_hash(context.wanted, pool);
    let is_old = |disk: &&Disk| disk.template_hash.as_ref().is_some_and(|h| *h != wanted);
    // A name that status still calls fresh would be used again.
    let told = machine
        .previous
        .is_some_and(|p| p.phase != Phase::Wanted.as_str());
    let unused = machine.user_data.is_none() && !machine.joined_before() && told;
    let Some(disk) = machine.root_disk.filter(is_old).filter(|_| unused) else {
        return false;
    };
    let name = names::root_disk(&machine.name);
    let why = "it was cloned for an earlier specification";
    delete(draft, (Kind::DataVolume, &name, &disk.meta), why);
    true
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
    draft: &mut Draft,
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
    // And a new voter is one more that must answer: the others all have to.
    // One whose document was written boots next, even if its VM is not there yet.
    let begun = |m: &&MachineView<'_>| {
        let is_other = m.pool == pool.name && m.name != name;
        is_other && (m.vm.is_some() || m.user_data.is_some())
    };
    let control_plane = context.machines.values().filter(begun);
    let mut others = control_plane.filter(|m| m.phase() != Phase::Leaving);
    let free = others.all(|m| m.has_joined() || m.votes()) && !draft.begins_join(&pool.name);
    let members = &context.seen.etcd.known()?.members;
    let whole = members.iter().all(|m| m.healthy && !m.learner);
    let ready = free && whole && configuration::is_written(context, draft);
    ready.then_some(FirstBoot::JoinControlPlane)
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
