//! Metrics in Prometheus' text format.
//!
//! # Guarantees
//! - A label's values are fixed when the program is compiled: the counters and histograms here take
//!   `&'static str` alone, which is what closed enums give. No name of an object becomes a label
//!   of a counter, so their number is bounded.
//! - Gauges are read when somebody scrapes ([`Metrics::collect`]), so there is none to keep in step
//!   with what it shows.

mod collect;
mod process;

pub use collect::Sink;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::error::Class;

/// From a millisecond, which a plan takes, to the minutes after which a reconcile is dropped.
const BUCKETS: [f64; 12] = [
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0,
];

/// All metrics of the process. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    prefix: &'static str,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metrics({})", self.prefix)
    }
}

impl Metrics {
    /// The content type of [`encode`](Self::encode).
    pub const CONTENT_TYPE: &'static str =
        "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// No metrics but those of the process itself: its resident memory and when it started, which
    /// is taken to be now. `prefix` begins the name of all others.
    pub fn new(prefix: &'static str) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(process::Process::started_now()));
        Self {
            registry: Arc::new(Mutex::new(registry)),
            prefix,
        }
    }

    /// Adds a metric of the caller's. `name` gets the prefix; it should end in its unit.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry()
            .sub_registry_with_prefix(self.prefix)
            .register(name, help, metric);
    }

    /// Calls `read` at each scrape, to say what the gauges are at that moment.
    pub fn collect(&self, read: impl Fn(&mut Sink<'_>) + Send + Sync + 'static) {
        let collector = collect::Hook::new(self.prefix, read);
        self.registry().register_collector(Box::new(collector));
    }

    /// The counters and histograms of a reconcile loop, registered. Once per process.
    pub fn reconcile(&self) -> ReconcileMetrics {
        let metrics = ReconcileMetrics::default();
        self.register(
            "reconcile_seconds",
            "How long reconciles take",
            metrics.reconcile.clone(),
        );
        self.register(
            "reconcile_failures",
            "Reconciles that failed, by what would help",
            metrics.failures.clone(),
        );
        self.register(
            "plan_seconds",
            "How long planning takes",
            metrics.plan.clone(),
        );
        self.register(
            "action_seconds",
            "How long actions take",
            metrics.action.clone(),
        );
        self.register(
            "actions",
            "Actions taken, by kind and outcome",
            metrics.actions.clone(),
        );
        self.register(
            "holds",
            "Plans that waited, by reason",
            metrics.holds.clone(),
        );
        metrics
    }

    /// All metrics as text.
    ///
    /// # Errors
    /// If a metric cannot be formatted.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry())?;
        Ok(text)
    }

    /// Registering is one call, so a panic elsewhere leaves the registry whole.
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionOutcome {
    /// It took effect.
    Done,
    /// It failed.
    Failed(Class),
    /// It was not begun, since leadership would not have lasted.
    NotLeading,
}

impl ActionOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed(class) => class.as_str(),
            Self::NotLeading => "not_leading",
        }
    }
}

/// What a reconcile loop counts and times. Clones share it.
#[derive(Clone, Debug)]
pub struct ReconcileMetrics {
    reconcile: Histogram,
    failures: Family<ClassLabel, Counter>,
    plan: Histogram,
    action: Family<KindLabel, Histogram, Seconds>,
    actions: Family<ActionLabels, Counter>,
    holds: Family<ReasonLabel, Counter>,
}

impl Default for ReconcileMetrics {
    fn default() -> Self {
        Self {
            reconcile: Histogram::new(BUCKETS),
            failures: Family::default(),
            plan: Histogram::new(BUCKETS),
            action: Family::new_with_constructor(Seconds),
            actions: Family::default(),
            holds: Family::default(),
        }
    }
}

impl ReconcileMetrics {
    /// A reconcile has ended, with the class of its failure if it failed.
    pub fn reconciled(&self, took: Duration, failure: Option<Class>) {
        self.reconcile.observe(took.as_secs_f64());
        if let Some(class) = failure {
            self.failures
                .get_or_create(&ClassLabel {
                    class: class.as_str(),
                })
                .inc();
        }
    }

    /// A plan was made.
    pub fn planned(&self, took: Duration) {
        self.plan.observe(took.as_secs_f64());
    }

    /// An action has ended. `kind` is a name out of a closed enum.
    pub fn acted(&self, kind: &'static str, took: Duration, outcome: ActionOutcome) {
        self.action
            .get_or_create(&KindLabel { action: kind })
            .observe(took.as_secs_f64());
        let labels = ActionLabels {
            action: kind,
            outcome: outcome.as_str(),
        };
        self.actions.get_or_create(&labels).inc();
    }

    /// A plan waits. `reason` is a name out of a closed enum.
    pub fn held(&self, reason: &'static str) {
        self.holds.get_or_create(&ReasonLabel { reason }).inc();
    }
}

/// Makes the histograms of a family.
#[derive(Clone, Copy, Debug)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabels {
    action: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_shows_what_was_counted_and_what_is() {
        let metrics = Metrics::new("guestcluster_operator");
        let reconcile = metrics.reconcile();
        reconcile.reconciled(Duration::from_millis(20), Some(Class::Transient));
        reconcile.planned(Duration::from_millis(1));
        reconcile.acted("CreateVm", Duration::from_secs(1), ActionOutcome::Done);
        reconcile.held("NotStable");
        metrics.collect(|sink| {
            sink.gauge("guests", "Guests by phase", &[("phase", "ready")], 3.0);
            sink.gauge("guests", "Guests by phase", &[("phase", "failed")], 0.0);
        });
        let text = metrics.encode().unwrap();
        for line in [
            r#"guestcluster_operator_reconcile_failures_total{class="transient"} 1"#,
            r#"guestcluster_operator_reconcile_seconds_bucket{le="0.03"} 1"#,
            "guestcluster_operator_plan_seconds_count 1",
            r#"guestcluster_operator_actions_total{action="CreateVm",outcome="done"} 1"#,
            r#"guestcluster_operator_action_seconds_sum{action="CreateVm"} 1.0"#,
            r#"guestcluster_operator_holds_total{reason="NotStable"} 1"#,
            r#"guestcluster_operator_guests{phase="ready"} 3.0"#,
            r#"guestcluster_operator_guests{phase="failed"} 0.0"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert_eq!(
            text.matches("# TYPE guestcluster_operator_guests gauge")
                .count(),
            1
        );
    }

    #[test]
    fn the_process_tells_its_memory_and_start() {
        let text = Metrics::new("x").encode().unwrap();
        let value = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap();
            line.trim().parse::<f64>().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e6, "{text}");
        assert!(value("process_start_time_seconds") > 1.7e9, "{text}");
    }
}
