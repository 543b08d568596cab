//! Conditions of what the guest shares with all others: room for the loss of a host, and a tenant's
//! share of one.

use std::collections::BTreeMap;

use guestcluster_api::spec::CapacityPolicy;
use guestcluster_api::status::CapacityStatus;
use guestcluster_api::{GuestClusterStatus, Reason};

use super::foundation::counted;
use super::{Facts, Truth, Verdict, held, no, yes};
use crate::foresight::{Loss, Outlook, sentence, zone};
use crate::observed::Observed;
use crate::wanted::Wanted;

fn outlook(seen: &Observed) -> Option<&Outlook> {
    seen.fleet.as_ref()?.outlook.as_ref()
}

/// What status says in numbers; as before while it is being worked out for the first time.
pub(in crate::report) fn status(
    wanted: &Wanted,
    seen: &Observed,
    previous: &GuestClusterStatus,
) -> CapacityStatus {
    let asked = wanted.capacity_policy != CapacityPolicy::Ignore;
    if asked && seen.fleet.is_none() {
        return previous.capacity.clone();
    }
    let Some(outlook) = outlook(seen).filter(|_| asked) else {
        return CapacityStatus::default();
    };
    let worst = outlook.worst().map(|(host, _)| host.clone());
    let is_known = worst.is_some() || outlook.not_known.is_empty();
    let zones = outlook.zones.as_ref().filter(|zones| zones.count > 0);
    let worst_zone = zones.and_then(|zones| Some(zones.worst()?.0.clone()));
    let zones = zones.filter(|zones| worst_zone.is_some() || zones.not_known.is_empty());
    CapacityStatus {
        survives_host_loss: is_known.then_some(worst.is_none()),
        worst_host: worst,
        survives_zone_loss: zones.map(|_| worst_zone.is_none()),
        worst_zone,
    }
}

pub(super) fn available(facts: &Facts<'_>) -> Verdict {
    let unknown = |message: &str| (Truth::Unknown, Reason::CapacityUnknown, message.to_owned());
    if facts.wanted.capacity_policy == CapacityPolicy::Ignore {
        return (
            Truth::Unknown,
            Reason::CapacityIgnored,
            "spec.capacityPolicy is Ignore: whether the loss of a host is survived is not told"
                .to_owned(),
        );
    }
    let refused = [Reason::HostLossNotSurvived, Reason::ZoneLossNotSurvived];
    if let Some(verdict) = held(facts, &refused) {
        return verdict;
    }
    if let Some((_, reason, message)) = held(facts, &[Reason::CapacityUnknown]) {
        return (Truth::Unknown, reason, message);
    }
    if facts.seen.fleet.is_none() {
        return unknown("whether the loss of a host is survived has not been worked out yet");
    }
    let Some(outlook) = outlook(facts.seen) else {
        return unknown("no machine of the guest must have a host yet");
    };
    if let Some((host, loss)) = outlook.worst() {
        let message = lost((host, loss), &outlook.losses, str::to_owned);
        return no(Reason::HostLossNotSurvived, message);
    }
    let zones = outlook.zones.as_ref();
    if let Some((zones, (name, loss))) = zones.and_then(|zones| Some((zones, zones.worst()?))) {
        let message = lost((name, loss), &zones.losses, zone);
        return no(Reason::ZoneLossNotSurvived, message);
    }
    let zones_not_known = zones.iter().flat_map(|zones| &zones.not_known);
    let hosts_not_known = outlook.not_known.iter().cloned();
    let not_known: Vec<String> = hosts_not_known
        .chain(zones_not_known.map(|name| zone(name)))
        .collect();
    if !not_known.is_empty() {
        return unknown(&format!(
            "whether its machines find other hosts was not found out, in the time there is for it, \
             for the loss of {}",
            not_known.join(", ")
        ));
    }
    match zones {
        None => yes(
            Reason::SurvivesHostLoss,
            "whichever host dies, every machine of the guest finds another one",
        ),
        Some(zones) if zones.count == 0 => unknown(
            "spec.capacityScope is Zone, and no host has the label topology.kubernetes.io/zone",
        ),
        Some(_) => yes(
            Reason::SurvivesHostLoss,
            "whichever host or zone is lost, every machine of the guest finds another host",
        ),
    }
}

/// The worst loss, and the names of the others.
fn lost(
    (name, loss): (&String, &Loss),
    all: &BTreeMap<String, Loss>,
    called: fn(&str) -> String,
) -> String {
    let worst = sentence(
        &called(name),
        &loss.homeless,
        &loss.why,
        loss.cure.as_deref(),
    );
    let others = all.keys().filter(|other| *other != name);
    let others: Vec<String> = others.map(|other| called(other)).collect();
    if others.is_empty() {
        return worst;
    }
    format!("{worst}. Nor is the loss survived of {}", others.join(", "))
}

/// A host that carries more machines of the tenant than it may.
pub(super) fn crowded(facts: &Facts<'_>) -> Option<Verdict> {
    let crowds = &outlook(facts.seen)?.crowds;
    let first = crowds.first()?;
    let all = crowds
        .iter()
        .map(|crowd| format!("{} carries {}", crowd.host, crowd.carried));
    let all = all.collect::<Vec<_>>().join(", ");
    Some(no(
        Reason::TenantCapExceeded,
        format!(
            "one host may carry {} of tenant {} (maxPerHost), and {all}: add hosts and move some with \
             `kubectl delete vmi`, or raise maxPerHost",
            counted(first.cap, "machine"),
            facts.wanted.tenant
        ),
    ))
}
