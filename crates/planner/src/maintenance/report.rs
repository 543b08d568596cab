//! What a maintenance says.

use guestcluster_api::host_maintenance::{
    HostMaintenanceStatus, MaintenanceCondition, MaintenanceMachine, MaintenancePhase,
    MaintenanceReason as Reason, MaintenanceState,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use super::{Request, Seen, Stage};
use crate::foresight::Foresight;
use crate::report::dated;

/// How many machines a message names.
const NAMED: usize = 5;

/// What a status is computed from.
pub(super) struct Facts<'a> {
    pub(super) request: &'a Request,
    pub(super) seen: &'a Seen,
    pub(super) stage: &'a Stage,
    pub(super) machines: &'a [MaintenanceMachine],
    pub(super) now: Timestamp,
}

/// What the conditions say together.
struct Verdict {
    phase: MaintenancePhase,
    reason: Reason,
    message: String,
    /// Nothing will change without a person.
    stalled: bool,
}

pub(super) fn status(facts: &Facts<'_>, previous: &HostMaintenanceStatus) -> HostMaintenanceStatus {
    let verdict = verdict(facts);
    let moved = count(facts, |state| {
        matches!(state, MaintenanceState::Moved | MaintenanceState::Gone)
    });
    HostMaintenanceStatus {
        observed_generation: Some(facts.request.generation),
        phase: Some(verdict.phase),
        conditions: conditions(facts, &verdict, &previous.conditions),
        summary: (!facts.machines.is_empty())
            .then(|| format!("{moved}/{} moved", facts.machines.len())),
        machines: facts.machines.to_vec(),
        foreign: i32::try_from(facts.seen.foreign).unwrap_or(i32::MAX),
    }
}

/// What machines without another host lack, in one sentence.
pub(super) fn shortage(foresight: &Foresight) -> Option<String> {
    let Foresight::Short {
        homeless,
        why,
        cure,
    } = foresight
    else {
        return None;
    };
    let cure = cure.as_ref().map(|cure| format!("; {cure}"));
    Some(format!(
        "{} would find no other host: {why}{}",
        homeless.join(", "),
        cure.unwrap_or_default()
    ))
}

fn verdict(facts: &Facts<'_>) -> Verdict {
    let host = &facts.request.host;
    let (phase, reason, message, stalled) = match facts.stage {
        Stage::NoHost => (
            MaintenancePhase::Blocked,
            Reason::HostNotFound,
            format!("there is no Node {host}: delete this object, or add the host"),
            true,
        ),
        Stage::Taken(other) => (
            MaintenancePhase::Pending,
            Reason::HostTaken,
            format!("HostMaintenance {other} has {host}: this one begins when that one is deleted"),
            false,
        ),
        Stage::Paused => (
            MaintenancePhase::Paused,
            Reason::PausedByUser,
            format!("spec.paused is true: nothing further leaves {host}"),
            false,
        ),
        Stage::Short(why) => (
            MaintenancePhase::Blocked,
            Reason::CapacityShort,
            format!(
                "{host} is not emptied: {why}; or write capacityPolicy: Warn or Ignore, with which \
                 machines may be off until a host takes them"
            ),
            true,
        ),
        Stage::Unknown => (
            MaintenancePhase::Pending,
            Reason::CapacityUnknown,
            format!(
                "it is not known yet whether the machines of {host} would all find another host; \
                 write capacityPolicy: Ignore to empty it without an answer"
            ),
            false,
        ),
        Stage::Emptying(warning) => return emptying(facts, warning.as_deref()),
    };
    Verdict {
        phase,
        reason,
        message,
        stalled,
    }
}

