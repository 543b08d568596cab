//! Conditions: one function per type, all of them from the first visit on.

mod capacity;
mod devices;
mod foundation;
mod guest;
mod life;
mod storage;

use std::collections::BTreeMap;

use guestcluster_api::{ConditionType, GuestClusterStatus, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::action::Plan;
use crate::machines::MachineView;
use crate::observed::Observed;
use crate::wanted::Wanted;

/// What conditions are computed from.
pub(super) struct Facts<'a> {
    pub(super) wanted: &'a Wanted,
    pub(super) seen: &'a Observed,
    pub(super) plan: &'a Plan,
    pub(super) machines: &'a BTreeMap<String, MachineView<'a>>,
    pub(super) status: &'a GuestClusterStatus,
}

pub(super) use capacity::status as capacity;
pub(super) use storage::sharing as disks_sharing_storage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

type Verdict = (Truth, Reason, String);

/// Longest message; a condition's schema allows 32,768 bytes, a terminal far less.
const MESSAGE_LIMIT: usize = 2000;

pub(super) fn conditions(
    facts: &Facts<'_>,
    previous: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let generation = facts.wanted.identity.generation;
    let mut verdicts: BTreeMap<ConditionType, Verdict> = ConditionType::ALL
        .into_iter()
        .filter_map(|type_| {
            let verdict = remembered(type_, facts, part(type_, facts)?, previous);
            Some((type_, steady(type_, verdict, previous)))
        })
        .collect();
    let ready = ready(facts, &verdicts);
    let stalled = stalled(facts, &ready);
    let reconciling = reconciling(facts, &ready, &stalled);
    verdicts.insert(ConditionType::Ready, ready);
    verdicts.insert(ConditionType::Stalled, stalled);
    verdicts.insert(ConditionType::Reconciling, reconciling);
    let built = ConditionType::ALL.into_iter().filter_map(|type_| {
        let verdict = verdicts.remove(&type_)?;
        Some(condition(type_, verdict, (generation, previous, now)))
    });
    built.collect()
}

/// All conditions of a cluster whose specification cannot be read.
pub(super) fn invalid(
    complaint: &str,
    generation: i64,
    previous: &[Condition],
    now: Timestamp,
) -> Vec<Condition> {
    let verdict = |type_: ConditionType| match type_ {
        ConditionType::Ready | ConditionType::Accepted => {
            (Truth::False, Reason::InvalidSpec, complaint.to_owned())
        }
        ConditionType::Stalled => (Truth::True, Reason::InvalidSpec, complaint.to_owned()),
        ConditionType::Reconciling => (
            Truth::False,
            Reason::InvalidSpec,
            "waiting for another specification".to_owned(),
        ),
        _ => (
            Truth::Unknown,
            Reason::Pending,
            "the specification cannot be read".to_owned(),
        ),
    };
    ConditionType::ALL
        .into_iter()
        .map(|type_| condition(type_, verdict(type_), (generation, previous, now)))
        .collect()
}

/// What exactly went wrong with a silent guest differs from attempt to attempt: the first word of an
/// outage stands, or status would be written for as long as it lasts.
fn steady(type_: ConditionType, verdict: Verdict, previous: &[Condition]) -> Verdict {
    let (truth, reason, message) = verdict;
    let is_silence = matches!(
        reason,
        Reason::GuestUnreachable | Reason::EndpointUnreachable
    );
    let before = previous.iter().find(|c| {
        let same = c.status == truth.as_str() && c.reason == reason.as_str();
        c.type_ == type_.as_str() && same && is_silence
    });
    (truth, reason, before.map_or(message, |c| c.message.clone()))
}

/// An operator that has just begun knows nothing of the fleet and of volumes for a moment. What was said
/// before stands until then, or each restart would write two statuses of each guest.
fn remembered(
    type_: ConditionType,
    facts: &Facts<'_>,
    verdict: Verdict,
    previous: &[Condition],
) -> Verdict {
    let mut before = previous.iter().filter(|c| c.type_ == type_.as_str());
    let stands = |before: &Verdict| match type_ {
        ConditionType::CapacityAvailable => {
            let unknown = verdict.1 == Reason::CapacityUnknown;
            facts.seen.fleet.is_none() && unknown && before.1 != Reason::CapacityIgnored
        }
        ConditionType::PlacementHealthy => {
            let sound = verdict.0 == Truth::True;
            facts.seen.fleet.is_none() && sound && before.1 == Reason::TenantCapExceeded
        }
        ConditionType::StorageSpread => facts.seen.volumes.is_none(),
        _ => false,
    };
    before.find_map(read).filter(stands).unwrap_or(verdict)
}

