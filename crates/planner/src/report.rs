//! From one snapshot to the status that a user reads.

mod conditions;

use std::collections::BTreeMap;

use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_api::status::{ControlPlaneStatus, MachineStatus, PoolStatus};
use guestcluster_api::{GuestCluster, GuestClusterStatus};
use k8s_openapi::jiff::Timestamp;

use crate::action::{Action, Plan};
use crate::decide::{endpoint, initialised};
use crate::machines::{MachineView, Phase, machines};
use crate::observed::Observed;
use crate::wanted::{SpecErrors, Wanted};

/// The status of a cluster whose specification can be read.
pub fn status(
    wanted: &Wanted,
    seen: &Observed,
    plan: &Plan,
    previous: &GuestClusterStatus,
    now: Timestamp,
) -> GuestClusterStatus {
    let machines = machines(wanted, seen, previous);
    let ordinals = ordinals(plan, previous);
    let control_plane = control_plane(wanted, &machines, &ordinals);
    let workers = workers(wanted, &machines, &ordinals);
    let ready_workers: i32 = workers.iter().map(|pool| pool.ready).sum();
    let mut status = GuestClusterStatus {
        observed_generation: Some(wanted.identity.generation),
        conditions: Vec::new(),
        endpoint: endpoint(wanted, seen).map(|(host, port)| format!("{host}:{port}")),
        version: lowest_version(&control_plane).or_else(|| previous.version.clone()),
        initialised: initialised(previous, &machines),
        control_plane,
        workers,
        workers_summary: Some(format!("{ready_workers}/{}", wanted.worker_count())),
    };
    let facts = conditions::Facts {
        wanted,
        seen,
        plan,
        machines: &machines,
        status: &status,
    };
    status.conditions = conditions::conditions(&facts, &previous.conditions, now);
    status
}

/// The status of a cluster whose specification cannot be read; what is known otherwise stays.
pub fn invalid(
    cluster: &GuestCluster,
    errors: &SpecErrors,
    previous: &GuestClusterStatus,
    now: Timestamp,
) -> GuestClusterStatus {
    let generation = cluster.metadata.generation.unwrap_or_default();
    GuestClusterStatus {
        observed_generation: Some(generation),
        conditions: conditions::invalid(&errors.to_string(), generation, &previous.conditions, now),
        ..previous.clone()
    }
}

/// Highest ordinal per pool, with those that this plan records.
fn ordinals(plan: &Plan, previous: &GuestClusterStatus) -> BTreeMap<String, u32> {
    let mut ordinals: BTreeMap<String, u32> = previous
        .workers
        .iter()
        .map(|pool| (pool.name.clone(), pool.last_ordinal))
        .collect();
    ordinals.insert(
        names::CONTROL_PLANE_POOL.to_owned(),
        previous.control_plane.last_ordinal,
    );
    for action in &plan.actions {
        if let Action::RecordOrdinals(recorded) = action {
            for (pool, ordinal) in recorded {
                let known = ordinals.entry(pool.clone()).or_default();
                *known = (*known).max(*ordinal);
            }
        }
    }
    ordinals
}

type Machines<'a> = BTreeMap<String, MachineView<'a>>;

fn control_plane(
    wanted: &Wanted,
    machines: &Machines<'_>,
    ordinals: &BTreeMap<String, u32>,
) -> ControlPlaneStatus {
    let pool = pool(names::CONTROL_PLANE_POOL, machines, ordinals);
    ControlPlaneStatus {
        replicas: pool.replicas,
        ready: pool.ready,
        summary: Some(format!("{}/{}", pool.ready, wanted.control_plane_size())),
        last_ordinal: pool.last_ordinal,
        machines: pool.machines,
    }
}

/// Pools that are wanted, and pools that are not and still have machines.
fn workers(
    wanted: &Wanted,
    machines: &Machines<'_>,
    ordinals: &BTreeMap<String, u32>,
) -> Vec<PoolStatus> {
    let wanted_pools = wanted
        .pools
        .iter()
        .filter(|p| p.role == Role::Worker)
        .map(|p| &p.name);
    let mut names: Vec<&String> = wanted_pools.collect();
    let left = machines
        .values()
        .filter(|m| m.role == Role::Worker)
        .map(|m| &m.pool);
    for name in left {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
        .into_iter()
        .map(|name| pool(name, machines, ordinals))
        .collect()
}

fn pool(name: &str, machines: &Machines<'_>, ordinals: &BTreeMap<String, u32>) -> PoolStatus {
    let mut members: Vec<_> = machines.values().filter(|m| m.pool == name).collect();
    members.sort_by_key(|machine| machine.ordinal);
    let ready = members.iter().filter(|m| m.phase() == Phase::Ready).count();
    PoolStatus {
        name: name.to_owned(),
        replicas: count(members.len()),
        ready: count(ready),
        last_ordinal: ordinals.get(name).copied().unwrap_or_default(),
        machines: members.into_iter().map(machine).collect(),
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn machine(machine: &MachineView<'_>) -> MachineStatus {
    let previous = machine.previous;
    let running = machine
        .instance
        .filter(|instance| instance.phase == "Running");
    MachineStatus {
        name: machine.name.clone(),
        host: machine.host().map(str::to_owned),
        version: machine
            .node
            .map(|node| node.kubelet_version.clone())
            .or_else(|| previous.and_then(|p| p.version.clone())),
        etcd_member: machine
            .member
            .map(|member| format!("{:x}", member.id))
            .or_else(|| previous.and_then(|p| p.etcd_member.clone())),
        boot_instance: previous
            .and_then(|p| p.boot_instance.clone())
            .or_else(|| running.map(|instance| instance.meta.uid.clone())),
        phase: machine.phase().as_str().to_owned(),
    }
}

/// The lowest version of the control plane's kubelets: what the guest can be relied on to have.
fn lowest_version(control_plane: &ControlPlaneStatus) -> Option<String> {
    let parts = |version: &str| -> Vec<u32> {
        version
            .trim_start_matches('v')
            .split('.')
            .map_while(|part| part.parse().ok())
            .collect()
    };
    let versions = control_plane
        .machines
        .iter()
        .filter_map(|machine| machine.version.as_ref());
    versions.min_by_key(|version| parts(version)).cloned()
}
