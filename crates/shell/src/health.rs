//! Whether the process works (liveness) and whether it can be used (readiness).
//!
//! # Guarantees
//! - Not live means that a restart may help: a loop has not turned for longer than it said it may.
//! - Not ready means that it is not yet, or for now, of use; a restart would not help.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Instant, monotonic};

type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What `/healthz` and `/readyz` answer from. Clones share it.
#[derive(Clone, Default)]
pub struct Health {
    pulses: Arc<Mutex<Vec<Pulse>>>,
    checks: Arc<Mutex<Vec<(&'static str, Check)>>>,
}

/// The sign of life of one loop. Clones share it.
#[derive(Clone, Debug)]
pub struct Pulse {
    name: &'static str,
    silence: Duration,
    last: Arc<Mutex<Instant>>,
}

impl Pulse {
    /// The loop has turned.
    pub fn beat(&self) {
        *lock(&self.last) = monotonic();
    }

    fn failure(&self, now: Instant) -> Option<String> {
        let age = now.saturating_duration_since(*lock(&self.last));
        (age > self.silence).then(|| format!("{}: no sign of life for {age:.0?}", self.name))
    }
}

/// What a probe is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// One line for each thing that is not as it should be.
    pub failures: Vec<String>,
}

impl Report {
    /// Whether all is as it should be.
    pub fn is_ok(&self) -> bool {
        self.failures.is_empty()
    }
}

impl Health {
    /// Neither pulses nor checks: live and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// A loop that is to turn at least once per `silence`, counted from now.
    pub fn pulse(&self, name: &'static str, silence: Duration) -> Pulse {
        let pulse = Pulse {
            name,
            silence,
            last: Arc::new(Mutex::new(monotonic())),
        };
        lock(&self.pulses).push(pulse.clone());
        pulse
    }

    /// Something without which the process is of no use; `check` says what is missing. It is
    /// called for each probe and must not block.
    pub fn check(
        &self,
        name: &'static str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        lock(&self.checks).push((name, Box::new(check)));
    }

    /// Whether all loops turn.
    pub fn live(&self, now: Instant) -> Report {
        Report {
            failures: lock(&self.pulses)
                .iter()
                .filter_map(|p| p.failure(now))
                .collect(),
        }
    }

    /// Whether all checks pass.
    pub fn ready(&self) -> Report {
        let failure = |(name, check): &(&'static str, Check)| {
            check().err().map(|missing| format!("{name}: {missing}"))
        };
        Report {
            failures: lock(&self.checks).iter().filter_map(failure).collect(),
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks: Vec<_> = lock(&self.checks).iter().map(|(name, _)| *name).collect();
        f.debug_struct("Health")
            .field("pulses", &self.pulses)
            .field("checks", &checks)
            .finish()
    }
}

/// Each change is one call, so a panic elsewhere leaves the value whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stands_still_is_not_live() {
        let health = Health::new();
        let pulse = health.pulse("reconcile", Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(health.live(monotonic()).is_ok());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(
            health.live(monotonic()).failures,
            ["reconcile: no sign of life for 31s"]
        );
        pulse.beat();
        assert!(health.live(monotonic()).is_ok());
    }

    #[test]
    fn readiness_names_what_is_missing() {
        let health = Health::new();
        health.check("machines", || Ok(()));
        assert!(health.ready().is_ok());
        health.check("disks", || Err("the first list is not complete".to_owned()));
        assert_eq!(
            health.ready().failures,
            ["disks: the first list is not complete"]
        );
    }
}
