//! Walks through all that can happen in a small world, and looks for a broken promise.
//!
//! From each world every [`Move`] is taken; worlds with the same [`World::key`] are one. Troubles (a
//! fault of a machine or host, a mishap of the operator) are counted: all worlds that are reached
//! with none come first, then those with one, and so on, so that what is found is told with as few
//! of them as possible, and in as few moves.
//!
//! Two things are looked for:
//! - a law that an action breaks (`world/laws.rs`);
//! - a world from which the guest does not come to rest when nothing goes wrong any more. Of the moves
//!   that change a world the most natural one is followed, until there is none; that world must be as
//!   it was wanted ([`World::unrest`]), and the way must not go round.

mod graph;
mod mishaps;

use std::collections::BTreeMap;
use std::fmt;

use crate::world::{Mishap, Move, World};
use graph::{Graph, Id};

/// The operator visits, and nothing goes wrong.
pub const VISIT: Move = Move::Reconcile(Mishap::None);

/// How far to walk.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Faults and mishaps on one way.
    pub troubles: usize,
    /// Moves of the world between a look of the operator and what it does late.
    pub lag: usize,
    /// Give up beyond so many worlds.
    pub worlds: usize,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Worlds that differ.
    pub worlds: usize,
    /// Moves that were taken.
    pub moves: usize,
    /// Worlds in which two troubles have cost etcd its quorum for good: status calls for a person.
    pub given_up: usize,
    /// The first broken promise, with the way to it as sentences.
    pub broken: Option<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} worlds, {} moves", self.worlds, self.moves)?;
        match self.given_up {
            0 => Ok(()),
            number => write!(out, ", {number} of them left to a person"),
        }
    }
}

/// Walks through all that can happen from here on.
pub fn walk(start: &World, bounds: Bounds) -> Outcome {
    let mut walker = Walker {
        bounds,
        graph: Graph::default(),
        outcome: Outcome::default(),
        next: Vec::new(),
    };
    let found = walker.walk(start).err();
    Outcome {
        worlds: walker.graph.len(),
        broken: found.map(|found| walker.tell(start, &found)),
        ..walker.outcome
    }
}

/// A broken promise: the world before it, and the moves that led on.
struct Found {
    what: String,
    from: Id,
    steps: Vec<Move>,
}

struct Walker {
    bounds: Bounds,
    graph: Graph,
    outcome: Outcome,
    /// Worlds one move further, to be walked from.
    next: Vec<(Id, World)>,
}

/// Worlds by their distance from the start.
type Depths = BTreeMap<usize, Vec<(Id, World)>>;

impl Walker {
    fn walk(&mut self, start: &World) -> Result<(), Found> {
        let mut start = start.clone();
        start.keep_log(false);
        self.next = vec![(self.graph.root(start.key()), start)];
        let mut before = Depths::new();
        for troubles in 0..=self.bounds.troubles {
            before = self.layer(before, troubles)?;
        }
        match self.graph.restless() {
            None => Ok(()),
            Some((from, steps)) => Err(Found {
                what: "it goes round and round without rest".to_owned(),
                from,
                steps,
            }),
        }
    }

    /// All worlds with one trouble more than `before`.
    fn layer(&mut self, mut before: Depths, troubles: usize) -> Result<Depths, Found> {
        let mut reached = Depths::new();
        let mut depth = 0;
        while !(self.next.is_empty() && before.is_empty()) {
            for (id, world) in std::mem::take(&mut self.next) {
                self.go_on(id, &world, troubles)?;
                if troubles < self.bounds.troubles {
                    reached.entry(depth).or_default().push((id, world));
                }
            }
            for (id, world) in before.remove(&depth).unwrap_or_default() {
                for steps in mishaps::troubles(&world, self.bounds.lag) {
                    self.reach(id, &world, steps)?;
                }
            }
            depth += 1;
        }
        Ok(reached)
    }

    /// Every move without trouble.
    fn go_on(&mut self, id: Id, world: &World, troubles: usize) -> Result<(), Found> {
        let (back, usual): (Vec<Move>, Vec<Move>) = world
            .moves()
            .into_iter()
            .partition(|step| matches!(step, Move::HostBack(_)));
        let mut fair = self.each(id, world, usual)?;
        // Minutes pass when nothing goes on in seconds; otherwise somebody is slow, which is a trouble.
        let waits = fair.is_none() && world.is_patient();
        let later = self.each(id, world, waits.then_some(Move::Patience))?;
        fair = fair.or(later);
        let back = self.each(id, world, back)?;
        fair = fair.or(back);
        if fair.is_none() {
            fair = self.first(id, world, world.last_resorts())?;
        }
        if fair.is_none() {
            self.rest(id, world, troubles)?;
        }
        self.graph.follow(id, fair);
        Ok(())
    }

    /// Nothing is left to come: it must be as it was wanted.
    fn rest(&mut self, id: Id, world: &World, troubles: usize) -> Result<(), Found> {
        let Some(what) = world.unrest() else {
            return Ok(());
        };
        // One trouble never costs the quorum for good, and what we do never does.
        if troubles > 1 && world.calls_for_person() {
            self.outcome.given_up += 1;
            return Ok(());
        }
        Err(Found {
            what,
            from: id,
            steps: Vec::new(),
        })
    }

    /// Takes each of the moves; the first one that changes something, with where it leads.
    fn each(
        &mut self,
        id: Id,
        world: &World,
        steps: impl IntoIterator<Item = Move>,
    ) -> Result<Option<(Id, Move)>, Found> {
        let mut first = None;
        for step in steps {
            let reached = self.reach(id, world, vec![step.clone()])?;
            first = first.or_else(|| (reached != id).then_some((reached, step)));
        }
        Ok(first)
    }

    /// Takes moves until one changes something.
    fn first(
        &mut self,
        id: Id,
        world: &World,
        steps: Vec<Move>,
    ) -> Result<Option<(Id, Move)>, Found> {
        for step in steps {
            let reached = self.each(id, world, [step])?;
            if reached.is_some() {
                return Ok(reached);
            }
        }
        Ok(None)
    }

    /// Takes moves one after another; worlds in between are none of their own.
    fn reach(&mut self, from: Id, world: &World, steps: Vec<Move>) -> Result<Id, Found> {
        let mut world = world.clone();
        for step in &steps {
            world.take(step);
        }
        self.outcome.moves += 1;
        if let Some(what) = world.broken().first() {
            let what = what.clone();
            return Err(Found { what, from, steps });
        }
        if self.graph.len() > self.bounds.worlds {
            let what = format!("there are more than {} worlds", self.bounds.worlds);
            return Err(Found { what, from, steps });
        }
        let (id, is_new) = self.graph.add(world.key(), (from, steps));
        if is_new {
            world.forget_conditions();
            self.next.push((id, world));
        }
        Ok(id)
    }

    /// The way to a broken promise, as sentences.
    fn tell(&self, start: &World, found: &Found) -> String {
        let mut world = start.clone();
        world.keep_log(true);
        for step in self.graph.way(found.from).iter().chain(&found.steps) {
            world.take(step);
        }
        let machines = world.status().control_plane.machines;
        let phase = |m: &guestcluster_api::status::MachineStatus| format!("{} {}", m.name, m.phase);
        let machines: Vec<String> = machines.iter().map(phase).collect();
        format!("{}\n{}\n{machines:?}", found.what, world.log())
    }
}
