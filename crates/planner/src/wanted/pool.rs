//! Machines of one kind: what they are, and what they ask of their hosts.

use std::collections::BTreeMap;

use guestcluster_api::GuestClusterSpec;
use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_api::spec::{Device, Machine, Placement, Rollout, Taint};
use guestcluster_capacity::{Launcher, Quantity, Requests, resource};
use guestcluster_placement::{Requirements, Toleration};
use k8s_openapi::jiff::SignedDuration;

/// Machines of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Name; `cp` for the control plane.
    pub name: String,
    /// Role of its machines.
    pub role: Role,
    /// How many.
    pub replicas: u32,
    /// Size and disks.
    pub machine: Machine,
    /// Devices of the host that each machine holds.
    pub devices: Vec<Device>,
    /// Which hosts.
    pub placement: Placement,
    /// Labels of its Nodes.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of its Nodes.
    pub node_taints: Vec<Taint>,
    /// How many machines of the tenant one host may carry.
    pub max_per_host: Option<usize>,
    /// The same as requirements on hosts.
    pub requirements: Requirements,
    /// Machines beyond `replicas` that a rollout may make. A control plane has its own rules.
    pub max_surge: u32,
    /// Machines that may be missing from `replicas` during a rollout.
    pub max_unavailable: u32,
    /// How long a drain waits for Pods before the machine goes all the same; `None`: as long as
    /// their budgets ask.
    pub drain_timeout: Option<SignedDuration>,
}

impl Pool {
    /// What a machine of the pool asks of its host.
    pub fn requests(&self) -> Requests {
        let machine = &self.machine;
        let launcher = Launcher {
            isolate_emulator_thread: machine.isolate_emulator_thread,
            hugepages: machine.hugepages.clone(),
            devices: counted(&self.devices).collect(),
            ..Launcher::new(
                u64::try_from(machine.cpu).unwrap_or_default(),
                self.memory(),
            )
        };
        launcher.requests()
    }

    /// Memory of a machine, in bytes, whatever holds it.
    pub fn memory(&self) -> Quantity {
        self.machine.memory.parse().unwrap_or_default()
    }

    /// Its machines hold devices of their hosts, and never move while they run.
    pub const fn has_devices(&self) -> bool {
        !self.devices.is_empty()
    }
}

/// All pools, the control plane's first.
pub(super) fn pools(spec: &GuestClusterSpec, errors: &mut Vec<String>) -> Vec<Pool> {
    let control_plane = &spec.control_plane;
    let mut pools = vec![Pool {
        name: names::CONTROL_PLANE_POOL.to_owned(),
        role: Role::ControlPlane,
        replicas: control_plane.replicas.unsigned_abs(),
        requirements: requirements(
            "spec.controlPlane",
            (&control_plane.machine, &[]),
            &control_plane.placement,
            errors,
        ),
        machine: control_plane.machine.clone(),
        devices: Vec::new(),
        placement: control_plane.placement.clone(),
        node_labels: BTreeMap::new(),
        node_taints: Vec::new(),
        max_per_host: None,
        max_surge: 1,
        max_unavailable: 0,
        drain_timeout: drain_timeout(control_plane.drain_timeout_seconds),
    }];
    for worker in &spec.workers {
        let path = format!("spec.workers[{}]", worker.name);
        let (max_surge, max_unavailable) = rollout(&path, &worker.rollout, errors);
        pools.push(Pool {
            name: worker.name.clone(),
            role: Role::Worker,
            replicas: u32::try_from(worker.replicas).unwrap_or_default(),
            requirements: requirements(
                &path,
                (&worker.machine, &worker.devices),
                &worker.placement,
                errors,
            ),
            machine: worker.machine.clone(),
            devices: worker.devices.clone(),
            placement: worker.placement.clone(),
            node_labels: worker.labels.clone(),
            node_taints: worker.taints.clone(),
            max_per_host: worker
                .max_per_host
                .and_then(|cap| usize::try_from(cap).ok()),
            max_surge,
            max_unavailable,
            drain_timeout: drain_timeout(worker.drain_timeout_seconds),
        });
    }
    pools
}

fn rollout(path: &str, rollout: &Rollout, errors: &mut Vec<String>) -> (u32, u32) {
    let bound = |number: i32| u32::try_from(number).unwrap_or_default();
    let bounds = (bound(rollout.max_surge), bound(rollout.max_unavailable));
    if bounds == (0, 0) {
        errors.push(format!(
            "{path}.rollout: maxSurge or maxUnavailable must be at least 1"
        ));
    }
    bounds
}

fn drain_timeout(seconds: i32) -> Option<SignedDuration> {
    (seconds > 0).then(|| SignedDuration::from_secs(seconds.into()))
}

/// How many of each device.
fn counted(devices: &[Device]) -> impl Iterator<Item = (&str, Quantity)> {
    devices.iter().map(|device| {
        let count = u64::try_from(device.count).unwrap_or_default();
        (&*device.device_name, Quantity::units(count))
    })
}

fn requirements(
    path: &str,
    (machine, devices): (&Machine, &[Device]),
    placement: &Placement,
    errors: &mut Vec<String>,
) -> Requirements {
    let memory = machine.memory.parse().unwrap_or_else(|error| {
        errors.push(format!("{path}.machine.memory: {error}"));
        Quantity::default()
    });
    let cpus = machine.cpu + i32::from(machine.isolate_emulator_thread);
    let devices = counted(devices).map(|(name, count)| (name.to_owned(), count));
    let mut extended: BTreeMap<String, Quantity> = devices.collect();
    let memory = match &machine.hugepages {
        None => memory,
        Some(size) => {
            extended.insert(format!("{}{size}", resource::HUGEPAGES), memory);
            Quantity::default()
        }
    };
    Requirements {
        node_selector: placement.node_selector.clone(),
        tolerations: placement.tolerations.iter().map(toleration).collect(),
        cpu: Quantity::units(u64::try_from(cpus).unwrap_or_default()),
        memory,
        extended,
    }
}

fn toleration(written: &guestcluster_api::spec::Toleration) -> Toleration {
    Toleration {
        key: written.key.clone().filter(|key| !key.is_empty()),
        exists: written.operator.as_deref() == Some("Exists"),
        value: written.value.clone().unwrap_or_default(),
        effect: written.effect.clone().filter(|effect| !effect.is_empty()),
    }
}
