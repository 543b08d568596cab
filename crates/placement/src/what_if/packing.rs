//! Machines that move, and what that leaves of the hosts that take them.

use guestcluster_capacity::Quantity;

use super::world::{Block, World, fits};

/// Hosts of the machines of all blocks, one after the other.
pub(super) type Homes = Vec<Option<usize>>;

/// Who has moved where. Hosts that took nobody are not copied: most questions touch a few hosts of
/// many.
#[derive(Debug)]
pub(super) struct Packing<'w> {
    world: &'w World<'w>,
    /// One more than the load's index; zero for hosts that never took anybody.
    slots: Vec<usize>,
    loads: Vec<Load>,
}

#[derive(Debug)]
struct Load {
    free: Vec<Quantity>,
    /// Kinds that moved here.
    moved: Vec<usize>,
}

impl<'w> Packing<'w> {
    pub(super) fn new(world: &'w World<'w>) -> Self {
        Self {
            world,
            slots: vec![0; world.hosts.len()],
            loads: Vec::new(),
        }
    }

    fn load(&self, host: usize) -> Option<&Load> {
        self.loads.get(self.slots[host].checked_sub(1)?)
    }

    /// Nobody has moved there.
    pub(super) fn is_untouched(&self, host: usize) -> bool {
        self.load(host).is_none_or(|load| load.moved.is_empty())
    }

    pub(super) fn free(&self, host: usize) -> &[Quantity] {
        let load = self.load(host);
        load.map_or_else(|| self.world.free(host), |load| &load.free)
    }

    /// Whether a host of the kind's own set still takes one after those that moved there.
    pub(super) fn takes(&self, kind: usize, host: usize) -> bool {
        let Some(load) = self.load(host) else {
            return true;
        };
        let kind = &self.world.kinds[kind];
        let moved = || load.moved.iter().map(|other| &self.world.kinds[*other]);
        fits(&kind.requests, &load.free)
            && (kind.group.is_none() || moved().all(|other| other.group != kind.group))
            && kind.tenant.is_none_or(|(tenant, cap)| {
                let new = moved().filter(|other| other.tenant == kind.tenant).count();
                self.world.of_tenant(tenant, host) + new < cap
            })
    }

    pub(super) fn place(&mut self, kind: usize, host: usize) {
        if self.slots[host] == 0 {
            self.loads.push(Load {
                free: self.world.free(host).to_vec(),
                moved: Vec::new(),
            });
            self.slots[host] = self.loads.len();
        }
        let load = &mut self.loads[self.slots[host] - 1];
        load.moved.push(kind);
        for (free, request) in load.free.iter_mut().zip(&self.world.kinds[kind].requests) {
            *free -= *request;
        }
    }

    /// Undoes the last [`place`](Self::place) on that host.
    pub(super) fn undo(&mut self, host: usize) {
        let Some(load) = self.slots[host].checked_sub(1) else {
            return;
        };
        let load = &mut self.loads[load];
        if let Some(kind) = load.moved.pop() {
            for (free, request) in load.free.iter_mut().zip(&self.world.kinds[kind].requests) {
                *free += *request;
            }
        }
    }
}

/// Which host a machine gets of those that take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The first by name: no need to look at the others.
    First,
    /// The one that has least left then: larger machines find the others whole.
    Tightest,
}

/// A way to place machines, block by block without looking back. No machine is left without a host
/// that still takes it.
pub(super) fn greedy<'w>(world: &'w World<'w>, blocks: &[Block], choice: Choice) -> Homes {
    let none = vec![None; blocks.iter().map(|block| block.machines.len()).sum()];
    complete(world, blocks, none, choice)
}

/// The same, where some have a host already.
pub(super) fn complete<'w>(
    world: &'w World<'w>,
    blocks: &[Block],
    mut homes: Homes,
    choice: Choice,
) -> Homes {
    let mut packing = Packing::new(world);
    let kinds = blocks
        .iter()
        .flat_map(|b| b.machines.iter().map(|_| b.kind));
    for (kind, home) in kinds.zip(&homes) {
        if let Some(host) = home {
            packing.place(kind, *host);
        }
    }
    let mut homes_left = homes.as_mut_slice();
    for block in blocks {
        // A host that refuses one of a kind refuses all that follow, since hosts only fill.
        let mut from = 0;
        let (these, others) = homes_left.split_at_mut(block.machines.len());
        homes_left = others;
        for home in these {
            if home.is_some() {
                continue;
            }
            let host = match choice {
                Choice::First => first(&packing, block, from),
                Choice::Tightest => tightest(&packing, block),
            };
            let Some(host) = host else {
                break;
            };
            packing.place(block.kind, host);
            (*home, from) = (Some(host), host);
        }
    }
    homes
}

fn first(packing: &Packing<'_>, block: &Block, mut from: usize) -> Option<usize> {
    loop {
        let host = block.hosts.next(from)?;
        if packing.takes(block.kind, host) {
            return Some(host);
        }
        from = host + 1;
    }
}

/// Least left is least of the resource of which the machine takes the largest share.
fn tightest(packing: &Packing<'_>, block: &Block) -> Option<usize> {
    let scarce = packing.world.kinds[block.kind].scarce;
    let taking = block
        .hosts
        .iter()
        .filter(|host| packing.takes(block.kind, *host));
    taking.min_by_key(|host| (packing.free(*host).get(scarce), *host))
}
