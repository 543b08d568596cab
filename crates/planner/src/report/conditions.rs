//! Conditions: one function per type, all of them from the first visit on.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_api::{ConditionType, GuestClusterStatus, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::action::{Authority, Plan};
use crate::decide::{endpoint, objection};
use crate::machines::{MachineView, Phase};
use crate::observed::{Observed, Probe};
use crate::render;
use crate::wanted::Wanted;

/// What conditions are computed from.
pub(super) struct Facts<'a> {
    pub(super) wanted: &'a Wanted,
    pub(super) seen: &'a Observed,
    pub(super) plan: &'a Plan,
    pub(super) machines: &'a BTreeMap<String, MachineView<'a>>,
    pub(super) status: &'a GuestClusterStatus,
}

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
        .filter_map(|type_| Some((type_, steady(type_, part(type_, facts)?, previous))))
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
    let before = previous.iter().find(|c| {
        let same = c.status == truth.as_str() && c.reason == reason.as_str();
        c.type_ == type_.as_str() && same && reason == Reason::GuestUnreachable
    });
    (truth, reason, before.map_or(message, |c| c.message.clone()))
}

fn condition(
    type_: ConditionType,
    (truth, reason, mut message): Verdict,
    (generation, previous, now): (i64, &[Condition], Timestamp),
) -> Condition {
    if message.len() > MESSAGE_LIMIT {
        let end = (0..=MESSAGE_LIMIT)
            .rev()
            .find(|at| message.is_char_boundary(*at));
        message.truncate(end.unwrap_or_default());
        message.push('…');
    }
    let status = truth.as_str();
    let before = previous
        .iter()
        .find(|c| c.type_ == type_.as_str() && c.status == status);
    Condition {
        type_: type_.as_str().to_owned(),
        status: status.to_owned(),
        reason: reason.as_str().to_owned(),
        message,
        last_transition_time: before.map_or(Time(now), |c| c.last_transition_time.clone()),
        observed_generation: Some(generation),
    }
}

