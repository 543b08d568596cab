//! The loop in paused time.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use super::*;
use crate::shutdown::{Cause, Stop, channel};

#[derive(Debug, thiserror::Error)]
#[error("as the test wants it")]
struct Failure(Class);

/// A transient failure, with or without something that took effect before it.
#[derive(Debug, thiserror::Error)]
#[error("after progress: {0}")]
struct Interrupted(bool);

impl Classify for Interrupted {
    fn class(&self) -> Class {
        Class::Transient
    }

    fn made_progress(&self) -> bool {
        self.0
    }
}

impl Classify for Failure {
    fn class(&self) -> Class {
        self.0
    }
}

fn no_jitter() -> Jitter {
    Jitter::new(|| 0.0)
}

fn limits(concurrency: usize) -> Limits {
    Limits {
        concurrency: NonZeroUsize::new(concurrency).unwrap(),
        ..Limits::default()
    }
}

/// When each reconcile began, in seconds since the start, and of which name.
#[derive(Clone)]
struct Log {
    start: Instant,
    lines: Arc<Mutex<Vec<(u64, &'static str)>>>,
}

impl Log {
    fn new() -> Self {
        Self {
            start: monotonic(),
            lines: Arc::default(),
        }
    }

    fn write(&self, name: &'static str) {
        self.lines
            .lock()
            .unwrap()
            .push(((monotonic() - self.start).as_secs(), name));
    }

