//! The endpoint of a Cluster: its Service, and what is told of it.

use std::collections::BTreeMap;

use guestcluster_api::labels;
use guestcluster_foreign::capk::{Initialization, KubevirtCluster};
use guestcluster_foreign::core::SlimService;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::action::{Action, Owner, Plan, Target};
use super::condition::{Conditions, Severity, Verdict};
use super::endpoint;
use super::seen::{Dialect, Seen};
use crate::capi;

/// Type of the condition that tells of the endpoint, whatever kind of Service is before it.
const ENDPOINT: &str = "LoadBalancerAvailable";
/// Type of the condition that tells whether one host takes several members of etcd with it.
const PLACEMENT: &str = "PlacementHealthy";

/// Plans for the cluster's own objects.
pub(super) fn plan(seen: &Seen, now: Timestamp, plan: &mut Plan) {
    let Some(infra) = &seen.infra else { return };
    let is_ours = infra
        .finalizers()
        .iter()
        .any(|f| f == capi::CLUSTER_FINALIZER);
    if infra.annotations().contains_key(capi::MANAGED_BY) {
        return;
    }
    if seen.is_paused() || infra.annotations().contains_key(capi::PAUSED) {
        pause(seen, infra, now, plan);
        return;
    }
    if infra.metadata.deletion_timestamp.is_some() {
        if is_ours && !super::is_moved(infra) {
            leave(seen, infra, now, plan);
        }
        return;
    }
    if seen.cluster.is_none() {
        return;
    }
    if !is_ours {
        plan.actions.push(Action::AddFinalizer(Owner::Cluster));
    }
    let fault = endpoint::plan(seen, infra, plan).err();
    say(seen, infra, (&fault.unwrap_or(Verdict::holds()), now), plan);
}

/// The Service goes once no machine is left: workers speak through it until they are gone.
fn leave(seen: &Seen, infra: &KubevirtCluster, now: Timestamp, plan: &mut Plan) {
    let verdict = if !seen.machines.is_empty() {
        let message = format!("{} machines are left", seen.machines.len());
        Verdict::fails("Deleting", Severity::Info, message)
    } else if let Some(service) = seen.service.as_ref().filter(|s| is_of(s, seen)) {
        plan.actions
            .push(Action::DeleteService(Target::of(service)));
        Verdict::fails("Deleting", Severity::Info, "the Service goes")
    } else {
        plan.actions.push(Action::RemoveFinalizer(Owner::Cluster));
        return;
    };
    say(seen, infra, (&verdict, now), plan);
}

/// Says that nothing is done, where the schema has room for it, and leaves all else as it was.
fn pause(seen: &Seen, infra: &KubevirtCluster, now: Timestamp, plan: &mut Plan) {
    let mut status = infra.status.clone().unwrap_or_default();
    if seen.dialect == Dialect::V1Beta2 {
        status.conditions = paused(&status.conditions, infra.metadata.generation, now);
        plan.cluster = Some(status);
    }
}

/// Conditions as they were, with the one that tells of the pause.
pub(super) fn paused(before: &[Value], generation: Option<i64>, now: Timestamp) -> Vec<Value> {
    let mut said = Conditions::new(Dialect::V1Beta2, (before, generation), now);
    let message = "the Cluster or this object is paused: nothing is done";
    said.note("Paused", (true, "Paused"), message);
    let mut all: Vec<Value> = before
        .iter()
        .filter(|c| c["type"] != "Paused")
        .cloned()
        .collect();
    all.extend(said.into_all());
    all
}

/// Whether a Service is this Cluster's: by the namespace that it names, or, made by CAPK, by its name
/// alone.
fn is_of(service: &SlimService, seen: &Seen) -> bool {
    let namespace = service.labels().get(labels::NAMESPACE);
    let name = service.labels().get(capi::CLUSTER_NAME);
    name == Some(&seen.name)
        && namespace.map_or(seen.namesake.is_none(), |named| *named == seen.namespace)
}

fn say(
    seen: &Seen,
    infra: &KubevirtCluster,
    (verdict, now): (&Verdict, Timestamp),
    plan: &mut Plan,
) {
    let mut status = infra.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(
        seen.dialect,
        (&status.conditions, infra.metadata.generation),
        now,
    );
    conditions.say(ENDPOINT, verdict);
    conditions.say(PLACEMENT, &placement(seen));
    conditions.note("Paused", (false, "NotPaused"), "");
    let conditions = conditions.finish(&[verdict]);
    status.conditions = conditions;
    // What was there once stays there for Cluster API; a lost Service is told by the condition.
    status.ready |= verdict.fault.is_none();
    if seen.dialect == Dialect::V1Beta2 {
        status.initialization = Some(Initialization {
            provisioned: status.ready,
        });
    }
    status.failure_domains = failure_domains(seen);
    plan.cluster = Some(status);
}

/// Whether each control-plane machine has a host of its own, however it came there.
fn placement(seen: &Seen) -> Verdict {
    let mut taken: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for machine in seen.machines.values().filter(|m| m.is_control_plane()) {
        let status = machine
            .instance
            .as_ref()
            .and_then(|one| one.status.as_ref());
        if let Some(host) = status.and_then(|status| status.node_name.as_deref()) {
            taken.entry(host).or_default().push(machine.name());
        }
    }
    let mut shared = taken.into_iter().filter(|(_, machines)| machines.len() > 1);
    shared.next().map_or(Verdict::holds(), |(host, machines)| {
        let message = format!(
            "the control-plane machines {} are on host {host}, which takes all of them with it: delete \
             one of their Machines, and it is made elsewhere",
            machines.join(" and ")
        );
        Verdict::fails("SharedHost", Severity::Warning, message)
    })
}

/// Zones that control planes may be spread over. A single one is no choice.
fn failure_domains(seen: &Seen) -> Option<Value> {
    if seen.zones.len() < 2 {
        return None;
    }
    Some(match seen.dialect {
        Dialect::V1Beta1 => {
            let each = seen
                .zones
                .iter()
                .map(|zone| (zone, json!({ "controlPlane": true })));
            json!(each.collect::<BTreeMap<_, _>>())
        }
        Dialect::V1Beta2 => {
            let each = seen
                .zones
                .iter()
                .map(|zone| json!({ "name": zone, "controlPlane": true }));
            json!(each.collect::<Vec<_>>())
        }
    })
}
