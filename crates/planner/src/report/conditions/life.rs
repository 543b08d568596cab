//! Conditions of what changes in a guest's life: rollouts and repairs.

use guestcluster_api::Reason;

use super::{Facts, Truth, Verdict, held, no, yes};
use crate::departure::Departure;
use crate::render;

/// Holds that speak of a change under way.
const CHANGES: [Reason; 8] = [
    Reason::Unhealthy,
    Reason::Lost,
    Reason::Evicted,
    Reason::EvictionStuck,
    Reason::MovedApart,
    Reason::Surplus,
    Reason::Outdated,
    Reason::NoOtherHost,
];

/// What changes now, if anything does.
pub(super) fn change(facts: &Facts<'_>) -> Option<Verdict> {
    if let Some((_, reason, message)) = held(facts, &CHANGES) {
        return Some(yes(reason, message));
    }
    let (machine, why) = facts.plan.departures.iter().flatten().next()?;
    let message = format!("{machine} leaves, because {}", why.words());
    Some(yes(why.reason(), message))
}

pub(super) fn up_to_date(facts: &Facts<'_>) -> Verdict {
    if let Some(verdict) = held(facts, &[Reason::VersionSkew, Reason::Outdated]) {
        return verdict;
    }
    let hashes = facts.wanted.pools.iter().map(|pool| {
        let hash = render::template_hash(facts.wanted, pool);
        (pool.name.as_str(), hash)
    });
    let hashes: Vec<_> = hashes.collect();
    let is_old = |pool: &str, hash: &String| {
        let mut of_pool = hashes.iter().filter(|(name, _)| *name == pool);
        of_pool.any(|(_, wanted)| wanted != hash)
    };
    let machines = || facts.machines.values().filter_map(|m| Some((m, m.vm?)));
    let old = machines().filter(|(m, vm)| {
        let hash = vm.template_hash.as_ref();
        hash.is_some_and(|hash| is_old(&m.pool, hash))
    });
    match (machines().count(), old.count()) {
        (0, _) => (
            Truth::Unknown,
            Reason::Pending,
            "there is no machine yet".to_owned(),
        ),
        (_, 0) => yes(
            Reason::Settled,
            "every machine is made from the specification as it is now",
        ),
        (all, old) => no(
            Reason::Outdated,
            format!("{old} of {all} machines were made from an earlier specification"),
        ),
    }
}

pub(super) fn remediating(facts: &Facts<'_>) -> Verdict {
    let trouble = [
        Reason::QuorumLost,
        Reason::RepairLimit,
        Reason::Unhealthy,
        Reason::Lost,
        Reason::AwaitingFence,
    ];
    if let Some((_, reason, message)) = held(facts, &trouble) {
        return yes(reason, message);
    }
    let going = facts.plan.departures.iter().flatten();
    let mut failed = going.filter(|(_, why)| matches!(why, Departure::Unhealthy | Departure::Lost));
    match failed.next() {
        Some((machine, why)) => yes(
            why.reason(),
            format!("{machine} is being replaced, because {}", why.words()),
        ),
        None => held(facts, &[Reason::HandedOver])
            .unwrap_or_else(|| no(Reason::Settled, "no machine needs to be replaced")),
    }
}
