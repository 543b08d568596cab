//! Which object is to be reconciled when, and the loop that does it.
//!
//! # Guarantees
//! - One object is reconciled by one future at a time; at most [`Limits::concurrency`] objects are.
//! - A name added while its object is being reconciled is reconciled once more afterwards: what
//!   was learnt too late for the running reconcile is not lost.
//! - A name added several times before its turn is reconciled once, at the earliest of the times.
//! - On shutdown no reconcile begins; running ones may finish within [`Limits::drain`].
//! - Each object is visited at least once per [`Limits::resync`], whatever its reconcile asked for,
//!   until its reconcile says that it is [`Requeue::Gone`].
//!
//! # Assumes
//! - A reconcile may be dropped at any await point, as by a crash: that is what happens to it after
//!   [`Limits::reconcile`] or at the end of the drain.
//!
//! # Caveats
//! - All reconciles run in the loop's own task: one that computes without awaiting holds up the
//!   others.

mod run;
mod schedule;

pub use run::Loop;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::monotonic;
use schedule::Schedule;

/// When to come back to an object whose reconcile has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// When something changes, or at the next resync.
    OnChange,
    /// After this long, or at the next resync if that is sooner.
    After(Duration),
    /// Not before somebody adds it again: there is no such object any more.
    Gone,
}

/// How much the loop may do.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How many objects are reconciled at a time.
    pub concurrency: NonZeroUsize,
    /// The longest that one reconcile may take before it is dropped as a transient failure. A last
    /// resort: each call within should have its own, shorter limit.
    pub reconcile: Duration,
    /// How long running reconciles may go on after shutdown was requested.
    pub drain: Duration,
    /// The longest that an object goes unvisited. Jitter takes off up to half of it.
    pub resync: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrency: NonZeroUsize::MIN.saturating_add(7),
            reconcile: Duration::from_secs(120),
            drain: Duration::from_secs(20),
            resync: Duration::from_secs(600),
        }
    }
}

/// The names that are to be reconciled. Clones share it; adding never waits.
///
/// A name stays until a [`Loop`] takes it, so what a standby adds is there when it leads. The queue
/// holds each name once and is no larger than the number of objects.
#[derive(Debug)]
pub struct Queue<Id> {
    shared: Arc<Shared<Id>>,
    debounce: Duration,
}

#[derive(Debug)]
struct Shared<Id> {
    schedule: Mutex<Schedule<Id>>,
    changed: Notify,
}

impl<Id> Clone for Queue<Id> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            debounce: self.debounce,
        }
    }
}

impl<Id: Ord + Clone> Queue<Id> {
    /// An empty queue. A name that is added waits for `debounce`, so that a burst of changes of
    /// one object becomes one reconcile.
    pub fn new(debounce: Duration) -> Self {
        let shared = Shared {
            schedule: Mutex::new(Schedule::default()),
            changed: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
            debounce,
        }
    }

    /// Asks for a reconcile soon.
    pub fn add(&self, id: Id) {
        self.add_after(id, self.debounce);
    }

    /// Asks for a reconcile after a while, or sooner if it is asked for otherwise.
    pub fn add_after(&self, id: Id, wait: Duration) {
        self.schedule().add(id, monotonic() + wait);
        self.shared.changed.notify_one();
    }

    /// How many names wait, those of later times included.
    pub fn len(&self) -> usize {
        self.schedule().len()
    }

    /// Whether no name waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Each change of the schedule is one call, so a panic elsewhere leaves it whole.
    fn schedule(&self) -> MutexGuard<'_, Schedule<Id>> {
        self.shared
            .schedule
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
