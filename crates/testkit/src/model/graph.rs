//! Worlds that were reached, and how.

use std::collections::HashMap;

use crate::world::Move;

/// Number of a world, in the order in which they were found.
pub(super) type Id = usize;

/// Worlds by key.
#[derive(Default)]
pub(super) struct Graph {
    ids: HashMap<u128, Id>,
    worlds: Vec<Reached>,
}

struct Reached {
    /// From which world, by which moves; the start came from none.
    by: Option<(Id, Vec<Move>)>,
    /// The most natural move and where it leads; none where nothing is left to come.
    fair: Option<(Id, Move)>,
}

impl Graph {
    pub(super) fn len(&self) -> usize {
        self.worlds.len()
    }

    /// The start.
    pub(super) fn root(&mut self, key: u128) -> Id {
        self.insert(key, None).0
    }

    /// A world that was reached, and whether it is new.
    pub(super) fn add(&mut self, key: u128, by: (Id, Vec<Move>)) -> (Id, bool) {
        self.insert(key, Some(by))
    }

    fn insert(&mut self, key: u128, by: Option<(Id, Vec<Move>)>) -> (Id, bool) {
        let id = self.worlds.len();
        let known = *self.ids.entry(key).or_insert(id);
        if known == id {
            self.worlds.push(Reached { by, fair: None });
        }
        (known, known == id)
    }

    pub(super) fn follow(&mut self, id: Id, fair: Option<(Id, Move)>) {
        self.worlds[id].fair = fair;
    }

    /// The moves from the start.
    pub(super) fn way(&self, mut id: Id) -> Vec<Move> {
        let mut parts = Vec::new();
        while let Some((before, steps)) = &self.worlds[id].by {
            parts.push(steps);
            id = *before;
        }
        parts.into_iter().rev().flatten().cloned().collect()
    }

    /// The first world on a round of natural moves, with that round.
    pub(super) fn restless(&self) -> Option<(Id, Vec<Move>)> {
        let mut rests = vec![false; self.worlds.len()];
        let mut seen_from = vec![None; self.worlds.len()];
        for start in 0..self.worlds.len() {
            let mut way = Vec::new();
            let mut id = start;
            while !rests[id] && seen_from[id] != Some(start) {
                seen_from[id] = Some(start);
                way.push(id);
                match &self.worlds[id].fair {
                    Some((next, _)) => id = *next,
                    None => rests[id] = true,
                }
            }
            if !rests[id] {
                return Some((id, self.round(id)));
            }
            for id in way {
                rests[id] = true;
            }
        }
        None
    }

    fn round(&self, from: Id) -> Vec<Move> {
        let mut steps = Vec::new();
        let mut id = from;
        while let Some((next, step)) = &self.worlds[id].fair {
            steps.push(step.clone());
            id = *next;
            if id == from {
                break;
            }
        }
        steps
    }
}
