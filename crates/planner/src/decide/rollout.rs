//! How many machines a pool should have while it changes, and how outdated ones are replaced: after
//! their successors have joined (surge), or before (delete-first).

use guestcluster_api::labels::Role;
use guestcluster_capacity::Host;
use guestcluster_placement::{Rollout, reasons};

use super::{Context, endpoint, host_refusals, room};
use crate::machines::MachineView;
use crate::wanted::Pool;
use crate::{home, render};

/// Where a pool is going.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// Machines asked for.
    pub(crate) replicas: usize,
    /// Machines beyond that, while outdated ones are replaced.
    pub(crate) surge: usize,
    /// Machines that are to be replaced now.
    pub(crate) outdated: usize,
    /// An outdated machine may go before its successor comes.
    pub(crate) deletes_first: bool,
    /// How many of the machines asked for may be away.
    pub(crate) max_unavailable: usize,
    /// How it goes on, or why it does not, for people.
    pub(crate) note: Option<String>,
    /// It does not go on without a person.
    pub(crate) is_stuck: bool,
}

/// Machines of a pool, without those that are being taken away.
pub(crate) fn counted<'c, 'a>(context: &'c Context<'a>, pool: &str) -> Vec<&'c MachineView<'a>> {
    let machines = context.machines.values();
    machines
        .filter(|m| m.pool == pool && !m.is_leaving())
        .collect()
}

/// Why a machine is to be replaced by one of its kind.
enum Cause {
    /// It was made from another specification than today's.
    Template,
    /// A third of its certificates' life is left.
    Expiring,
    /// Its certificate does not vouch for this name.
    Unnamed(String),
    /// It looks for the guest's API at this endpoint, which is not in use any more.
    Told(String),
}

impl Cause {
    /// What is said of it beside `outdated`.
    fn note(&self) -> String {
        match self {
            Self::Template => String::new(),
            Self::Expiring => " (certificates end soon)".to_owned(),
            Self::Unnamed(name) => format!(" (certificates do not vouch for {name})"),
            Self::Told(server) => format!(" (they look for the guest API at {server})"),
        }
    }
}

/// It is to be replaced by one of its kind.
pub(crate) fn is_outdated(context: &Context<'_>, pool: &Pool, machine: &MachineView<'_>) -> bool {
    cause(context, pool, machine).is_some()
}

fn cause(context: &Context<'_>, pool: &Pool, machine: &MachineView<'_>) -> Option<Cause> {
    if machine.is_unmanaged() {
        return None;
    }
    let made = machine.vm.and_then(|vm| vm.template_hash.as_ref());
    if made.is_some_and(|hash| *hash != render::template_hash(context.wanted, pool)) {
        return Some(Cause::Template);
    }
    if is_expiring(context, machine) {
        return Some(Cause::Expiring);
    }
    let unnamed = endpoint::missing_name(context, machine).map(Cause::Unnamed);
    unnamed.or_else(|| {
        let told = endpoint::former_server(context, machine);
        told.map(|server| Cause::Told(server.to_owned()))
    })
}

/// A third of its certificates' life is left: certificates live on machines, so that new ones come
/// with a new machine. What is left is compared with the life that its successor's will have, so that
/// no setting makes machines follow one another without end.
fn is_expiring(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    let certificate = context.seen.certificates.get(&machine.name);
    certificate.is_some_and(|certificate| {
        certificate.ends.duration_since(context.now) < context.wanted.certificate_life / 3
    })
}

/// Where a pool is going.
pub(crate) fn target(context: &Context<'_>, pool: &Pool) -> Target {
    let machines = counted(context, &pool.name);
    let causes = machines.iter().filter_map(|m| cause(context, pool, m));
    let causes: Vec<Cause> = causes.collect();
    let outdated = causes.len();
    let plain = Target {
        replicas: usize::try_from(pool.replicas).unwrap_or(usize::MAX),
        max_unavailable: usize::try_from(pool.max_unavailable).unwrap_or(usize::MAX),
        ..Target::default()
    };
    let Some(first) = causes.first() else {
        return plain;
    };
    let count = format!(
        "{outdated} of {} machines of pool {}{}",
        machines.len(),
        pool.name,
        first.note()
    );
    if pool.role == Role::Worker && is_control_plane_old(context) {
        let note = format!("{count} are outdated: the control plane is replaced first");
        return Target {
            note: Some(note),
            ..plain
        };
    }
    let replacing = Target { outdated, ..plain };
    choose(context, (pool, &machines), (replacing, &count))
}

