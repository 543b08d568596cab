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
        .filter_map(|type_| Some((type_, part(type_, facts)?)))
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
    let status = match truth {
        Truth::True => "True",
        Truth::False => "False",
        Truth::Unknown => "Unknown",
    };
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
            "{} control-plane machines on {} hosts{zones}",
            hosts.values().map(Vec::len).sum::<usize>(),
            hosts.len()
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
        format!(" in {} zones", zones.len())
    }
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
        Probe::Known(_) | Probe::NotAsked if u32::try_from(ready) == Ok(wanted) => {
            yes(Reason::Available, message)
        }
        Probe::Known(_) => yes(
            Reason::Degraded,
            format!("{message}; {}", not_ready(facts, Role::ControlPlane)),
        ),
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
        Some(machine) => {
            let failure = machine.vm.and_then(|vm| vm.failure.as_ref());
            let detail = failure.map(|why| format!(": {why}")).unwrap_or_default();
            format!(
                "{} is {}{detail}",
                machine.name,
                machine.phase().as_str().to_lowercase()
            )
        }
    }
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
        Probe::NotAsked => {
            return (
                Truth::Unknown,
                Reason::Pending,
                "etcd was not asked yet".to_owned(),
            );
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
            format!("{} members are healthy", etcd.members.len()),
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
    let reason = if facts.status.initialised {
        Reason::Degraded
    } else {
        Reason::Provisioning
    };
    let detail = not_ready(facts, Role::Worker);
    no(
        reason,
        if detail.is_empty() {
            message
        } else {
            format!("{message}; {detail}")
        },
    )
}

/// Which machines of a role do not serve, and what they do instead.
fn not_ready(facts: &Facts<'_>, role: Role) -> String {
    let others = facts
        .machines
        .values()
        .filter(|m| m.role == role && m.phase() != Phase::Ready);
    let words = others.map(|m| format!("{} is {}", m.name, m.phase().as_str().to_lowercase()));
    words.collect::<Vec<_>>().join(", ")
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
    let left = crate::decide::remaining(facts.seen);
    let message = match left.as_slice() {
        [] => "the last objects are going".to_owned(),
        left => format!("{} objects are left: {}", left.len(), left.join(", ")),
    };
    yes(Reason::DeletingObjects, message)
}

/// The parts that make a cluster ready, in the order in which their trouble is reported.
const NEEDED: [ConditionType; 7] = [
    ConditionType::Accepted,
    ConditionType::CertificatesReady,
    ConditionType::EndpointReady,
    ConditionType::PlacementHealthy,
    ConditionType::ControlPlaneAvailable,
    ConditionType::WorkersAvailable,
    ConditionType::EtcdHealthy,
];

fn ready(facts: &Facts<'_>, parts: &BTreeMap<ConditionType, Verdict>) -> Verdict {
    if facts.wanted.identity.deleting {
        return no(Reason::DeletingObjects, "the cluster is being deleted");
    }
    let trouble = NEEDED.into_iter().find_map(|type_| {
        let (truth, reason, message) = parts.get(&type_)?;
        let degraded = *reason == Reason::Degraded;
        (*truth != Truth::True || degraded).then(|| (type_, *truth, *reason, message.clone()))
    });
    if let Some((_, _, reason, message)) = trouble {
        return no(reason, message);
    }
    if let Some(hold) = facts
        .plan
        .holds
        .iter()
        .find(|h| h.reason == Reason::BootstrapFailed)
    {
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
    if stalled.0 == Truth::True || facts.wanted.paused {
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
