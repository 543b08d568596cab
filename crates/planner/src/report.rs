//! From one snapshot to the status that a user reads.

mod conditions;

pub(crate) use conditions::dated;

use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_api::spec::Topology;
use guestcluster_api::status::{ControlPlaneStatus, MachineStatus, PoolStatus};
use guestcluster_api::{GuestCluster, GuestClusterStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::action::{Action, Plan};
use crate::decide::{CALM, endpoint, initialised, parts, repairs};
use crate::departure::Departure;
use crate::machines::{MachineView, Phase, machines};
use crate::observed::Observed;
use crate::ordinals::Ordinals;
use crate::wanted::{SpecErrors, Wanted};

/// The status of a cluster whose specification can be read.
pub fn status(
    wanted: &Wanted,
    seen: &Observed,
    plan: &Plan,
    previous: &GuestClusterStatus,
    now: Timestamp,
) -> GuestClusterStatus {
    let machines = machines(wanted, seen, previous, now);
    let facts = Pools {
        wanted,
        plan,
        now,
        ordinals: Ordinals {
            cluster: &wanted.identity.name,
            seen,
            previous,
            machines: &machines,
        },
    };
    let control_plane = control_plane(&facts);
    let workers = workers(&facts);
    let ready_workers: i32 = workers.iter().map(|pool| pool.ready).sum();
    let mut status = GuestClusterStatus {
        observed_generation: Some(wanted.identity.generation),
        conditions: Vec::new(),
        endpoint: endpoint::in_use(wanted, seen, previous, &machines)
            .as_ref()
            .map(endpoint::server),
        version: lowest_version(&control_plane).or_else(|| previous.version.clone()),
        initialised: initialised(previous, &machines),
        control_plane,
        workers,
        capacity: conditions::capacity(wanted, seen, previous),
        workers_summary: (wanted.topology == Topology::Dedicated)
            .then(|| format!("{ready_workers}/{}", wanted.worker_count())),
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

/// What the state of pools is computed from.
struct Pools<'a> {
    wanted: &'a Wanted,
    plan: &'a Plan,
    now: Timestamp,
    ordinals: Ordinals<'a>,
}

fn control_plane(facts: &Pools<'_>) -> ControlPlaneStatus {
    let pool = facts.pool(names::CONTROL_PLANE_POOL);
    ControlPlaneStatus {
        replicas: pool.replicas,
        ready: pool.ready,
        summary: Some(format!(
            "{}/{}",
            pool.ready,
            facts.wanted.control_plane_size()
        )),
        last_ordinal: pool.last_ordinal,
        repairs: pool.repairs,
        last_repair: pool.last_repair,
        certificates_expire: certificates_expire(facts),
        disks_sharing_storage: conditions::disks_sharing_storage(
            facts.wanted,
            facts.ordinals.seen,
            facts.ordinals.previous,
        ),
        machines: pool.machines,
    }
}

/// The first end of a machine's certificates; what was said before stands while nobody can be asked.
fn certificates_expire(facts: &Pools<'_>) -> Option<Time> {
    let known = facts.ordinals.seen.certificates.values();
    let known = known.map(|certificate| certificate.ends).min();
    let before = &facts.ordinals.previous.control_plane.certificates_expire;
    known.map(Time).or_else(|| before.clone())
}

/// Pools that are wanted, pools that still have machines, and pools that ever had some: their
/// ordinals must be remembered should the pool come back.
fn workers(facts: &Pools<'_>) -> Vec<PoolStatus> {
    let pools = &facts.wanted.pools;
    let wanted = pools
        .iter()
        .filter(|p| p.role == Role::Worker)
        .map(|p| &p.name);
    let machines = facts.ordinals.machines.values();
    let left = machines.filter(|m| m.role == Role::Worker).map(|m| &m.pool);
    let past = facts.ordinals.previous.workers.iter();
    let past = past.filter(|p| p.last_ordinal > 0).map(|p| &p.name);
    let mut names: Vec<&String> = Vec::new();
    for name in wanted.chain(left).chain(past) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| facts.pool(name)).collect()
}

impl Pools<'_> {
    fn pool(&self, name: &str) -> PoolStatus {
        let machines = self.ordinals.machines.values();
        let mut members: Vec<_> = machines.filter(|m| m.pool == name).collect();
        members.sort_by_key(|machine| machine.ordinal);
        let ready = members.iter().filter(|m| m.phase() == Phase::Ready).count();
        let to_come = self.to_come(name, &members);
        let replicas = count(members.len());
        let (repairs, last_repair) = self.repairs(name);
        let machines = members.into_iter().map(|machine| self.machine(machine));
        let machines: Vec<_> = machines.chain(to_come).collect();
        PoolStatus {
            name: name.to_owned(),
            replicas,
            ready: count(ready),
            last_ordinal: self
                .ordinals
                .last(name)
                .max(self.recorded_now(name).unwrap_or_default()),
            repairs,
            last_repair,
            machines,
        }
    }

    /// How many machines were replaced because they failed, and when the last was: one more if this
    /// plan decides so.
    fn repairs(&self, pool: &str) -> (u32, Option<Time>) {
        let (count, last) = repairs(self.ordinals.previous, pool);
        let of_pool = |machine: &String| {
            let machine = self.ordinals.machines.get(machine);
            machine.is_some_and(|machine| machine.pool == pool)
        };
        let decides = self.plan.actions.iter().any(|action| {
            matches!(action, Action::RecordDeparture { machine, why: Departure::Unhealthy }
                if of_pool(machine))
        });
        if !decides {
            return (count, last.map(Time));
        }
        let follows = last.is_some_and(|last| self.now.duration_since(last) < CALM);
        (if follows { count + 1 } else { 1 }, Some(Time(self.now)))
    }

    fn machine(&self, machine: &MachineView<'_>) -> MachineStatus {
        let previous = machine.previous;
        let running = machine
            .instance
            .filter(|instance| instance.phase == "Running");
        let leaving = match &self.plan.departures {
            Some(departures) => departures.get(&machine.name).copied(),
            None => machine.leaves(),
        };
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
            leaving: leaving.map(|why| why.as_str().to_owned()),
            unhealthy_since: machine.unhealthy_since(self.now).map(Time),
        }
    }

    fn recorded_now(&self, pool: &str) -> Option<u32> {
        self.plan.actions.iter().find_map(|action| {
            if let Action::RecordOrdinals(ordinals) = action {
                return ordinals.get(pool).copied();
            }
            None
        })
    }

    /// Machines whose names are recorded, now or before, and that have no object yet. Those that are
    /// not wanted any more are dropped, and their names with them.
    fn to_come(&self, pool: &str, members: &[&MachineView<'_>]) -> Vec<MachineStatus> {
        let stays = |m: &&&MachineView<'_>| !matches!(m.phase(), Phase::Failed | Phase::Leaving);
        let existing = members.iter().filter(stays).count();
        // A plan that did not come to that question drops no name.
        let size = match (self.wanted.pool(pool), self.plan.sizes.get(pool)) {
            (None, _) => 0,
            (Some(_), size) => size.copied().unwrap_or(u32::MAX),
        };
        let missing = usize::try_from(size)
            .unwrap_or(usize::MAX)
            .saturating_sub(existing);
        let new = (self.ordinals.last(pool) + 1)..=self.recorded_now(pool).unwrap_or_default();
        let new = new.map(|ordinal| names::machine(&self.wanted.identity.name, pool, ordinal));
        let names = self
            .ordinals
            .reserved(pool)
            .into_iter()
            .chain(new)
            .take(missing);
        let wanted = |name| MachineStatus {
            name,
            phase: Phase::Wanted.as_str().to_owned(),
            ..MachineStatus::default()
        };
        names.map(wanted).collect()
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The lowest version of the control plane's kubelets: what the guest can be relied on to have.
fn lowest_version(control_plane: &ControlPlaneStatus) -> Option<String> {
    let versions = control_plane
        .machines
        .iter()
        .filter_map(|machine| machine.version.as_ref());
    versions.min_by_key(|version| parts(version)).cloned()
}
