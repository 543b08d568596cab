//! Every way to place machines, as far as the effort allows.

use std::collections::BTreeMap;
use std::ops::ControlFlow::{self, Break, Continue};

use super::bound::{Bound, Looks};
use super::packing::{Homes, Packing};
use super::world::{Block, World};

/// More machines than this are not searched: there is no hope, and the stack is finite.
pub(super) const MOST: usize = 500;

/// What an answer has to be better than.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// At most so many machines without a host.
    pub(super) count: usize,
    /// Which are smaller than this in sum.
    pub(super) size: u128,
}

/// How a search ended.
#[derive(Debug)]
pub(super) enum Found {
    /// A way within the limit.
    Way(Homes),
    /// There is none.
    Nothing,
    /// Not known.
    GaveUp,
}

enum Stop {
    Found,
    GaveUp,
}

#[derive(Debug)]
struct Search<'q> {
    world: &'q World<'q>,
    blocks: &'q [Block],
    bound: &'q Bound<'q>,
    packing: Packing<'q>,
    /// For each host the one before it that cannot be told apart from it.
    twins: Vec<Option<usize>>,
    homes: Homes,
    /// Machines that have had no turn yet, by block.
    left: Vec<usize>,
    /// The size of the smallest machine from this block on.
    smallest: Vec<u128>,
    limit: Limit,
    looks: Looks,
    effort: Looks,
}

/// Looks for a way within `limit`, and takes what it spends from `effort`.
///
/// Ways that differ only in which of several equal machines, or of several equal untouched hosts,
/// is which, are tried once: equal machines take hosts in their order, the last of them go without,
/// and of equal untouched hosts the first is taken.
pub(super) fn search<'q>(
    world: &'q World<'q>,
    blocks: &'q [Block],
    bound: &'q Bound<'q>,
    limit: Limit,
    effort: &mut Looks,
) -> Found {
    let left = blocks.iter().map(|b| b.machines.len()).collect::<Vec<_>>();
    let machines = left.iter().sum();
    if machines > MOST {
        return Found::GaveUp;
    }
    let mut smallest = vec![u128::MAX];
    for block in blocks.iter().rev() {
        let last = smallest[smallest.len() - 1];
        smallest.push(last.min(world.kinds[block.kind].size));
    }
    smallest.reverse();
    let mut search = Search {
        world,
        blocks,
        bound,
        packing: Packing::new(world),
        twins: twins(world, blocks),
        homes: vec![None; machines],
        left,
        smallest,
        limit,
        looks: 0,
        effort: *effort,
    };
    let end = search.descend(At::default());
    *effort = effort.saturating_sub(search.looks);
    match end {
        Continue(()) => Found::Nothing,
        Break(Stop::Found) => Found::Way(search.homes),
        Break(Stop::GaveUp) => Found::GaveUp,
    }
}

/// A point in the search.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    block: usize,
    /// Machines that have had their turn.
    machines: usize,
    /// No host before this one: where the equal machine before went.
    from: usize,
    /// Machines without a host so far, and their size.
    homeless: usize,
    size: u128,
}

impl Search<'_> {
    /// Tries all that can follow; leaves everything as it was unless it breaks off.
    fn descend(&mut self, at: At) -> ControlFlow<Stop> {
        let Some(block) = self.blocks.get(at.block) else {
            let better = at.homeless <= self.limit.count && at.size < self.limit.size;
            return if better {
                Break(Stop::Found)
            } else {
                Continue(())
            };
        };
        if self.is_hopeless(at) {
            return Continue(());
        }
        let left = self.left[at.block];
        if left == 0 {
            let (block, from) = (at.block + 1, 0);
            return self.descend(At { block, from, ..at });
        }
        self.left[at.block] -= 1;
        let mut from = at.from;
        while let Some(host) = block.hosts.next(from) {
            from = host + 1;
            self.spend(1)?;
            if self.is_later_twin(host) || !self.packing.takes(block.kind, host) {
                continue;
            }
            self.packing.place(block.kind, host);
            self.homes[at.machines] = Some(host);
            let machines = at.machines + 1;
            self.descend(At {
                machines,
                from: host,
                ..at
            })?;
            self.packing.undo(host);
        }
        self.left[at.block] = 0;
        self.homes[at.machines..][..left].fill(None);
        let size = self.world.kinds[block.kind]
            .size
            .saturating_mul(left as u128);
        self.descend(At {
            block: at.block + 1,
            machines: at.machines + left,
            from: 0,
            homeless: at.homeless + left,
            size: at.size.saturating_add(size),
        })?;
        self.left[at.block] = left;
        Continue(())
    }

    /// Whatever follows is not within the limit.
    fn is_hopeless(&mut self, at: At) -> bool {
        let beyond = |forced: usize| {
            let least = self.smallest[at.block].saturating_mul(forced as u128);
            at.homeless + forced > self.limit.count
                || at.size.saturating_add(least) >= self.limit.size
        };
        beyond(0)
            || beyond(
                self.bound
                    .forced(&self.packing, &self.left, &mut self.looks),
            )
    }

    fn spend(&mut self, looks: Looks) -> ControlFlow<Stop> {
        self.looks += looks;
        if self.looks > self.effort {
            return Break(Stop::GaveUp);
        }
        Continue(())
    }

    fn is_later_twin(&self, host: usize) -> bool {
        let twin = self.twins[host];
        self.packing.is_untouched(host) && twin.is_some_and(|twin| self.packing.is_untouched(twin))
    }
}

/// Hosts are alike if the same of these machines may go there, as much is free, and as many of each
/// tenant with a cap are there.
fn twins(world: &World<'_>, blocks: &[Block]) -> Vec<Option<usize>> {
    let mut last = BTreeMap::new();
    let hosts = 0..world.hosts.len();
    hosts
        .map(|host| {
            let allowed = blocks.iter().map(|block| block.hosts.has(host));
            let tenants = blocks.iter().map(|block| {
                let tenant = world.kinds[block.kind].tenant;
                tenant.map(|(tenant, _)| world.of_tenant(tenant, host))
            });
            let alike = allowed.zip(tenants).collect::<Vec<_>>();
            last.insert((alike, world.free(host)), host)
        })
        .collect()
}