/// Conditions that look at one subject; the sums of others come afterwards.
fn part(type_: ConditionType, facts: &Facts<'_>) -> Option<Verdict> {
    match type_ {
        ConditionType::Ready | ConditionType::Reconciling | ConditionType::Stalled => None,
        ConditionType::Accepted => Some(accepted(facts)),
        ConditionType::PlacementHealthy => Some(placement(facts)),
        ConditionType::CertificatesReady => Some(certificates(facts)),
        ConditionType::EndpointReady => Some(endpoint_ready(facts)),
        ConditionType::ControlPlaneAvailable => Some(control_plane(facts)),
        ConditionType::EtcdHealthy => Some(etcd(facts)),
        ConditionType::WorkersAvailable => Some(workers(facts)),
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

fn accepted(facts: &Facts<'_>) -> Verdict {
    if let Some(objection) = objection(facts.wanted, facts.seen) {
        return no(objection.reason, objection.message);
    }
    let infra = &facts.seen.infra;
    let settings = &facts.wanted.settings;
    let pods_known = !infra.pod_ranges.is_empty() || !settings.infra_pod_ranges.is_empty();
    let services_known =
        !infra.service_ranges.is_empty() || !settings.infra_service_ranges.is_empty();
    if !(pods_known && services_known) {
        return yes(
            Reason::InfraRangesUnknown,
            "the infrastructure cluster does not tell its pod or Service ranges, so that overlaps \
             are not checked: set infra.podCIDRs and infra.serviceCIDRs in the chart's values",
        );
    }
    yes(Reason::Settled, "the specification can be carried out here")
}

fn placement(facts: &Facts<'_>) -> Verdict {
    if let Some(verdict) = held(facts, &[Reason::TooFewHosts]) {
        return verdict;
    }
    let mut hosts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for machine in facts
        .machines
        .values()
        .filter(|m| m.role == Role::ControlPlane)
    {
        if let Some(host) = machine.host() {
            hosts.entry(host).or_default().push(&machine.name);
        }
    }
    if let Some((host, names)) = hosts.iter().find(|(_, names)| names.len() > 1) {
        return no(
            Reason::HostShared,
            format!(
                "{} stand on one host, {host}: its loss would take them all",
                names.join(", ")
            ),
        );
    }
    let homeless = facts.machines.values().find_map(|m| {
        let why = m
            .instance
            .and_then(|instance| instance.unschedulable.as_ref())?;
        Some(format!("{} has no host: {why}", m.name))
    });
    if let Some(message) = homeless {
        return no(Reason::Unschedulable, message);
    }
    if hosts.is_empty() {
        return (
            Truth::Unknown,
            Reason::Pending,
            "no machine has a host yet".to_owned(),
        );
    }
    let zones = zones(facts, hosts.keys().copied());
    yes(
        Reason::Spread,
        format!(
            "{} on {}{zones}",
            counted(hosts.values().map(Vec::len).sum(), "control-plane machine"),
            counted(hosts.len(), "host")
        ),
    )
}

fn zones<'a>(facts: &Facts<'_>, hosts: impl Iterator<Item = &'a str>) -> String {
    let named: BTreeSet<&str> = hosts.collect();
    let zones: BTreeSet<&String> = facts
        .seen
        .infra
        .hosts
        .iter()
        .filter(|host| named.contains(host.name.as_str()))
        .filter_map(|host| host.labels.get("topology.kubernetes.io/zone"))
        .collect();
    if zones.is_empty() {
        String::new()
    } else {
        format!(" in {}", counted(zones.len(), "zone"))
    }
}

fn counted(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

fn certificates(facts: &Facts<'_>) -> Verdict {
    if let Some(verdict) = held(facts, &[Reason::CertificateDamaged]) {
        return verdict;
    }
    let cluster = &facts.wanted.identity.name;
    let mut names: Vec<String> = Authority::ALL.iter().map(|a| a.secret(cluster)).collect();
    names.push(names::secrets::kubeconfig(cluster));
    match names
        .iter()
        .find(|name| !facts.seen.secrets.contains_key(*name))
    {
        None => yes(Reason::Settled, "all authorities and the kubeconfig exist"),
        Some(name) => no(
            Reason::CertificatesPending,
            format!("Secret {name} is not there yet"),
        ),
    }
}

fn endpoint_ready(facts: &Facts<'_>) -> Verdict {
    match endpoint(facts.wanted, facts.seen) {
        Some((host, port)) => yes(
            Reason::Settled,
            format!("the guest API is at {host}:{port}"),
        ),
        None => held(facts, &[Reason::EndpointPending]).unwrap_or_else(|| {
            no(
                Reason::EndpointPending,
                "the endpoint Service is not there yet",
            )
        }),
    }
}

fn control_plane(facts: &Facts<'_>) -> Verdict {
    if !facts.status.initialised {
        return held(facts, &[Reason::BootstrapFailed])
            .or_else(|| image_trouble(facts))
            .unwrap_or_else(|| no(Reason::NotInitialised, first_machine(facts)));
    }
    let ready = facts.status.control_plane.ready;
    let wanted = facts.wanted.control_plane_size();
    let message = format!("{ready} of {wanted} control-plane machines are ready");
    match &facts.seen.guest {
        Probe::Unreachable(why) => no(
            Reason::GuestUnreachable,
            format!("the guest API does not answer: {why}"),
        ),
        Probe::Known(_) | Probe::NotAsked if u32::try_from(ready).is_ok_and(|r| r >= wanted) => {
            yes(Reason::Available, message)
        }
        Probe::Known(_) => {
            let (reason, detail) = not_ready(facts, Role::ControlPlane);
            yes(reason, format!("{message}{detail}"))
        }
        Probe::NotAsked => (Truth::Unknown, Reason::Pending, message),
    }
}

fn first_machine(facts: &Facts<'_>) -> String {
    let first = facts
        .machines
        .values()
        .find(|m| m.role == Role::ControlPlane && m.vm.is_some());
    match first {
        None => "the first control-plane machine is not there yet".to_owned(),
        Some(machine) => state(machine),
    }
}

/// What a machine does, and what keeps it from doing more.
fn state(machine: &MachineView<'_>) -> String {
    let phase = machine.phase().as_str().to_lowercase();
    let trouble = machine.trouble().map(|why| format!(" ({why})"));
    format!("{} is {phase}{}", machine.name, trouble.unwrap_or_default())
}

fn image_trouble(facts: &Facts<'_>) -> Option<Verdict> {
    let name = render::golden_name(facts.wanted);
    let image = facts.seen.disks.get(&name)?;
    let why = image
        .message
        .as_ref()
        .filter(|_| image.phase.as_deref() != Some("Succeeded"))?;
    Some(no(
        Reason::ImagePending,
        format!("DataVolume {name} is not imported: {why}"),
    ))
}

fn etcd(facts: &Facts<'_>) -> Verdict {
    let etcd = match &facts.seen.etcd {
        Probe::Known(etcd) => etcd,
        Probe::Unreachable(why) => {
            return (
                Truth::Unknown,
                Reason::GuestUnreachable,
                format!("etcd does not answer: {why}"),
            );
        }
        Probe::NotAsked if facts.wanted.identity.deleting => {
            let message = "a cluster that is being deleted is not asked";
            return (Truth::Unknown, Reason::DeletingObjects, message.to_owned());
        }
        Probe::NotAsked if facts.status.initialised => {
            let message = "no control-plane machine runs that could be asked for etcd";
            return (Truth::Unknown, Reason::GuestUnreachable, message.to_owned());
        }
        Probe::NotAsked => {
            let message = "etcd was not asked yet";
            return (Truth::Unknown, Reason::Pending, message.to_owned());
        }
    };
    let sick: Vec<String> = etcd
        .members
        .iter()
        .filter(|member| !member.healthy || member.learner)
        .map(|member| {
            let name = if member.name.is_empty() {
                "a new member"
            } else {
                &member.name
            };
            let state = if member.learner {
                "is a learner"
            } else {
                "does not answer"
            };
            format!("{name} ({:x}) {state}", member.id)
        })
        .collect();
    match (etcd.leader, sick.is_empty()) {
        (None, _) => no(Reason::EtcdUnhealthy, "etcd has no leader"),
        (Some(_), true) => yes(
            Reason::Settled,
            format!("{} healthy", counted(etcd.members.len(), "member")),
        ),
        (Some(_), false) => no(Reason::EtcdUnhealthy, sick.join(", ")),
    }
}

fn workers(facts: &Facts<'_>) -> Verdict {
    let ready: i32 = facts.status.workers.iter().map(|pool| pool.ready).sum();
    let wanted = facts.wanted.worker_count();
    let message = format!("{ready} of {wanted} workers are ready");
    if u32::try_from(ready).is_ok_and(|ready| ready >= wanted) {
        return yes(Reason::Available, message);
    }
    let (reason, detail) = not_ready(facts, Role::Worker);
    let pending = reason == Reason::Degraded && !facts.status.initialised;
    let reason = if pending {
        Reason::Provisioning
    } else {
        reason
    };
    no(reason, format!("{message}{detail}"))
}

/// Which machines of a role do not serve, and what they do instead.
fn not_ready(facts: &Facts<'_>, role: Role) -> (Reason, String) {
    let others = || {
        let of_role = facts.machines.values().filter(|m| m.role == role);
        of_role.filter(|m| m.phase() != Phase::Ready)
    };
    let reason = if others().any(|m| m.phase() == Phase::Failed) {
        Reason::BootstrapFailed
    } else {
        Reason::Degraded
    };
    let words: Vec<String> = others().map(state).collect();
    let detail = if words.is_empty() {
        String::new()
    } else {
        format!("; {}", words.join(", "))
    };
    (reason, detail)
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
    let parts = || NEEDED.into_iter().filter_map(|type_| parts.get(&type_));
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
    yes(
        Reason::Available,
        format!("all {machines} machines are ready"),
    )
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
    if ready.0 == Truth::True {
        return no(Reason::Settled, "nothing is left to do");
    }
    let reason = if facts.wanted.identity.deleting {
        Reason::DeletingObjects
    } else {
        Reason::Provisioning
    };
    yes(reason, ready.2.clone())
}