/// A host that is being emptied, or is empty.
fn emptying(facts: &Facts<'_>, warning: Option<&str>) -> Verdict {
    let host = &facts.request.host;
    let left = count(facts, MaintenanceState::is_on_host);
    let starting = count(facts, |state| state == MaintenanceState::Starting);
    let stuck = named(facts, MaintenanceState::Stuck);
    let stuck_count = count(facts, |state| state == MaintenanceState::Stuck);
    let homeless = named(facts, MaintenanceState::NoHost);
    if left + starting == 0 {
        return emptied(facts, &homeless);
    }
    let stalled = left > 0 && stuck_count == left && starting == 0;
    let mut message = match left {
        0 => format!("{host} is empty; {starting} machines are starting elsewhere"),
        1 => format!("1 machine of guests is on {host}"),
        _ => format!("{left} machines of guests are on {host}"),
    };
    for (what, list) in [("no host takes", &homeless), ("stay", &stuck)] {
        if !list.is_empty() {
            message = format!("{message}; {what}: {list}");
        }
    }
    if let Some(warning) = warning {
        message = format!("{message}; {warning}");
    }
    Verdict {
        phase: MaintenancePhase::Draining,
        reason: if stalled {
            Reason::MachinesStuck
        } else {
            Reason::Draining
        },
        message,
        stalled,
    }
}

fn emptied(facts: &Facts<'_>, homeless: &str) -> Verdict {
    let host = &facts.request.host;
    let foreign = match facts.seen.foreign {
        0 => String::new(),
        1 => "; 1 virtual machine there belongs to no guest cluster and was not touched".to_owned(),
        count => format!(
            "; {count} virtual machines there belong to no guest cluster and were not touched"
        ),
    };
    let (reason, message) = if homeless.is_empty() {
        let message = format!("{host} carries no guest's machine{foreign}");
        (Reason::Emptied, message)
    } else {
        let message = format!(
            "{host} carries no guest's machine{foreign}; off until a host takes them: {homeless}"
        );
        (Reason::EmptiedWithoutHome, message)
    };
    Verdict {
        phase: MaintenancePhase::Done,
        reason,
        message,
        stalled: false,
    }
}

fn count(facts: &Facts<'_>, is: impl Fn(MaintenanceState) -> bool) -> usize {
    facts.machines.iter().filter(|m| is(m.state)).count()
}

/// The first machines in a state, each with what is said of it.
fn named(facts: &Facts<'_>, state: MaintenanceState) -> String {
    let all = facts.machines.iter().filter(|m| m.state == state);
    let each = all.take(NAMED).map(|m| {
        let why = m.message.as_deref().map(|why| format!(" ({why})"));
        format!("{}/{}{}", m.namespace, m.name, why.unwrap_or_default())
    });
    each.collect::<Vec<_>>().join(", ")
}

fn conditions(facts: &Facts<'_>, verdict: &Verdict, previous: &[Condition]) -> Vec<Condition> {
    let is_done = verdict.phase == MaintenancePhase::Done;
    let waits = verdict.phase == MaintenancePhase::Paused || verdict.stalled || is_done;
    let passed = facts
        .request
        .deadline
        .filter(|end| *end <= facts.now && !is_done);
    let settled = || "nothing is left to do".to_owned();
    let told = || (verdict.reason, verdict.message.clone());
    let each = |type_| match type_ {
        MaintenanceCondition::Ready => (is_done, told()),
        MaintenanceCondition::Reconciling if is_done => (false, (Reason::Settled, settled())),
        MaintenanceCondition::Reconciling => (!waits, told()),
        MaintenanceCondition::Stalled if verdict.stalled => (true, told()),
        MaintenanceCondition::Stalled => {
            let message = "nothing waits for a person".to_owned();
            (false, (Reason::Settled, message))
        }
        MaintenanceCondition::Overdue => {
            let late = passed.map(|end| format!("the host should have been empty at {end}"));
            let in_time = || (Reason::InTime, "no deadline has passed".to_owned());
            let is_late = late.is_some();
            let told = late.map_or_else(in_time, |late| (Reason::DeadlinePassed, late));
            (is_late, told)
        }
    };
    let built = MaintenanceCondition::ALL.into_iter().map(|type_| {
        let (truth, (reason, message)) = each(type_);
        let status = if truth { "True" } else { "False" };
        let told = (status, reason.as_str(), message);
        let since = (facts.request.generation, previous, facts.now);
        dated(type_.as_str(), told, since)
    });
    built.collect()
}
