//! One question, answered.

use super::WhatIf;
use super::bits::Bits;
use super::bound::Bound;
use super::packing::{Choice, Homes, Packing, complete, greedy};
use super::search::{Found, Limit, search};
use super::world::{Block, World};
use crate::{Needs, Refusal, fit};
use guestcluster_capacity::Holding;

/// Whether all displaced machines find a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// All do.
    Fits {
        /// Each displaced machine and a host for it, by name of the machine.
        moves: Vec<(&'a str, &'a str)>,
    },
    /// Not all do.
    Short(Shortfall<'a>),
    /// Not all did in what was tried, and not everything was.
    NotKnown(Shortfall<'a>),
}

/// A way to place the displaced machines that leaves some without a host.
///
/// Which are left is a choice among those that compete for the same room: the way shown leaves as
/// few as was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall<'a> {
    /// Machines that are left without a host, by name. None of them fits beside the moves.
    pub homeless: Vec<&'a str>,
    /// The others and a host for each, by name of the machine.
    pub moves: Vec<(&'a str, &'a str)>,
    /// No way leaves fewer than so many.
    pub at_least: usize,
    pub(super) dead: Bits,
}

pub(super) fn answer<'a>(world: &World<'a>, dead: &Bits, mut effort: u64) -> Outcome<'a> {
    let blocks = world.displaced(dead);
    let mut homes = greedy(world, &blocks, Choice::First);
    let mut at_least = 0;
    if left_over(&homes) > 0 {
        let bound = Bound::new(world, &blocks);
        let left = blocks.iter().map(|b| b.machines.len()).collect::<Vec<_>>();
        at_least = bound.forced(&Packing::new(world), &left, &mut 0);
        if at_least < left_over(&homes) {
            let tightest = greedy(world, &blocks, Choice::Tightest);
            if left_over(&tightest) < left_over(&homes) {
                homes = tightest;
            }
        }
        while at_least < left_over(&homes) {
            let limit = Limit {
                count: at_least,
                size: u128::MAX,
            };
            match search(world, &blocks, &bound, limit, &mut effort) {
                Found::Way(way) => homes = complete(world, &blocks, way, Choice::First),
                Found::Nothing => at_least += 1,
                Found::GaveUp => break,
            }
        }
    }
    let moves = moves(world, &blocks, &homes);
    let homeless = homeless(world, &blocks, &homes);
    if homeless.is_empty() {
        return Outcome::Fits { moves };
    }
    let shortfall = Shortfall {
        homeless: homeless
            .into_iter()
            .map(|machine| world.machine(machine).name)
            .collect(),
        moves,
        at_least,
        dead: dead.clone(),
    };
    if at_least > 0 {
        Outcome::Short(shortfall)
    } else {
        Outcome::NotKnown(shortfall)
    }
}

pub(super) fn left_over(homes: &Homes) -> usize {
    homes.iter().filter(|home| home.is_none()).count()
}

fn machines(blocks: &[Block]) -> impl Iterator<Item = usize> {
    blocks
        .iter()
        .flat_map(|block| block.machines.iter().copied())
}

/// Numbers of the machines without a host, in order.
pub(super) fn homeless(world: &World<'_>, blocks: &[Block], homes: &Homes) -> Vec<usize> {
    let each = machines(blocks).zip(homes);
    let mut homeless = each
        .filter(|(_, home)| home.is_none())
        .map(|(m, _)| m)
        .collect::<Vec<_>>();
    homeless.sort_unstable_by_key(|machine| world.machine(*machine).name);
    homeless
}

pub(super) fn moves<'a>(
    world: &World<'a>,
    blocks: &[Block],
    homes: &Homes,
) -> Vec<(&'a str, &'a str)> {
    let each = machines(blocks).zip(homes).filter_map(|(machine, home)| {
        Some((world.machine(machine).name, &*world.host((*home)?).name))
    });
    let mut moves = each.collect::<Vec<_>>();
    moves.sort_unstable();
    moves
}

impl WhatIf<'_> {
    /// Why each host that lives does not take a machine which the shortfall leaves without one, by
    /// name of the host: what keeps it away already now, or [`KeptFor`](Refusal::KeptFor) where it
    /// would fit had no other displaced machine moved there.
    ///
    /// Empty for a machine that the fleet lacks, and where no host lives.
    pub fn why(&self, shortfall: &Shortfall<'_>, machine: &str) -> Vec<(String, Refusal)> {
        let Some(number) = self.world.find(machine) else {
            return Vec::new();
        };
        let hosts = 0..self.world.hosts.len();
        let alive = hosts.filter(|host| !shortfall.dead.has(*host));
        let each = alive.filter_map(|host| {
            let name = &self.world.host(host).name;
            let refusal = self.world.refusal(number, host).or_else(|| {
                let mut moves = shortfall.moves.iter();
                let other = moves.find(|(_, to)| to == name)?.0;
                Some(Refusal::KeptFor(other.to_owned()))
            });
            Some((name.clone(), refusal?))
        });
        each.collect()
    }
}

impl World<'_> {
    pub(super) fn none(&self) -> Bits {
        Bits::none(self.places.len())
    }

    pub(super) fn find(&self, machine: &str) -> Option<usize> {
        let found = self
            .machines
            .binary_search_by(|at| self.fleet.machines[*at].name.cmp(machine));
        found.ok()
    }

    /// Why a host does not take a machine now. Asked of the names and not of the numbers: it need
    /// not be quick, and shall say what [`fit()`] says.
    fn refusal(&self, machine: usize, host: usize) -> Option<Refusal> {
        let this = self.machine(machine);
        let others = (0..self.machines.len()).filter(|other| self.at[*other].contains(&host));
        let others = others.map(|other| self.machine(other)).collect::<Vec<_>>();
        let apart = others
            .iter()
            .filter(|other| this.apart.is_some() && other.apart == this.apart);
        let apart_from = apart.map(|other| Holding {
            machine: other.name.to_owned(),
            host: self.host(host).name.clone(),
            requests: other.requests.clone(),
        });
        let needs = Needs {
            requirements: this.requirements,
            requests: this.requests,
            apart_from: &apart_from.collect::<Vec<_>>(),
        };
        let host = self.host(host);
        if let Err(refusal) = fit(host, &needs, &self.fleet.usage.free(host)) {
            return Some(refusal);
        }
        let tenant = this.tenant?;
        let cap = *self.fleet.caps.get(tenant)?;
        let carried = others
            .iter()
            .filter(|other| other.tenant == this.tenant)
            .count();
        (carried >= cap).then(|| Refusal::TenantCap {
            tenant: tenant.to_owned(),
            cap,
        })
    }
}
