//! Names of machines: which were used, and which are recorded for machines to come.
//!
//! A name is recorded in status before the machine's first object is made, as a machine in phase
//! `Wanted`. It is fresh as long as status says so: the first look at any of its objects moves it on,
//! and a machine is given up only after status has told of it. What is recorded beyond that is the
//! highest ordinal of each pool, which only ever grows.

use std::collections::BTreeMap;

use guestcluster_api::names;
use guestcluster_api::status::GuestClusterStatus;

use crate::machines::{MachineView, Phase, recorded};
use crate::observed::Observed;

/// What tells which names were used.
#[derive(Clone, Copy, Debug)]
pub struct Ordinals<'a> {
    /// Name of the cluster.
    pub cluster: &'a str,
    /// The snapshot.
    pub seen: &'a Observed,
    /// The last status.
    pub previous: &'a GuestClusterStatus,
    /// The machines in the snapshot.
    pub machines: &'a BTreeMap<String, MachineView<'a>>,
}

impl Ordinals<'_> {
    /// The highest ordinal that `pool` has ever used or recorded.
    pub fn last(&self, pool: &str) -> u32 {
        let recorded = last_recorded(self.previous, pool);
        let machines = self.machines.keys().chain(recorded_names(self.previous));
        let used = machines
            .chain(self.in_guest())
            .filter_map(|name| names::ordinal(self.cluster, pool, name));
        used.chain([recorded]).max().unwrap_or_default()
    }

    /// Names of `pool` that are recorded and fresh, in order.
    pub fn reserved(&self, pool: &str) -> Vec<String> {
        let fresh = |name: &&String| {
            !self.machines.contains_key(*name) && !self.in_guest().any(|used| used == *name)
        };
        let wanted = recorded(self.previous)
            .filter(|machine| machine.phase == Phase::Wanted.as_str())
            .map(|machine| &machine.name)
            .filter(fresh);
        let mut names: Vec<(u32, &String)> = wanted
            .filter_map(|name| Some((names::ordinal(self.cluster, pool, name)?, name)))
            .collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name.clone()).collect()
    }

    fn in_guest(&self) -> impl Iterator<Item = &String> {
        let guest = self.seen.guest.known().into_iter();
        let etcd = self.seen.etcd.known().into_iter();
        let members = etcd
            .flat_map(|etcd| &etcd.members)
            .map(|member| &member.name);
        guest.flat_map(|guest| guest.nodes.keys()).chain(members)
    }
}

fn recorded_names(previous: &GuestClusterStatus) -> impl Iterator<Item = &String> {
    recorded(previous).map(|machine| &machine.name)
}

/// The highest ordinal of `pool` according to a status.
fn last_recorded(status: &GuestClusterStatus, pool: &str) -> u32 {
    if pool == names::CONTROL_PLANE_POOL {
        return status.control_plane.last_ordinal;
    }
    let pool = status.workers.iter().find(|p| p.name == pool);
    pool.map_or(0, |p| p.last_ordinal)
}