/// A condition as it was written.
fn read(condition: &Condition) -> Option<Verdict> {
    let truths = [Truth::True, Truth::False, Truth::Unknown];
    let truth = truths
        .into_iter()
        .find(|truth| truth.as_str() == condition.status)?;
    let mut reasons = Reason::ALL.iter();
    let reason = reasons.find(|reason| reason.as_str() == condition.reason)?;
    Some((truth, *reason, condition.message.clone()))
}

fn condition(
    type_: ConditionType,
    (truth, reason, message): Verdict,
    since: (i64, &[Condition], Timestamp),
) -> Condition {
    let told = (truth.as_str(), reason.as_str(), message);
    dated(type_.as_str(), told, since)
}

/// A condition with this status, reason and message, which dates from when its status was first so.
pub(crate) fn dated(
    type_: &str,
    (status, reason, mut message): (&str, &str, String),
    (generation, previous, now): (i64, &[Condition], Timestamp),
) -> Condition {
    if message.len() > MESSAGE_LIMIT {
        let end = (0..=MESSAGE_LIMIT)
            .rev()
            .find(|at| message.is_char_boundary(*at));
        message.truncate(end.unwrap_or_default());
        message.push('…');
    }
    let before = previous
        .iter()
        .find(|c| c.type_ == type_ && c.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: before.map_or(Time(now), |c| c.last_transition_time.clone()),
        observed_generation: Some(generation),
    }
}

/// Conditions that look at one subject; the sums of others come afterwards.
fn part(type_: ConditionType, facts: &Facts<'_>) -> Option<Verdict> {
    match type_ {
        ConditionType::Ready | ConditionType::Reconciling | ConditionType::Stalled => None,
        ConditionType::Accepted => Some(foundation::accepted(facts)),
        ConditionType::CapacityAvailable => Some(capacity::available(facts)),
        ConditionType::PlacementHealthy => Some(foundation::placement(facts)),
        ConditionType::LiveMigratable => {
            Some(devices::cost(facts, foundation::live_migratable(facts)))
        }
        ConditionType::StorageSpread => Some(storage::spread(facts)),
        ConditionType::CertificatesReady => Some(foundation::certificates(facts)),
        ConditionType::EndpointReady => Some(foundation::endpoint_ready(facts)),
        ConditionType::ControlPlaneAvailable => Some(guest::control_plane(facts)),
        ConditionType::EtcdHealthy => Some(guest::etcd(facts)),
        ConditionType::WorkersAvailable => Some(guest::workers(facts)),
        ConditionType::UpToDate => Some(life::up_to_date(facts)),
        ConditionType::Remediating => Some(life::remediating(facts)),
        ConditionType::Paused => Some(paused(facts)),
        ConditionType::Deleting => Some(deleting(facts)),
    }
}

fn yes(reason: Reason, message: impl Into<String>) -> Verdict {
    (Truth::True, reason, message.into())
}

fn no(reason: Reason, message: impl Into<String>) -> Verdict {
    (Truth::False, reason, message.into())
}

/// The message of the first hold with one of these reasons.
fn held(facts: &Facts<'_>, reasons: &[Reason]) -> Option<Verdict> {
    let hold = facts
        .plan
        .holds
        .iter()
        .find(|hold| reasons.contains(&hold.reason))?;
    Some(no(hold.reason, hold.message.clone()))
}

fn paused(facts: &Facts<'_>) -> Verdict {
    if facts.wanted.paused {
        return yes(
            Reason::PausedByUser,
            "spec.paused is true: nothing is written",
        );
    }
    no(
        Reason::NotPaused,
        "the operator keeps the cluster as specified",
    )
}