/// Surge where one more machine finds a host, else delete-first where the rest can bear it.
fn choose(
    context: &Context<'_>,
    (pool, machines): (&Pool, &[&MachineView<'_>]),
    (target, count): (Target, &str),
) -> Target {
    let limit = usize::try_from(pool.max_surge).unwrap_or(usize::MAX);
    let limit = limit.min(target.outdated);
    let excess = machines.len().saturating_sub(target.replicas);
    if excess > 0 && limit > 0 {
        return surge(pool, &target, (excess.min(limit), count));
    }
    // The host that is free belongs to a machine that is missing, and one away is enough.
    if machines.len() < attainable(context, pool, machines.len()) {
        return after_missing(pool, &target, count);
    }
    let fits = where_to(context, pool, machines);
    if !matches!((&fits, limit), (Rollout::Surge { .. }, 1..)) {
        return delete_first(pool, (target, limit), (&fits, count, None));
    }
    match room::refuses_surge(context, pool) {
        None => surge(pool, &target, (limit, count)),
        Some(why) => delete_first(pool, (target, limit), (&fits, count, Some(why))),
    }
}

fn surge(pool: &Pool, target: &Target, (surge, count): (usize, &str)) -> Target {
    Target {
        surge,
        deletes_first: pool.role == Role::Worker && target.max_unavailable > 0,
        note: Some(format!(
            "{count} are outdated: each is replaced after its successor has joined (surge)"
        )),
        ..target.clone()
    }
}

fn after_missing(pool: &Pool, target: &Target, count: &str) -> Target {
    Target {
        // `maxUnavailable` says how many workers may be away.
        deletes_first: pool.role == Role::Worker && target.max_unavailable > 0,
        note: Some(format!(
            "{count} are outdated: a machine that is missing comes first"
        )),
        ..target.clone()
    }
}

/// How many of the machines asked for there may be on the hosts there are. A control plane stays odd:
/// four members tolerate no more than three do.
///
/// Hosts that are down for a while are no concern of machines that exist.
pub(super) fn attainable(context: &Context<'_>, pool: &Pool, existing: usize) -> usize {
    let replicas = usize::try_from(pool.replicas).unwrap_or(usize::MAX);
    if pool.role == Role::Worker || existing >= replicas {
        return replicas;
    }
    let hosts = context.seen.infra.hosts.len();
    let eligible = hosts - host_refusals(pool, context.seen).len();
    if eligible >= replicas {
        return replicas;
    }
    let odd = eligible.saturating_sub((eligible + 1) % 2);
    odd.max(existing)
}

fn delete_first(
    pool: &Pool,
    (target, limit): (Target, usize),
    (fits, count, refused): (&Rollout, &str, Option<String>),
) -> Target {
    let why = if limit == 0 {
        "maxSurge is 0".to_owned()
    } else {
        refused.unwrap_or_else(|| fits.to_string())
    };
    let cure = match (pool.role, fits) {
        (_, Rollout::Neither { .. }) => Some("add a host"),
        (Role::ControlPlane, _) if target.replicas < 2 => Some(
            "a single control-plane machine cannot go before its successor: add a host for a while",
        ),
        (Role::Worker, _) if target.max_unavailable == 0 => {
            Some("rollout.maxUnavailable is 0: set it to 1, or add a host")
        }
        _ => None,
    };
    let note = match cure {
        None => {
            format!(
                "{count} are outdated: each goes before its successor comes (delete-first): {why}"
            )
        }
        Some(cure) => format!("{count} are outdated and are not replaced: {why}; {cure}"),
    };
    Target {
        deletes_first: cure.is_none(),
        is_stuck: cure.is_some() && !matches!(fits, Rollout::Neither { .. }),
        note: Some(note),
        ..target
    }
}

/// Whether one more machine of the pool finds a host, or at least one in the place of another.
fn where_to(context: &Context<'_>, pool: &Pool, machines: &[&MachineView<'_>]) -> Rollout {
    let old = machines.iter().find(|m| is_outdated(context, pool, m));
    let leaving = old.map_or("", |machine| machine.name.as_str());
    room(
        context,
        (pool, machines),
        (&context.seen.infra.hosts, leaving),
    )
}

/// Why no host but its own takes a machine as it is now; `None` if one does.
pub(super) fn no_other_host(context: &Context<'_>, machine: &MachineView<'_>) -> Option<String> {
    match elsewhere(context, machine)? {
        Rollout::Surge { .. } | Rollout::DeleteFirst { .. } => None,
        Rollout::Neither { why } => Some(reasons(&why)),
    }
}

/// Whether another host takes a machine as it is now while it still is where it is.
pub(super) fn has_target(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    matches!(elsewhere(context, machine), Some(Rollout::Surge { .. }))
}

/// Whether one more machine like this one, or it itself, finds a host other than its own.
fn elsewhere(context: &Context<'_>, machine: &MachineView<'_>) -> Option<Rollout> {
    let (own, pool) = (machine.host()?, context.wanted.pool(&machine.pool)?);
    let hosts = context.seen.infra.hosts.iter();
    let others: Vec<Host> = hosts.filter(|host| host.name != own).cloned().collect();
    let machines = counted(context, &pool.name);
    Some(room(context, (pool, &machines), (&others, &machine.name)))
}

/// Whether one more machine of the pool finds one of these hosts, or at least one in the place of the
/// machine that leaves.
pub(super) fn room(
    context: &Context<'_>,
    (pool, machines): (&Pool, &[&MachineView<'_>]),
    (hosts, leaving): (&[Host], &str),
) -> Rollout {
    let names: Vec<&str> = machines.iter().map(|m| m.name.as_str()).collect();
    home::room(
        context.wanted,
        context.seen,
        (pool, &names),
        (hosts, leaving),
    )
}

/// Workers follow a control plane that is new throughout: no kubelet may be newer than an API server.
fn is_control_plane_old(context: &Context<'_>) -> bool {
    let pools = &context.wanted.pools;
    let mut control_planes = pools.iter().filter(|p| p.role == Role::ControlPlane);
    control_planes.any(|pool| {
        let machines = counted(context, &pool.name);
        machines.iter().any(|m| is_outdated(context, pool, m))
    })
}
