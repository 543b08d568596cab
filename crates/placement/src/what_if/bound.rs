//! How many machines are left without a host whatever is done, found without trying.

use guestcluster_capacity::Quantity;

use super::packing::Packing;
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
#[derive(Debug, Default)]
struct Lots {
    all: Vec<usize>,
    /// Those whose machines are at least as large, in every resource.
    larger: Vec<usize>,
    /// Those of the same group, of which a host takes one.
    group: Vec<usize>,
}

/// Looks at hosts; what a question may spend is counted in them.
pub(super) type Looks = u64;

impl<'q> Bound<'q> {
    pub(super) fn new(world: &'q World<'q>, blocks: &'q [Block]) -> Self {
        let lots = blocks.iter().enumerate().map(|(own_at, of)| {
            let mut lots = Lots::default();
            let own = &world.kinds[of.kind];
            for (at, block) in blocks.iter().enumerate() {
                let kind = &world.kinds[block.kind];
                // A set without members is within every set; counted with each, it would be added
                // up several times below.
                let is_nowhere = block.hosts.is_empty() && at != own_at;
                if is_nowhere || !block.hosts.is_within(&of.hosts) {
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
        });
        Self {
            world,
            blocks,
            lots: lots.collect(),
        }
    }

    /// At least so many of the machines that `left` counts by block find no host.
    pub(super) fn forced(&self, packing: &Packing<'_>, left: &[usize], looks: &mut Looks) -> usize {
        let mut short = Vec::new();
        for (at, block) in self.blocks.iter().enumerate() {
            let shortage = self.short(at, packing, left, looks);
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

    fn short(&self, at: usize, packing: &Packing<'_>, left: &[usize], looks: &mut Looks) -> usize {
        let lots = &self.lots[at];
        let count = |lot: &[usize]| lot.iter().map(|at| left[*at]).sum::<usize>();
        let (all, larger, group) = (count(&lots.all), count(&lots.larger), count(&lots.group));
        if all == 0 {
            return 0;
        }
        let kind = self.blocks[at].kind;
        let requests = &self.world.kinds[kind].requests;
        let mut wanted = self.sums(&lots.all, left);
        let (mut copies, mut carriers) = (0_usize, 0);
        for host in self.blocks[at].hosts.iter() {
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
    let requested = requests
        .iter()
        .zip(free)
        .filter(|(request, _)| request.milli() > 0);
    let times = requested.map(|(request, free)| free.milli().max(0) / request.milli());
    let least = times.min().unwrap_or(i128::MAX);
    usize::try_from(least).unwrap_or(usize::MAX)
}
