//! Whether anything is on its way: a Cluster is adopted only while nothing changes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Case, Reason, Verdict};
use crate::adopt::seen::{Kind, Seen, annotation, condition, label, name, says, title};
use crate::capi;
use crate::import::value::text;

/// KubeadmControlPlane replaces a machine that failed.
const REMEDIATES: &str = "controlplane.cluster.x-k8s.io/remediation-in-progress";
/// A person wants a machine replaced.
const REMEDIATE: &str = "cluster.x-k8s.io/remediate-machine";
/// A person wants a machine to go first.
const DELETE: &str = "cluster.x-k8s.io/delete-machine";
/// What the autoscaler's annotations begin with.
const AUTOSCALER: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-";

const WAIT: &str = "wait until it is over, and ask again";

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let seen = case.seen;
    pauses(seen, verdict);
    deletions(seen, verdict);
    let pools = seen.own(Kind::MachineDeployment);
    for object in seen.control_plane().into_iter().chain(pools) {
        if let Some(what) = moves(object, case) {
            verdict.say(Reason::Rollout, title(object), what, WAIT);
        }
        if annotation(object, REMEDIATES).is_some() || says(object, "Remediating", "True") {
            let what = "a machine that failed is being replaced";
            verdict.say(Reason::Remediation, title(object), what, WAIT);
        }
        autoscaler(object, verdict);
    }
    for machine in seen.own(Kind::Machine) {
        let is_ill = says(machine, "HealthCheckSucceeded", "False")
            || condition(machine, "OwnerRemediated").is_some()
            || annotation(machine, REMEDIATE).is_some();
        if is_ill {
            let what = "it failed its health check, and is to be replaced";
            verdict.say(Reason::Remediation, title(machine), what, WAIT);
        }
        if annotation(machine, DELETE).is_some() {
            let what = format!("its annotation {DELETE} says that it is to go");
            let cure = "take the annotation off, or let it go first";
            verdict.say(Reason::Rollout, title(machine), what, cure);
        }
    }
}

/// What a paused controller says may be long past.
fn pauses(seen: &Seen, verdict: &mut Verdict) {
    let cluster = seen.cluster();
    let by_spec = cluster.filter(|cluster| cluster["spec"]["paused"] == true);
    let objects = cluster
        .into_iter()
        .chain(seen.control_plane())
        .chain(seen.infrastructure());
    let objects = objects
        .chain(seen.own(Kind::MachineDeployment))
        .chain(seen.own(Kind::Machine));
    let by_annotation = objects.filter(|object| annotation(object, capi::PAUSED).is_some());
    for object in by_spec.into_iter().chain(by_annotation) {
        verdict.say(
            Reason::Paused,
            title(object),
            "it is paused, so what its controllers say of it may be long past",
            "take the pause off, wait until all is ready, and ask again",
        );
    }
}

fn deletions(seen: &Seen, verdict: &mut Verdict) {
    let own = [
        Kind::KubeadmControlPlane,
        Kind::MachineDeployment,
        Kind::MachineSet,
        Kind::Machine,
        Kind::KubeadmConfig,
        Kind::KubevirtCluster,
        Kind::KubevirtMachine,
        Kind::VirtualMachine,
        Kind::VirtualMachineInstance,
    ];
    let own = own.into_iter().flat_map(|kind| seen.own(kind));
    for object in seen.cluster().into_iter().chain(own) {
        if object["metadata"]["deletionTimestamp"].is_string() {
            verdict.say(Reason::Deleting, title(object), "it is being deleted", WAIT);
        }
    }
}

/// Why machines come, go or are replaced, if they do.
fn moves(object: &Value, case: &Case<'_>) -> Option<String> {
    let status = &object["status"];
    if status["observedGeneration"] != object["metadata"]["generation"] {
        return Some("its controller has not seen its last change".to_owned());
    }
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let wanted = object["spec"]["replicas"].as_u64().unwrap_or(1);
    let counts = [
        ("are there", "replicas"),
        ("are up to date", "upToDateReplicas"),
        ("are ready", "readyReplicas"),
        ("are available", "availableReplicas"),
    ];
    for (what, field) in counts {
        let count = number(&status[field]);
        if count != wanted {
            return Some(format!("of {wanted} machines {count} {what}"));
        }
    }
    for (type_, what) in [
        ("RollingOut", "it replaces machines"),
        ("ScalingUp", "it adds machines"),
        ("ScalingDown", "it takes machines away"),
    ] {
        if says(object, type_, "True") {
            return Some(what.to_owned());
        }
    }
    let pool = Some(name(object));
    let machines = case.members.iter();
    let machines = machines.filter(|one| one.pool.as_deref() == pool).count();
    if u64::try_from(machines) != Ok(wanted) {
        return Some(format!(
            "of {wanted} machines there are {machines} Machines"
        ));
    }
    // The old generation of a pool that rolls has machines as well.
    let sets = case
        .seen
        .own(Kind::MachineSet)
        .filter(|set| label(set, capi::DEPLOYMENT) == pool && number(&set["spec"]["replicas"]) > 0);
    let sets: BTreeSet<_> = sets.map(name).collect();
    (sets.len() > 1).then(|| {
        let sets: Vec<_> = sets.into_iter().collect();
        format!("more than one MachineSet has machines: {}", sets.join(", "))
    })
}

fn autoscaler(object: &Value, verdict: &mut Verdict) {
    let annotations = object["metadata"]["annotations"].as_object();
    let is_counted =
        annotations.is_some_and(|all| all.keys().any(|key| key.starts_with(AUTOSCALER)));
    if is_counted {
        let now = text(object, "/spec/replicas")
            .unwrap_or_else(|| object["spec"]["replicas"].to_string());
        verdict.say(
            Reason::Autoscaler,
            title(object),
            "an autoscaler counts its machines, and knows no GuestCluster",
            format!("stop the autoscaler first; the pool stays at {now} machines until you say otherwise"),
        );
    }
}
