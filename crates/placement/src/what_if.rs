//! What if hosts died: whether every machine that must have a home still finds one.

mod answer;
mod bits;
mod bound;
mod cure;
mod packing;
mod search;
mod world;

use std::collections::BTreeMap;

use guestcluster_capacity::{Host, Requests, Usage};

pub use answer::{Outcome, Shortfall};
pub use cure::{Cure, NewHost};

use crate::Requirements;
use world::World;

/// A machine that must have a home.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// Its name, which no other machine has.
    pub name: &'a str,
    /// Where its launcher Pods are: two hosts while it migrates, none if it waits for one.
    pub hosts: Vec<&'a str>,
    /// What a launcher Pod of it requests.
    pub requests: &'a Requests,
    /// What its host must be.
    pub requirements: &'a Requirements,
    /// No two machines of this group share a host.
    pub apart: Option<&'a str>,
    /// Whose machine it is, where [`caps`](Fleet::caps) are to hold.
    pub tenant: Option<&'a str>,
}

/// All machines and all hosts.
#[derive(Clone, Copy, Debug)]
pub struct Fleet<'a> {
    /// All hosts, in any order; each name once.
    pub hosts: &'a [Host],
    /// What all Pods hold on them, those of the machines too.
    pub usage: &'a Usage,
    /// Machines that must have a home, in any order.
    pub machines: &'a [Machine<'a>],
    /// How many machines of a tenant one host may carry, a migrating one counted on both its hosts.
    /// Tenants that are not named have no cap.
    pub caps: &'a BTreeMap<String, usize>,
}

/// A host that is neither in the fleet nor named by one of its machines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no host {0}")]
pub struct NoSuchHost(pub String);

/// A fleet that is made ready once and then asked many times: *would all machines that must have a
/// home still fit if these hosts died?*
///
/// Displaced are machines all of whose hosts died, and machines that are on no host already now.
/// Only they move. A machine that migrates and has one side on a host that lives stays there, and
/// goes on holding what it holds; what the dead hosts offered is gone with them.
///
/// # Guarantees
/// - [`Fits`](Outcome::Fits) is exact: it carries a host for each displaced machine, and they have
///   room there together.
/// - [`Short`](Outcome::Short) is exact: no way to place all of them exists. How many machines are
///   left over is exact as well where [`at_least`](Shortfall::at_least) says as many.
/// - The same fleet gives the same answers, whatever the order of hosts and machines.
///
/// # Bounded
/// Machines are placed the hardest first (the fewest hosts, then the largest): on the first host
/// that takes them, and if that leaves any over, on the tightest. If that does too, bounds are
/// tried: how often the smallest of a lot fits, how many hosts a group finds, what all need of one
/// resource. What they leave open is searched, every way to place the machines but for those that
/// mirror others, until the effort is spent, which is counted in looks at hosts and not in time.
/// More than 500 displaced machines are not searched. What is open then is
/// [`NotKnown`](Outcome::NotKnown).
///
/// # Caveats
/// - That a way exists does not mean that the scheduler takes it: it places one Pod at a time and
///   prefers other hosts than a packer does.
/// - Pods of the dead hosts that are no machines want new places too, and are not seen.
/// - Machines on a host that is not ready count as being at home; name that host among the dead.
///   The same holds for a host that machines name and the fleet lacks.
/// - Disks are not looked at: a machine may be unable to leave with its host's local disk.
#[derive(Clone, Debug)]
pub struct WhatIf<'a> {
    world: World<'a>,
    effort: u64,
}

/// Some milliseconds, which few questions need.
const EFFORT: u64 = 100_000;

impl<'a> WhatIf<'a> {
    /// Works out once what each question needs.
    pub fn new(fleet: &Fleet<'a>) -> Self {
        Self {
            world: World::new(*fleet),
            effort: EFFORT,
        }
    }

    /// The same with so many looks at hosts for the search of one question, instead of 100,000.
    #[must_use]
    pub fn with_effort(self, effort: u64) -> Self {
        Self { effort, ..self }
    }

    /// The answer if these hosts died together. With none it is whether those that wait now fit.
    pub fn without(&self, hosts: &[&str]) -> Result<Outcome<'a>, NoSuchHost> {
        let dead = self.world.dead(hosts)?;
        Ok(answer::answer(&self.world, &dead, self.effort))
    }

    /// The answer for each host alone, by name.
    pub fn each_host(&self) -> impl Iterator<Item = (&'a str, Outcome<'a>)> {
        (0..self.world.hosts.len()).map(|host| {
            let mut dead = self.world.none();
            dead.insert(host);
            let outcome = answer::answer(&self.world, &dead, self.effort);
            (&*self.world.host(host).name, outcome)
        })
    }

    /// The answer for each value of a label of hosts, such as `topology.kubernetes.io/zone`, if all
    /// hosts with that value died. A host without the label is in no zone.
    pub fn each_zone(&self, label: &str) -> impl Iterator<Item = (&'a str, Outcome<'a>)> {
        let mut zones = BTreeMap::new();
        for host in 0..self.world.hosts.len() {
            if let Some(zone) = self.world.host(host).labels.get(label) {
                let dead = zones.entry(&**zone).or_insert_with(|| self.world.none());
                dead.insert(host);
            }
        }
        let outcome = |dead| answer::answer(&self.world, &dead, self.effort);
        zones
            .into_iter()
            .map(move |(zone, dead)| (zone, outcome(dead)))
    }
}

#[cfg(test)]
mod tests;
