//! The machines of all guests, as far as they must have a home.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::GuestClusterStatus;
use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_api::spec::{CapacityPolicy, CapacityScope, Profile};
use guestcluster_api::status::MachineStatus;
use guestcluster_capacity::{Holding, Requests};
use guestcluster_placement::Requirements;

use crate::machines::Phase;
use crate::wanted::{Pool, Wanted};

/// A machine that must have a home.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetMachine {
    /// `namespace/name`.
    pub name: String,
    /// Its guest, `namespace/name`.
    pub guest: String,
    /// Where its launcher Pods are: two hosts while it migrates, none if it waits for one.
    pub hosts: Vec<String>,
    /// What its launcher Pod requests, or will.
    pub requests: Requests,
    /// What its host must be.
    pub requirements: Requirements,
    /// No two machines of this group share a host.
    pub apart: Option<String>,
    /// Whose it is.
    pub tenant: String,
}

/// Machines of all guests, and how many of a tenant one host may carry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    /// The machines, in any order.
    pub machines: Vec<FleetMachine>,
    /// Caps by tenant; tenants that are not named have none.
    pub caps: BTreeMap<String, usize>,
    /// Guests that ask what the loss of a zone would mean, `namespace/name`.
    pub zones_asked_by: BTreeSet<String>,
}

impl Fleet {
    /// Adds a guest: its machines, and the cap of its tenant if it names the lowest.
    pub fn add(&mut self, wanted: &Wanted, status: &GuestClusterStatus, held: &[Holding]) {
        self.machines.extend(machines(wanted, status, held));
        let asks_zones = wanted.capacity_policy != CapacityPolicy::Ignore
            && wanted.capacity_scope == CapacityScope::Zone;
        self.zones_asked_by
            .extend(asks_zones.then(|| guest_name(wanted)));
        let caps = wanted.pools.iter().filter_map(|pool| pool.max_per_host);
        if let Some(cap) = caps.min() {
            let lowest = self.caps.entry(wanted.tenant.clone()).or_insert(cap);
            *lowest = cap.min(*lowest);
        }
    }
}

/// Machines of a guest that must have a home: those that status names, whether they have a host or
/// wait for one, without those that go or that a person stopped.
pub fn machines(
    wanted: &Wanted,
    status: &GuestClusterStatus,
    held: &[Holding],
) -> Vec<FleetMachine> {
    let control_plane = status.control_plane.machines.iter();
    let control_plane = control_plane.map(|machine| (names::CONTROL_PLANE_POOL, machine));
    let workers = status.workers.iter();
    let workers = workers.flat_map(|pool| pool.machines.iter().map(|m| (&*pool.name, m)));
    let machine = |(pool, machine): (&str, &MachineStatus)| {
        let goes = [Phase::Leaving, Phase::Stopped].map(Phase::as_str);
        let pool = wanted.pool(pool)?;
        (!goes.contains(&&*machine.phase)).then(|| known(wanted, pool, &machine.name, held))
    };
    control_plane.chain(workers).filter_map(machine).collect()
}

fn known(wanted: &Wanted, pool: &Pool, name: &str, held: &[Holding]) -> FleetMachine {
    let own = || held.iter().filter(|holding| holding.machine == name);
    let newcomer = newcomer(wanted, pool, name);
    FleetMachine {
        hosts: own().map(|holding| holding.host.clone()).collect(),
        requests: own()
            .next()
            .map_or(newcomer.requests, |holding| holding.requests.clone()),
        ..newcomer
    }
}

/// `namespace/name` of a guest.
pub(crate) fn guest_name(wanted: &Wanted) -> String {
    format!("{}/{}", wanted.identity.namespace, wanted.identity.name)
}

/// A machine of a pool that is on no host yet.
pub fn newcomer(wanted: &Wanted, pool: &Pool, name: &str) -> FleetMachine {
    let identity = &wanted.identity;
    let guest = guest_name(wanted);
    let is_apart = pool.role == Role::ControlPlane && wanted.profile == Profile::Production;
    FleetMachine {
        name: format!("{}/{name}", identity.namespace),
        hosts: Vec::new(),
        requests: pool.requests(),
        requirements: pool.requirements.clone(),
        apart: is_apart.then(|| guest.clone()),
        tenant: wanted.tenant.clone(),
        guest,
    }
}
