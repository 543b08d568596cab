//! What would give the machines that are left over a home.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use guestcluster_capacity::{Requests, Rounding, amount, resource};

use super::answer::{homeless, left_over, moves};
use super::bound::Bound;
use super::packing::{Choice, Homes, complete, greedy};
use super::search::{Found, Limit, search};
use super::world::{Block, World};
use super::{Machine, Shortfall, WhatIf};

/// Hosts that, added to those that live, give every displaced machine a home; and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cure<'a> {
    /// The hosts to add. None where only a cap is in the way, or where the longer search found that
    /// the machines fit as they are.
    pub hosts: Vec<NewHost<'a>>,
    /// All other displaced machines and a host that lives for each, by name of the machine.
    pub moves: Vec<(&'a str, &'a str)>,
    /// Machines that no host helps, since their tenant may have none on a host.
    pub capped: Vec<&'a str>,
    /// Nothing smaller does: no way to place the machines leaves a set over that requests less, as
    /// a sum of shares of what all hosts offer. Where this is false the search gave up, the hosts
    /// are enough and perhaps more than that.
    pub least: bool,
}

/// A host that is to be added: ready, for VMs, and without taints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewHost<'a> {
    /// What must be free on it: what its machines request.
    pub free: Requests,
    /// Labels that it must have.
    pub labels: BTreeMap<&'a str, &'a str>,
    /// The machines that it takes, by name.
    pub takes: Vec<&'a str>,
}

impl<'a> WhatIf<'a> {
    /// What would cure a shortfall. It searches anew, with the whole effort, for the way that
    /// leaves over what is smallest: that may be other machines than the shortfall names, and more
    /// of them.
    ///
    /// # Guarantees
    /// - The hosts are enough: `moves` and `takes` place every displaced machine.
    /// - Where [`least`](Cure::least) is true, so many hosts with less of a resource, and no more
    ///   of any other, are not enough, but for what [`NewHost::free`] adds.
    ///
    /// # Caveats
    /// - Machines are put together on as few hosts as one pass finds: groups, labels and caps may
    ///   allow a cleverer one.
    pub fn cure(&self, shortfall: &Shortfall<'_>) -> Cure<'a> {
        let world = &self.world;
        let blocks = world.displaced(&shortfall.dead);
        let mut homes = shown(world, &blocks, shortfall);
        let tightest = greedy(world, &blocks, Choice::Tightest);
        if size(world, &blocks, &tightest) < size(world, &blocks, &homes) {
            homes = tightest;
        }
        let least = improve(world, &blocks, &mut homes, self.effort);
        let (mut hosts, mut capped) = (Vec::new(), Vec::new());
        for number in homeless(world, &blocks, &homes) {
            let machine = world.machine(number);
            if world.cap(machine) == Some(0) {
                capped.push(machine.name);
            } else {
                add(world, &mut hosts, number);
            }
        }
        Cure {
            hosts: hosts
                .into_iter()
                .map(|planned: Planned<'_>| planned.host)
                .collect(),
            moves: moves(world, &blocks, &homes),
            capped,
            least,
        }
    }
}

/// The way that the shortfall shows.
fn shown(world: &World<'_>, blocks: &[Block], shortfall: &Shortfall<'_>) -> Homes {
    let to = shortfall.moves.iter().copied().collect::<BTreeMap<_, _>>();
    let machines = blocks.iter().flat_map(|block| &block.machines);
    let home = |machine: &usize| {
        let to = to.get(world.machine(*machine).name)?;
        world.places.get(to).copied()
    };
    machines.map(home).collect()
}

/// Finds smaller sets to leave over until there is none; false if the effort ends before.
fn improve(world: &World<'_>, blocks: &[Block], homes: &mut Homes, mut effort: u64) -> bool {
    let bound = Bound::new(world, blocks);
    while left_over(homes) > 0 {
        let limit = Limit {
            count: usize::MAX,
            size: size(world, blocks, homes),
        };
        match search(world, blocks, &bound, limit, &mut effort) {
            Found::Way(way) => *homes = complete(world, blocks, way, Choice::First),
            Found::Nothing => return true,
            Found::GaveUp => return false,
        }
    }
    true
}

fn size(world: &World<'_>, blocks: &[Block], homes: &Homes) -> u128 {
    let kinds = blocks
        .iter()
        .flat_map(|b| b.machines.iter().map(|_| b.kind));
    let over = kinds.zip(homes).filter(|(_, home)| home.is_none());
    over.fold(0, |sum, (kind, _)| {
        sum.saturating_add(world.kinds[kind].size)
    })
}

/// A new host, and what decides whether it takes one more.
#[derive(Default)]
struct Planned<'a> {
    host: NewHost<'a>,
    groups: BTreeSet<&'a str>,
    tenants: BTreeMap<&'a str, usize>,
}

/// Puts a machine on the first new host that may take it.
fn add<'a>(world: &World<'a>, hosts: &mut Vec<Planned<'a>>, number: usize) {
    let machine = world.machine(number);
    let takes = |planned: &Planned<'a>| planned.may_take(machine, world.cap(machine));
    let at = hosts.iter().position(takes).unwrap_or_else(|| {
        hosts.push(Planned::default());
        hosts.len() - 1
    });
    hosts[at].take(machine);
}

