//! Whether there is room for more machines, so that the loss of any host would still be survived: the
//! policy `Enforce`.
//!
//! The MUSTs:
//! 1. What exists is never touched because of it, and what takes the place of a machine that goes is
//!    never held back: a guest that is short already can be repaired.
//! 2. Only what is known to be survived is added: as long as nobody knows, nothing is.

use std::collections::BTreeMap;

use guestcluster_api::spec::{CapacityPolicy, CapacityScope};
use guestcluster_api::{Reason, names};
use k8s_openapi::jiff::SignedDuration;

use super::machines::count;
use super::{Context, Draft};
use crate::foresight::{Fleet, FleetMachine, Foresight, guest_name, newcomer, sentence, zone};
use crate::machines::{MachineView, Phase};
use crate::wanted::Pool;

/// How soon to ask again: what others hold changes without waking anybody.
const AGAIN: SignedDuration = SignedDuration::from_secs(15);

/// How many machines a pool may have of the `size` that it is to have, with `existing` ones.
pub(super) fn admitted(
    context: &Context<'_>,
    draft: &mut Draft,
    (pool, existing, size): (&Pool, u32, u32),
) -> u32 {
    let owed = existing.saturating_add(count(successors(context, pool)));
    if context.wanted.capacity_policy != CapacityPolicy::Enforce || size <= owed {
        return size;
    }
    draft.look_again(context.now + AGAIN, "room for the loss of a host");
    // Half a guest is of no use: where the control plane is held back, so are its workers.
    let told = [
        Reason::HostLossNotSurvived,
        Reason::ZoneLossNotSurvived,
        Reason::CapacityUnknown,
    ];
    if draft.plan.holds.iter().any(|h| told.contains(&h.reason)) {
        return owed;
    }
    let Some((reason, why)) = refusal(context, draft, (pool, size - owed)) else {
        return size;
    };
    draft.hold(
        reason,
        format!(
            "spec.capacityPolicy is Enforce, and pool {} is kept at {owed} instead of {size} \
             machines: {why}",
            pool.name
        ),
    );
    owed
}

/// Why one more machine of a pool, for a while, is refused.
pub(super) fn refuses_surge(context: &Context<'_>, pool: &Pool) -> Option<String> {
    if context.wanted.capacity_policy != CapacityPolicy::Enforce {
        return None;
    }
    let (_, why) = refusal(context, &Draft::default(), (pool, 1))?;
    Some(format!(
        "spec.capacityPolicy is Enforce, and while there is one machine more: {why}"
    ))
}

/// Machines of a pool whose names were recorded, and those that go and leave their place to another.
fn successors(context: &Context<'_>, pool: &Pool) -> usize {
    let goes = |m: &&MachineView<'_>| m.pool == pool.name && m.phase() == Phase::Leaving;
    let going = context.machines.values().filter(goes).count();
    context.ordinals().reserved(&pool.name).len().max(going)
}

/// Why `more` machines of a pool must not be added now.
fn refusal(
    context: &Context<'_>,
    draft: &Draft,
    (pool, more): (&Pool, u32),
) -> Option<(Reason, String)> {
    let Some(before) = fleet(context, draft, pool) else {
        let why = "whether the loss of a host would be survived has not been worked out yet";
        return Some((Reason::CapacityUnknown, why.to_owned()));
    };
    let mut after = before.clone();
    after.machines.extend(newcomers(context, pool, more));
    let infra = &context.seen.infra;
    let after = after.ask(&infra.hosts, &infra.usage);
    // Zones are answered for whoever asks.
    let asks_zones = context.wanted.capacity_scope == CapacityScope::Zone;
    let zones = after.zones.values().filter(|_| asks_zones);
    let fits = |answer: &Foresight| *answer == Foresight::Fits;
    if after.hosts.values().chain(zones).all(fits) {
        return None;
    }
    let before = before.ask(&infra.hosts, &infra.usage);
    let reason = Reason::HostLossNotSurvived;
    let host = worse((reason, str::to_owned), (&before.hosts, &after.hosts));
    let zone = || {
        let reason = Reason::ZoneLossNotSurvived;
        worse((reason, zone), (&before.zones, &after.zones))
    };
    host.or_else(|| asks_zones.then(zone).flatten())
}

/// The first loss that leaves more machines without a host than before, or has no answer any more.
fn worse(
    (reason, called): (Reason, fn(&str) -> String),
    (before, after): (&BTreeMap<String, Foresight>, &BTreeMap<String, Foresight>),
) -> Option<(Reason, String)> {
    let homeless = |lost: &str| match before.get(lost) {
        Some(Foresight::Short { homeless, .. }) => homeless.len(),
        _ => 0,
    };
    let mut unknown = None;
    for (lost, answer) in after {
        match answer {
            Foresight::Short {
                homeless: now,
                why,
                cure,
            } if now.len() > homeless(lost) => {
                return Some((reason, sentence(&called(lost), now, why, cure.as_deref())));
            }
            Foresight::NotKnown if before.get(lost) == Some(&Foresight::Fits) => {
                unknown = unknown.or(Some(lost));
            }
            _ => {}
        }
    }
    let lost = called(unknown?);
    let why = format!("whether the loss of {lost} would be survived was not found out");
    Some((Reason::CapacityUnknown, why))
}

/// All machines there are, with those that this plan adds to other pools.
fn fleet(context: &Context<'_>, draft: &Draft, pool: &Pool) -> Option<Fleet> {
    let (wanted, known) = (context.wanted, &context.seen.fleet.as_ref()?.fleet);
    let own = guest_name(wanted);
    let others = known.machines.iter().filter(|m| m.guest != own);
    let mut fleet = Fleet {
        machines: others.cloned().collect(),
        caps: known.caps.clone(),
        zones_asked_by: known.zones_asked_by.clone(),
    };
    fleet.add(wanted, context.previous, &context.seen.infra.holdings);
    for other in wanted.pools.iter().filter(|other| other.name != pool.name) {
        let size = draft.plan.sizes.get(&other.name).copied();
        let there = |m: &&MachineView<'_>| m.pool == other.name && m.phase() != Phase::Leaving;
        let there = context.machines.values().filter(there).count();
        let there = there + context.ordinals().reserved(&other.name).len();
        let more = size.unwrap_or_default().saturating_sub(count(there));
        fleet.machines.extend(newcomers(context, other, more));
    }
    Some(fleet)
}

fn newcomers(context: &Context<'_>, pool: &Pool, more: u32) -> Vec<FleetMachine> {
    let last = context.ordinals().last(&pool.name);
    let cluster = &context.wanted.identity.name;
    let names = (1..=more).map(|number| names::machine(cluster, &pool.name, last + number));
    names
        .map(|name| newcomer(context.wanted, pool, &name))
        .collect()
}