fn deleting(facts: &Facts<'_>) -> Verdict {
    if !facts.wanted.identity.deleting {
        return no(Reason::NotDeleting, "the cluster is not being deleted");
    }
    if let Some(verdict) = held(facts, &[Reason::Protected, Reason::PausedByUser]) {
        return verdict;
    }
    let left = crate::decide::remaining(facts.wanted, facts.seen);
    let message = match left.as_slice() {
        [] => "the last objects are going".to_owned(),
        left => format!("{} objects are left: {}", left.len(), left.join(", ")),
    };
    yes(Reason::DeletingObjects, message)
}

/// The parts that make a cluster ready, in the order in which their trouble is reported.
const NEEDED: [ConditionType; 7] = [
    ConditionType::Accepted,
    // The kubeconfig waits for the endpoint, not the other way round.
    ConditionType::EndpointReady,
    ConditionType::CertificatesReady,
    ConditionType::PlacementHealthy,
    ConditionType::ControlPlaneAvailable,
    ConditionType::WorkersAvailable,
    ConditionType::EtcdHealthy,
];

fn ready(facts: &Facts<'_>, parts: &BTreeMap<ConditionType, Verdict>) -> Verdict {
    if facts.wanted.identity.deleting {
        return held(facts, &[Reason::Protected])
            .unwrap_or_else(|| no(Reason::DeletingObjects, "the cluster is being deleted"));
    }
    // What is wrong comes before what is not known: the one is usually the cause of the other.
    let is_dark = facts.seen.is_endpoint_dark();
    let counts = |(_, reason, _): &&Verdict| is_dark || *reason != Reason::EndpointUnreachable;
    let parts = || {
        NEEDED
            .into_iter()
            .filter_map(|type_| parts.get(&type_).filter(counts))
    };
    let less = [Reason::Degraded, Reason::BootstrapFailed];
    let wrong = parts().find(|part| part.0 == Truth::False || less.contains(&part.1));
    let trouble = wrong.or_else(|| parts().find(|part| part.0 == Truth::Unknown));
    if let Some((_, reason, message)) = trouble {
        return no(*reason, message.clone());
    }
    // What a person must see to is not as specified, though the guest serves.
    let open = |hold: &&crate::action::Hold| {
        let pause = hold.reason == Reason::PausedByUser;
        hold.reason == Reason::BootstrapFailed || (hold.needs_person && !pause)
    };
    if let Some(hold) = facts.plan.holds.iter().find(open) {
        return no(hold.reason, hold.message.clone());
    }
    let machines = facts.wanted.control_plane_size() + facts.wanted.worker_count();
    let message = match machines {
        1 => "the only machine is ready".to_owned(),
        _ => format!("all {machines} machines are ready"),
    };
    yes(Reason::Available, message)
}

fn stalled(facts: &Facts<'_>, ready: &Verdict) -> Verdict {
    let hold = facts.plan.holds.iter().find(|hold| hold.needs_person);
    match hold {
        // A pause is somebody's wish, not trouble.
        Some(hold) if hold.reason != Reason::PausedByUser && ready.0 != Truth::True => {
            yes(hold.reason, hold.message.clone())
        }
        _ => no(Reason::Settled, "nothing waits for a person"),
    }
}

fn reconciling(facts: &Facts<'_>, ready: &Verdict, stalled: &Verdict) -> Verdict {
    if facts.wanted.paused {
        return no(
            Reason::PausedByUser,
            "nothing is done while writes are paused",
        );
    }
    if stalled.0 == Truth::True {
        return no(stalled.1, "waiting for a person");
    }
    if let Some(change) = life::change(facts) {
        return change;
    }
    if ready.0 == Truth::True {
        let mut machines = facts.machines.values();
        return match machines.find(|machine| machine.is_leaving()) {
            Some(gone) => {
                let message = format!("what is left of {} is taken away", gone.name);
                yes(Reason::Provisioning, message)
            }
            None => no(Reason::Settled, "nothing is left to do"),
        };
    }
    let reason = if facts.wanted.identity.deleting {
        Reason::DeletingObjects
    } else {
        Reason::Provisioning
    };
    yes(reason, ready.2.clone())
}
