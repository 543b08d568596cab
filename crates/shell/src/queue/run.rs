//! The loop that takes names from a queue and reconciles them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tracing::{Instrument, debug, error_span, warn};

use super::{Limits, Queue, Requeue};
use crate::backoff::{Backoff, Jitter, spread};
use crate::clock::{Instant, monotonic};
use crate::error::{Class, Classify};
use crate::health::Pulse;
use crate::metrics::ReconcileMetrics;
use crate::shutdown::Shutdown;

/// The longest that an idle loop sleeps, so that its pulse shows it alive.
const TURN: Duration = Duration::from_secs(1);

/// Takes names from a [`Queue`] and reconciles them.
#[derive(Debug)]
pub struct Loop<Id> {
    queue: Queue<Id>,
    limits: Limits,
    jitter: Jitter,
    pulse: Option<Pulse>,
    metrics: Option<ReconcileMetrics>,
}

/// How one reconcile ended.
enum Outcome<E> {
    Done(Requeue),
    Failed(E),
    TimedOut,
}

impl<E: Classify> Outcome<E> {
    fn failure(&self) -> Option<Class> {
        match self {
            Self::Done(_) => None,
            Self::Failed(error) => Some(error.class()),
            Self::TimedOut => Some(Class::Transient),
        }
    }
}

impl<Id> Loop<Id>
where
    Id: Ord + Clone + Display,
{
    /// A loop over a queue. `jitter` spreads retries and resyncs.
    pub fn new(queue: Queue<Id>, limits: Limits, jitter: Jitter) -> Self {
        Self {
            queue,
            limits,
            jitter,
            pulse: None,
            metrics: None,
        }
    }

    /// Beats this pulse each time the loop turns, which is at least once per second.
    #[must_use]
    pub fn pulse(mut self, pulse: Pulse) -> Self {
        self.pulse = Some(pulse);
        self
    }

    /// Counts and times the reconciles.
    #[must_use]
    pub fn metrics(mut self, metrics: ReconcileMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Reconciles until shutdown is requested and what runs then has finished or its time is
    /// over. Answers the names whose reconcile was cut off.
    ///
    /// `reconcile` is given the name alone, never why it was added.
    pub async fn run<F, Fut, E>(self, shutdown: &Shutdown, reconcile: F) -> Vec<Id>
    where
        F: Fn(Id) -> Fut,
        Fut: Future<Output = Result<Requeue, E>>,
        E: Classify,
    {
        let mut backoff = Backoff::new(self.jitter.clone());
        let mut running = FuturesUnordered::new();
        let mut started: BTreeMap<Id, Instant> = BTreeMap::new();
        let requested = shutdown.requested();
        let mut requested = std::pin::pin!(requested);
        loop {
            if let Some(pulse) = &self.pulse {
                pulse.beat();
            }
            while running.len() < self.limits.concurrency.get() {
                let Some(id) = self.queue.schedule().take(monotonic()) else {
                    break;
                };
                started.insert(id.clone(), monotonic());
                running.push(self.bounded(id.clone(), reconcile(id)));
            }
            let has_room = running.len() < self.limits.concurrency.get();
            tokio::select! {
                biased;
                _ = &mut requested => break,
                Some((id, outcome)) = running.next() => {
                    self.observe(started.remove(&id), outcome.failure());
                    self.settle(&mut backoff, &id, &outcome);
                }
                () = self.queue.shared.changed.notified() => {}
                () = self.next_turn(has_room) => {}
            }
        }
        let finish = async {
            while let Some((id, outcome)) = running.next().await {
                self.observe(started.remove(&id), outcome.failure());
            }
        };
        // What is cut off is in the answer, so the elapsed time is no error of its own.
        let _ = tokio::time::timeout(self.limits.drain, finish).await;
        started.into_keys().collect()
    }

    /// One reconcile under its limit, in a span that names the object.
    async fn bounded<Fut, E>(&self, id: Id, reconcile: Fut) -> (Id, Outcome<E>)
    where
        Fut: Future<Output = Result<Requeue, E>>,
    {
        let span = error_span!("reconcile", object = %id);
        let limited = tokio::time::timeout(self.limits.reconcile, reconcile);
        let outcome = match limited.instrument(span).await {
            Ok(Ok(requeue)) => Outcome::Done(requeue),
            Ok(Err(error)) => Outcome::Failed(error),
            Err(_elapsed) => Outcome::TimedOut,
        };
        (id, outcome)
    }

    /// Decides when the object is visited next. This is where errors are reported, once.
    fn settle<E: Classify>(&self, backoff: &mut Backoff<Id>, id: &Id, outcome: &Outcome<E>) {
        let wait = match outcome {
            Outcome::Done(requeue) => {
                backoff.succeeded(id);
                self.capped(*requeue)
            }
            Outcome::Failed(error) => {
                let class = error.class();
                let wait = backoff.failed(id, class, error.made_progress());
                let failures = backoff.failures(id);
                if class == Class::Conflict && failures == 1 {
                    debug!(object = %id, class = class.as_str(), %error, "reconcile again");
                } else {
                    warn!(object = %id, class = class.as_str(), failures, retry = ?wait, %error,
                        "reconcile failed");
                }
                Some(wait)
            }
            Outcome::TimedOut => {
                let wait = backoff.failed(id, Class::Transient, false);
                let failures = backoff.failures(id);
                warn!(object = %id, class = Class::Transient.as_str(), failures, retry = ?wait,
                    limit = ?self.limits.reconcile, "reconcile took too long");
                Some(wait)
            }
        };
        self.queue
            .schedule()
            .done(id, wait.map(|wait| monotonic() + wait));
    }

    fn capped(&self, requeue: Requeue) -> Option<Duration> {
        let resync = spread(self.limits.resync, self.jitter.next());
        match requeue {
            Requeue::OnChange => Some(resync),
            Requeue::After(wait) => Some(wait.min(resync)),
            Requeue::Gone => None,
        }
    }

    fn observe(&self, started: Option<Instant>, failure: Option<Class>) {
        if let (Some(metrics), Some(started)) = (&self.metrics, started) {
            metrics.reconciled(monotonic().saturating_duration_since(started), failure);
        }
    }

    /// Sleeps until a name is due, if there is room for one, and no longer than a turn.
    async fn next_turn(&self, has_room: bool) {
        let turn = monotonic() + TURN;
        let due = if has_room {
            self.queue.schedule().next_due()
        } else {
            None
        };
        tokio::time::sleep_until(due.map_or(turn, |due| due.min(turn))).await;
    }
}

#[cfg(test)]
mod tests;
