//! How long to wait before trying an object again, from what failed and how often in a row.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Class;

/// The wait after the first transient failure, before jitter.
pub const BASE: Duration = Duration::from_secs(1);
/// The longest wait after transient failures.
pub const CAP: Duration = Duration::from_secs(5 * 60);
/// The wait after a bug: long, since only another version of the program helps.
pub const BUG: Duration = Duration::from_secs(10 * 60);

/// A source of fractions in `[0, 1)` that spreads retries of many objects over time.
#[derive(Clone)]
pub struct Jitter(Arc<dyn Fn() -> f64 + Send + Sync>);

impl Jitter {
    /// Fractions from the caller's own source. Values outside `[0, 1)` are clamped.
    pub fn new(source: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }

    /// Fractions that follow from a seed: equal seeds give equal waits. Each process should draw
    /// its own, so that replicas do not retry in step.
    pub fn from_seed(seed: u64) -> Self {
        let state = AtomicU64::new(seed);
        Self::new(move || fraction(state.fetch_add(GOLDEN_GAMMA, Ordering::Relaxed)))
    }

    /// The next fraction.
    pub fn next(&self) -> f64 {
        (self.0)().clamp(0.0, 1.0 - f64::EPSILON)
    }
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Jitter")
    }
}

/// The increment of SplitMix64 (Steele, Lea, Flood 2014): 2^64 over the golden ratio, made odd.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's mixing of one state, taken as a fraction of its upper 32 bits.
fn fraction(state: u64) -> f64 {
    let mut bits = state.wrapping_add(GOLDEN_GAMMA);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let upper = u32::try_from((bits ^ (bits >> 31)) >> 32).unwrap_or(u32::MAX);
    f64::from(upper) / (f64::from(u32::MAX) + 1.0)
}

/// How long to wait after `failures` failures in a row, the last of this class. `jitter` is a
/// fraction in `[0, 1)`.
///
/// A first conflict is retried at once: the world has moved and a new observation is all it
/// takes. Conflicts that follow each other wait like transient failures, so that two writers at
/// odds do not spin.
pub fn delay(class: Class, failures: u32, jitter: f64) -> Duration {
    match class {
        Class::Conflict if failures <= 1 => Duration::ZERO,
        Class::Conflict => exponential(failures - 1, jitter),
        Class::Transient => exponential(failures, jitter),
        Class::Denied | Class::Rejected => spread(CAP, jitter),
        Class::Bug => spread(BUG, jitter),
    }
}

/// Doubles from [`BASE`] to [`CAP`].
fn exponential(failures: u32, jitter: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    spread(BASE.saturating_mul(1 << doublings).min(CAP), jitter)
}

/// Between half of the wait and all of it: late enough to help, never beyond the cap.
pub(crate) fn spread(wait: Duration, jitter: f64) -> Duration {
    wait.mul_f64(0.5 + jitter / 2.0)
}

/// Failures in a row of each object.
#[derive(Debug)]
pub struct Backoff<Id> {
    failures: BTreeMap<Id, u32>,
    jitter: Jitter,
}

impl<Id: Ord + Clone> Backoff<Id> {
    /// No failures yet.
    pub fn new(jitter: Jitter) -> Self {
        Self {
            failures: BTreeMap::new(),
            jitter,
        }
    }

    /// Counts a failure and answers how long to wait.
    ///
    /// One that came after progress begins a new series: a few lost answers on a long way would add
    /// up to minutes. It counts as the second of that series, since an object that is always changed
    /// before it fails must not be retried at once each time.
    pub fn failed(&mut self, id: &Id, class: Class, made_progress: bool) -> Duration {
        let count = self.failures.entry(id.clone()).or_default();
        if made_progress {
            *count = (*count).min(1);
        }
        *count = count.saturating_add(1);
        delay(class, *count, self.jitter.next())
    }

    /// Forgets the failures of an object.
    pub fn succeeded(&mut self, id: &Id) {
        self.failures.remove(id);
    }

    /// How often the object failed in a row.
    pub fn failures(&self, id: &Id) -> u32 {
        self.failures.get(id).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(waits: &[Duration]) -> Vec<f64> {
        waits.iter().map(Duration::as_secs_f64).collect()
    }

    #[test]
    fn transient_failures_wait_twice_as_long_each_time_up_to_five_minutes() {
        let waits: Vec<_> = (1..=10).map(|n| delay(Class::Transient, n, 0.0)).collect();
        assert_eq!(
            seconds(&waits),
            [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 150.0]
        );
    }

    #[test]
    fn a_first_conflict_is_retried_at_once_and_a_quarrel_is_not() {
        assert_eq!(delay(Class::Conflict, 1, 0.5), Duration::ZERO);
        assert_eq!(
            delay(Class::Conflict, 5, 0.0),
            delay(Class::Transient, 4, 0.0)
        );
    }

    #[test]
    fn success_resets_the_count_of_its_object_alone() {
        let mut backoff = Backoff::new(Jitter::new(|| 0.0));
        for id in ["a", "a", "b"] {
            backoff.failed(&id, Class::Transient, false);
        }
        backoff.succeeded(&"a");
        assert_eq!((backoff.failures(&"a"), backoff.failures(&"b")), (0, 1));
        assert_eq!(
            backoff.failed(&"a", Class::Transient, false),
            delay(Class::Transient, 1, 0.0)
        );
    }

    #[test]
    fn failures_after_progress_neither_add_up_nor_are_retried_at_once() {
        let mut backoff = Backoff::new(Jitter::new(|| 0.0));
        let waits: Vec<_> = [false, false, false, false, true, true, true]
            .map(|made_progress| backoff.failed(&"a", Class::Transient, made_progress))
            .into();
        assert_eq!(seconds(&waits), [0.5, 1.0, 2.0, 4.0, 1.0, 1.0, 1.0]);
        let quarrel: Vec<_> = (0..3)
            .map(|_| backoff.failed(&"b", Class::Conflict, true))
            .collect();
        assert_eq!(seconds(&quarrel), [0.0, 0.5, 0.5]);
    }

    #[test]
    fn equal_seeds_give_equal_waits_and_other_seeds_others() {
        let draws = |seed| {
            let jitter = Jitter::from_seed(seed);
            (0..8).map(|_| jitter.next()).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
    }

    proptest! {
        #[test]
        fn no_wait_is_longer_than_its_cap(
            class in prop::sample::select(Class::ALL.to_vec()),
            failures in 1_u32..,
            jitter in 0.0..1.0_f64,
        ) {
            let cap = if class == Class::Bug { BUG } else { CAP };
            prop_assert!(delay(class, failures, jitter) <= cap);
        }

        #[test]
        fn drawn_fractions_lie_in_the_unit_interval(seed: u64) {
            let jitter = Jitter::from_seed(seed);
            for _ in 0..32 {
                prop_assert!((0.0..1.0).contains(&jitter.next()));
            }
        }
    }
}
