//! How many machines are left without a host whatever is done, found without trying.

use std::collections::BTreeMap;

use guestcluster_capacity::Quantity;

use super::packing::Packing;
use super::search::MOST;
use super::world::{Block, World, fits};

/// What is counted together, found once for a question.
///
/// Each bound forgets something, so that it can only be too low: copies of the smallest machine of
/// a lot are counted instead of the lot, or one resource instead of all.
#[derive(Debug)]
pub(super) struct Bound<'q> {
    world: &'q World<'q>,
    blocks: &'q [Block],
    lots: Vec<Lots>,
}

/// Blocks that may go nowhere but to the hosts of one block.
#[derive(Debug)]
struct Lots {
    /// The one block.
    base: usize,
    all: Vec<usize>,
    /// Those whose machines are at least as large, in every resource.
    larger: Vec<usize>,
    /// Those of the same group, of which a host takes one.
    group: Vec<usize>,
}

impl Lots {
    fn new(world: &World<'_>, blocks: &[Block], base: usize) -> Self {
        let mut lots = Self {
            base,
            all: Vec::new(),
            larger: Vec::new(),
            group: Vec::new(),
        };
        let hosts = &blocks[base].hosts;
        let own = &world.kinds[blocks[base].kind];
        for (at, block) in blocks.iter().enumerate() {
            let kind = &world.kinds[block.kind];
            // A set without members is within every set; counted with each, it would be added up
            // several times.
            let is_nowhere = block.hosts.is_empty() && at != base;
            if is_nowhere || !block.hosts.is_within(hosts) {
                continue;
            }
            lots.all.push(at);
            if fits(&own.requests, &kind.requests) {
                lots.larger.push(at);
                if own.group.is_some() && own.group == kind.group {
                    lots.group.push(at);
                }
            }
        }
        lots
    }
}

/// Sizes for which lots are made where machines are many.
const WIDEST: usize = 64;

/// Looks at hosts; what a question may spend is counted in them.
pub(super) type Looks = u64;

impl<'q> Bound<'q> {
    /// Of many machines, lots are made for the widest block of each size alone: each lot may be as
    /// long as there are blocks.
    pub(super) fn new(world: &'q World<'q>, blocks: &'q [Block]) -> Self {
        let machines = blocks
            .iter()
            .map(|block| block.machines.len())
            .sum::<usize>();
        let mut bases = (0..blocks.len()).collect::<Vec<_>>();
        if machines > MOST {
            // By the number of hosts already, so the last of a size is the widest.
            let sizes = bases
                .iter()
                .map(|at| (&world.kinds[blocks[*at].kind].requests, *at));
            bases = sizes.collect::<BTreeMap<_, _>>().into_values().collect();
            bases.sort_unstable_by(|a, b| b.cmp(a));
            bases.truncate(WIDEST);
        }
        let lots = bases.into_iter().map(|base| Lots::new(world, blocks, base));
        Self {
            world,
            blocks,
            lots: lots.collect(),
        }
    }

    /// At least so many of the machines that `left` counts by block find no host.
    pub(super) fn forced(&self, packing: &Packing<'_>, left: &[usize], looks: &mut Looks) -> usize {
        let mut short = Vec::new();
        for lots in &self.lots {
            let shortage = self.short(lots, packing, left, looks);
            let block = &self.blocks[lots.base];
            if shortage > 0 {
                short.push((shortage, block));
            }
        }
        // Lots whose hosts do not meet have no machine in common: their shortages add up.
        short.sort_by_key(|(shortage, _)| std::cmp::Reverse(*shortage));
        let Some(mut hosts) = short.first().map(|(_, block)| block.hosts.clone()) else {
            return 0;
        };
        let mut forced = short[0].0;
        for (shortage, block) in &short[1..] {
            if !block.hosts.meets(&hosts) {
                forced += shortage;
                hosts.join(&block.hosts);
            }
        }
        forced
    }

    fn short(
        &self,
        lots: &Lots,
        packing: &Packing<'_>,
        left: &[usize],
        looks: &mut Looks,
    ) -> usize {
        let count = |lot: &[usize]| lot.iter().map(|at| left[*at]).sum::<usize>();
        let (all, larger, group) = (count(&lots.all), count(&lots.larger), count(&lots.group));
        if all == 0 {
            return 0;
        }
        let block = &self.blocks[lots.base];
        let kind = block.kind;
        let requests = &self.world.kinds[kind].requests;
        let mut wanted = self.sums(&lots.all, left);
        let (mut copies, mut carriers) = (0_usize, 0);
        for host in block.hosts.iter() {
            *looks += 1;
            let free = packing.free(host);
            copies = copies.saturating_add(fit_times(requests, free).min(larger));
            carriers += usize::from(packing.takes(kind, host));
            for ((sum, _), free) in wanted.iter_mut().zip(free) {
                *sum -= (*free).max(Quantity::default());
            }
            let enough = copies >= larger && carriers >= group;
            if enough && wanted.iter().all(|(sum, _)| *sum <= Quantity::default()) {
                return 0;
            }
        }
        let missing = wanted.iter().map(|(sum, largest)| over(*sum, *largest));
        let missing = missing.max().unwrap_or_default();
        let short = larger.saturating_sub(copies);
        short.max(group.saturating_sub(carriers)).max(missing)
    }

    /// For each resource what machines of a lot request in sum, and the most that one does.
    fn sums(&self, lot: &[usize], left: &[usize]) -> Vec<(Quantity, Quantity)> {
        let kinds = self.world.kinds.first();
        let width = kinds.map_or(0, |kind| kind.requests.len());
        let mut sums = vec![<(Quantity, Quantity)>::default(); width];
        for at in lot.iter().filter(|at| left[**at] > 0) {
            let kind = &self.world.kinds[self.blocks[*at].kind];
            for ((sum, largest), request) in sums.iter_mut().zip(&kind.requests) {
                *sum += *request * left[*at] as u64;
                *largest = (*largest).max(*request);
            }
        }
        sums
    }
}

/// How many machines there must be without room so that an excess is gone.
fn over(excess: Quantity, largest: Quantity) -> usize {
    let (excess, largest) = (excess.milli(), largest.milli());
    if excess <= 0 || largest <= 0 {
        return 0;
    }
    let machines = (excess - 1) / largest + 1;
    usize::try_from(machines).unwrap_or(usize::MAX)
}

fn fit_times(requests: &[Quantity], free: &[Quantity]) -> usize {
    // Comparing is much quicker than dividing, and most hosts have no room.
    if !fits(requests, free) {
        return 0;
    }
    let requested = requests
        .iter()
        .zip(free)
        .filter(|(request, _)| request.milli() > 0);
    let times = requested.map(|(request, free)| free.milli().max(0) / request.milli());
    let least = times.min().unwrap_or(i128::MAX);
    usize::try_from(least).unwrap_or(usize::MAX)
}
