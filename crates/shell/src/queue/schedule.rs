//! The order of the queue, as a plain value.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Instant;

/// Names with the time at which they are due, and the names that are being reconciled.
#[derive(Debug)]
pub(super) struct Schedule<Id> {
    due: BTreeMap<Id, Instant>,
    order: BTreeSet<(Instant, Id)>,
    /// What runs, and when it is to run again if it was added meanwhile.
    running: BTreeMap<Id, Option<Instant>>,
}

impl<Id> Default for Schedule<Id> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            order: BTreeSet::new(),
            running: BTreeMap::new(),
        }
    }
}

impl<Id: Ord + Clone> Schedule<Id> {
    /// Makes a name due at a time, unless it is due before.
    pub(super) fn add(&mut self, id: Id, at: Instant) {
        if let Some(again) = self.running.get_mut(&id) {
            *again = Some(again.map_or(at, |before| before.min(at)));
            return;
        }
        match self.due.get(&id) {
            Some(before) if *before <= at => return,
            Some(before) => {
                self.order.remove(&(*before, id.clone()));
            }
            None => {}
        }
        self.due.insert(id.clone(), at);
        self.order.insert((at, id));
    }

    /// Takes the name that has been due for longest. It runs until [`done`](Self::done).
    pub(super) fn take(&mut self, now: Instant) -> Option<Id> {
        if self.next_due()? > now {
            return None;
        }
        let (_, id) = self.order.pop_first()?;
        self.due.remove(&id);
        self.running.insert(id.clone(), None);
        Some(id)
    }

    /// A name runs no more. It is due again at `next`, or before if it was added meanwhile.
    pub(super) fn done(&mut self, id: &Id, next: Option<Instant>) {
        let again = self.running.remove(id).flatten();
        let at = match (again, next) {
            (Some(again), Some(next)) => Some(again.min(next)),
            (again, next) => again.or(next),
        };
        if let Some(at) = at {
            self.add(id.clone(), at);
        }
    }

    /// When the next name is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::clock::monotonic;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn the_earliest_of_several_times_counts_and_the_name_comes_once() {
        let start = monotonic();
        let mut schedule = Schedule::default();
        for seconds in [5, 2, 9] {
            schedule.add("a", after(start, seconds));
        }
        assert_eq!(schedule.take(after(start, 1)), None);
        assert_eq!(schedule.take(after(start, 2)), Some("a"));
        schedule.done(&"a", None);
        assert_eq!(schedule.take(after(start, 60)), None);
    }

    #[test]
    fn what_was_added_during_a_reconcile_runs_again_afterwards() {
        let start = monotonic();
        let mut schedule = Schedule::default();
        schedule.add("a", start);
        assert_eq!(schedule.take(start), Some("a"));
        schedule.add("a", after(start, 1));
        assert_eq!(schedule.take(after(start, 1)), None, "it runs already");
        schedule.done(&"a", Some(after(start, 600)));
        assert_eq!(schedule.take(after(start, 1)), Some("a"));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Add(u8, u64),
        Take,
        Done(u8),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..4_u8, 0..20_u64).prop_map(|(id, wait)| Step::Add(id, wait)),
            Just(Step::Take),
            (0..4_u8).prop_map(Step::Done),
            (0..10_u64).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #[test]
        fn no_name_runs_twice_at_a_time_and_none_that_was_added_is_lost(
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut now = monotonic();
            let mut schedule = Schedule::default();
            let (mut running, mut wanted) = (BTreeSet::new(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Add(id, wait) => {
                        schedule.add(id, after(now, wait));
                        wanted.insert(id);
                    }
                    Step::Take => if let Some(id) = schedule.take(now) {
                        prop_assert!(running.insert(id), "{id} runs twice");
                        wanted.remove(&id);
                    },
                    Step::Done(id) => if running.remove(&id) { schedule.done(&id, None); },
                    Step::Wait(seconds) => now = after(now, seconds),
                }
            }
            for id in &running {
                schedule.done(id, None);
            }
            let left: BTreeSet<_> =
                std::iter::from_fn(|| schedule.take(after(now, 1000))).collect();
            prop_assert_eq!(left, wanted);
        }
    }
}