    fn lines(&self) -> Vec<(u64, &'static str)> {
        self.lines.lock().unwrap().clone()
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn stop_after(stop: Stop, wait: u64) {
    seconds(wait).await;
    stop.request(Cause::Signal);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_changes_becomes_one_reconcile() {
    let (queue, log) = (Queue::new(Duration::from_secs(1)), Log::new());
    let (stop, shutdown) = channel();
    let writes = async {
        for _ in 0..5 {
            queue.add("a");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let reconcile = |name| {
        log.write(name);
        async { Ok::<_, Failure>(Requeue::Gone) }
    };
    let run = Loop::new(queue.clone(), limits(2), no_jitter()).run(&shutdown, reconcile);
    tokio::join!(run, writes, stop_after(stop, 10));
    assert_eq!(log.lines(), [(1, "a")]);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_reconcile_runs_it_again_and_never_beside_itself() {
    let (queue, log) = (Queue::new(Duration::ZERO), Log::new());
    let (stop, shutdown) = channel();
    let writes = async {
        queue.add("a");
        seconds(2).await;
        queue.add("a");
        queue.add("b");
    };
    let reconcile = |name| {
        log.write(name);
        async {
            seconds(5).await;
            Ok::<_, Failure>(Requeue::Gone)
        }
    };
    let run = Loop::new(queue.clone(), limits(2), no_jitter()).run(&shutdown, reconcile);
    tokio::join!(run, writes, stop_after(stop, 30));
    assert_eq!(log.lines(), [(0, "a"), (2, "b"), (5, "a")]);
}

#[tokio::test(start_paused = true)]
async fn no_more_run_at_a_time_than_allowed() {
    let (queue, log) = (Queue::new(Duration::ZERO), Log::new());
    let (stop, shutdown) = channel();
    for name in ["a", "b", "c"] {
        queue.add(name);
    }
    let reconcile = |name| {
        log.write(name);
        async {
            seconds(5).await;
            Ok::<_, Failure>(Requeue::Gone)
        }
    };
    let run = Loop::new(queue.clone(), limits(2), no_jitter()).run(&shutdown, reconcile);
    tokio::join!(run, stop_after(stop, 30));
    assert_eq!(log.lines(), [(0, "a"), (0, "b"), (5, "c")]);
}

#[tokio::test(start_paused = true)]
async fn a_requeue_is_kept_but_not_beyond_the_resync() {
    let (queue, log) = (Queue::new(Duration::ZERO), Log::new());
    let (stop, shutdown) = channel();
    queue.add("a");
    let count = Mutex::new(0);
    let reconcile = |name| {
        log.write(name);
        let mut count = count.lock().unwrap();
        *count += 1;
        let requeue = match *count {
            1 => Requeue::After(Duration::from_secs(7)),
            2 => Requeue::After(Duration::from_secs(9999)),
            _ => Requeue::OnChange,
        };
        async move { Ok::<_, Failure>(requeue) }
    };
    let run = Loop::new(queue.clone(), limits(1), no_jitter()).run(&shutdown, reconcile);
    tokio::join!(run, stop_after(stop, 1000));
    // Without jitter's draw a resync comes after half of its ten minutes.
    assert_eq!(
        log.lines(),
        [(0, "a"), (7, "a"), (307, "a"), (607, "a"), (907, "a")]
    );
}

#[tokio::test(start_paused = true)]
async fn failures_wait_by_their_class_and_a_success_ends_the_series() {
    let (queue, log) = (Queue::new(Duration::ZERO), Log::new());
    let (stop, shutdown) = channel();
    queue.add("a");
    let results = Mutex::new(vec![
        Ok(Requeue::Gone),
        Err(Failure(Class::Denied)),
        Err(Failure(Class::Conflict)),
        Ok(Requeue::After(Duration::from_secs(1))),
        Err(Failure(Class::Transient)),
        Err(Failure(Class::Transient)),
        Err(Failure(Class::Transient)),
    ]);
    let reconcile = |name| {
        log.write(name);
        let result = results.lock().unwrap().pop().unwrap();
        async { result }
    };
    let run = Loop::new(queue.clone(), limits(1), no_jitter()).run(&shutdown, reconcile);
    tokio::join!(run, stop_after(stop, 1000));
    let times: Vec<_> = log.lines().iter().map(|(at, _)| *at).collect();
    // 0.5, 1 and 2 s after transient failures; 1 s as asked for; at once after a conflict; 150 s.
    assert_eq!(times, [0, 0, 1, 3, 4, 4, 154]);
}

#[tokio::test(start_paused = true)]
async fn lost_answers_on_the_way_do_not_add_up_to_minutes() {
    let (queue, log) = (Queue::new(Duration::ZERO), Log::new());
    let (stop, shutdown) = channel();
    queue.add("a");
    let rounds = Mutex::new(0..20);
    let reconcile = |name| {
        log.write(name);
        let more = rounds.lock().unwrap().next().is_some();
        async move {
            if more {
                Err(Interrupted(true))
            } else {
                Ok(Requeue::Gone)
            }
        }
    };
    let run = Loop::new(queue.clone(), limits(1), no_jitter()).run(&shutdown, reconcile);
    tokio::join!(run, stop_after(stop, 1000));
    let last = log.lines().last().copied().unwrap();
    assert_eq!((log.lines().len(), last), (21, (19, "a")));
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_does_not_end_is_dropped_and_tried_again() {
    let (queue, log) = (Queue::new(Duration::ZERO), Log::new());
    let (stop, shutdown) = channel();
    queue.add("a");
    let reconcile = |name| {
        log.write(name);
        std::future::pending::<Result<Requeue, Failure>>()
    };
    let run = Loop::new(queue.clone(), limits(1), no_jitter()).run(&shutdown, reconcile);
    let (cut_off, ()) = tokio::join!(run, stop_after(stop, 200));
    assert_eq!(log.lines(), [(0, "a"), (120, "a")]);
    assert_eq!(cut_off, ["a"], "at the end of the drain");
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_what_runs_finish_and_begins_nothing() {
    let (queue, log) = (Queue::new(Duration::ZERO), Log::new());
    let (stop, shutdown) = channel();
    queue.add("a");
    queue.add("b");
    let finished = Mutex::new(0);
    let reconcile = |name| {
        log.write(name);
        let finished = &finished;
        async move {
            seconds(10).await;
            *finished.lock().unwrap() += 1;
            Ok::<_, Failure>(Requeue::OnChange)
        }
    };
    let run = Loop::new(queue.clone(), limits(1), no_jitter()).run(&shutdown, reconcile);
    let (cut_off, ()) = tokio::join!(run, stop_after(stop, 5));
    assert_eq!(
        (log.lines(), *finished.lock().unwrap()),
        (vec![(0, "a")], 1)
    );
    assert!(cut_off.is_empty());
    assert_eq!(
        queue.len(),
        1,
        "the other name waits for whoever leads next"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_loop_keeps_its_pulse() {
    let health = crate::health::Health::new();
    let pulse = health.pulse("reconcile", Duration::from_secs(3));
    let queue = Queue::<&str>::new(Duration::ZERO);
    let (stop, shutdown) = channel();
    let reconcile = |_| async { Ok::<_, Failure>(Requeue::Gone) };
    let run = Loop::new(queue, limits(1), no_jitter())
        .pulse(pulse)
        .run(&shutdown, reconcile);
    let watch = async {
        for _ in 0..60 {
            seconds(1).await;
            assert!(health.live(monotonic()).is_ok());
        }
        stop.request(Cause::Signal);
    };
    tokio::join!(run, watch);
}