impl<'a> Planned<'a> {
    fn may_take(&self, machine: &Machine<'a>, cap: Option<usize>) -> bool {
        let carried = machine.tenant.and_then(|tenant| self.tenants.get(tenant));
        let carried = carried.copied().unwrap_or_default();
        let mut wanted = machine.requirements.node_selector.iter();
        machine
            .apart
            .is_none_or(|group| !self.groups.contains(group))
            && cap.is_none_or(|cap| carried < cap)
            && wanted.all(|(key, value)| {
                let there = self.host.labels.get(&**key);
                there.is_none_or(|there| there == value)
            })
    }

    fn take(&mut self, machine: &Machine<'a>) {
        self.host.takes.push(machine.name);
        self.groups.extend(machine.apart);
        if let Some(tenant) = machine.tenant {
            *self.tenants.entry(tenant).or_default() += 1;
        }
        for (key, value) in &machine.requirements.node_selector {
            self.host.labels.insert(key, value);
        }
        self.host.free.add(machine.requests);
    }
}

impl World<'_> {
    fn cap(&self, machine: &Machine<'_>) -> Option<usize> {
        self.fleet.caps.get(machine.tenant?).copied()
    }
}

impl fmt::Display for NewHost<'_> {
    /// `8.015 cpu, 16.4Gi memory`, without places for Pods and the little of the disk that every
    /// host has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unsaid = [resource::PODS, resource::EPHEMERAL_STORAGE];
        let said = self.free.iter().filter(|(name, _)| !unsaid.contains(name));
        let said =
            said.map(|(name, needs)| format!("{} {name}", amount(name, needs, Rounding::Up)));
        let said = said.collect::<Vec<_>>();
        write!(f, "with {} free", said.join(", "))?;
        if !self.labels.is_empty() {
            let labels = self
                .labels
                .iter()
                .map(|(key, value)| format!("{key}={value}"));
            write!(
                f,
                " and the labels {}",
                labels.collect::<Vec<_>>().join(", ")
            )?;
        }
        write!(f, " for {}", self.takes.join(", "))
    }
}

impl fmt::Display for Cure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self
            .hosts
            .iter()
            .map(|host| format!("one more host {host}"));
        let capped = (!self.capped.is_empty())
            .then(|| format!("a higher cap for {}", self.capped.join(", ")));
        let all = hosts.chain(capped).collect::<Vec<_>>();
        if all.is_empty() {
            return f.write_str("nothing is missing");
        }
        f.write_str(&all.join("; "))?;
        if self.least {
            return Ok(());
        }
        f.write_str(" (enough; perhaps less would be)")
    }
}
