//! One visit to one GuestCluster: observe, plan, execute, report.
//!
//! # Guarantees
//! - Nothing is planned before the stores show our own last writes.
//! - Each action is begun only while this replica leads for longer than the action may take.
//! - The first failure ends the round; what was done stays done and is seen the next time.
//! - A cluster in which nothing changes is not written to.
//! - What a cluster of that name left behind outside its namespace goes once that cluster is gone.

mod execute;
mod observe;
mod report;
mod strays;

use std::time::Duration;

use guestcluster_api::{GuestCluster, GuestClusterStatus};
use guestcluster_planner::wanted::Settings;
use guestcluster_planner::{Observed, Plan, Wanted, plan};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::apply::Writer;
use guestcluster_shell::clock::{monotonic, now};
use guestcluster_shell::events::Events;
use guestcluster_shell::freshness::Ledger;
use guestcluster_shell::metrics::ReconcileMetrics;
use guestcluster_shell::queue::Requeue;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tracing::{debug, info};

use crate::doors::{Door, Doors};
use crate::error::Error;
use crate::forecast::Forecast;
use crate::guest_api::{GuestApi, Way};
use crate::keys::KeyPool;
use crate::leader::Leader;
use crate::memory::{Memories, Memory};
use crate::secrets::SecretReader;
use crate::stores::{BEHIND, Stores, is_behind};
use observe::Subject;
pub(crate) use observe::{holdings, hosts, usage};

/// When to try again to make an object whose name somebody holds.
const TAKEN: Duration = Duration::from_secs(10);
/// When to look again at a guest that has failed to answer.
const WAVERING: Duration = Duration::from_secs(1);
/// When to ask again for a key that is being made.
const KEY: Duration = Duration::from_millis(300);
/// A plan that need not be looked at for so long has nothing on its way.
const CALM: Duration = Duration::from_secs(30);

/// Everything that a visit needs. One for the whole process.
pub struct Context {
    /// The infrastructure cluster.
    pub client: Client,
    /// What is known of it.
    pub stores: Stores,
    /// Our own writes that the stores may not show yet.
    pub ledger: Ledger,
    /// What is known besides.
    pub memories: Memories,
    /// Settings that plans depend on.
    pub settings: Settings,
    /// Writes objects.
    pub writer: Writer,
    /// Writes the status.
    pub status_writer: Writer,
    /// Bounds calls to guests.
    pub guest_calls: Writer,
    /// Reads Secrets.
    pub secrets: SecretReader,
    /// Connects to guests.
    pub doors: Doors,
    /// Makes service-account keys ahead of their need.
    pub keys: KeyPool,
    /// Whether this replica leads.
    pub leader: Leader,
    /// Publishes events.
    pub events: Events,
    /// What the loss of each host would mean.
    pub forecast: Forecast,
    /// Counts and times.
    pub metrics: ReconcileMetrics,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("stores", &self.stores)
            .finish_non_exhaustive()
    }
}

/// One visit, once it is planned.
struct Round<'a> {
    subject: &'a Subject<'a>,
    seen: &'a Observed,
    plan: &'a Plan,
    status: &'a GuestClusterStatus,
    now: Timestamp,
}

impl Context {
    /// Visits a cluster.
    pub async fn reconcile(&self, key: &NamespacedName) -> Result<Requeue, Error> {
        let Some(cluster) = self.stores.clusters.get(key) else {
            self.forget(key);
            self.sweep(key, None).await?;
            return Ok(Requeue::Gone);
        };
        if is_behind(&self.ledger, key) {
            return Ok(Requeue::After(BEHIND));
        }
        if let Some(why) = self
            .stores
            .unreadable(cluster.metadata.uid.as_deref().unwrap_or_default())
        {
            return Err(Error::Unreadable(why));
        }
        if self.sweep(key, cluster.metadata.uid.as_deref()).await? {
            return Ok(Requeue::After(BEHIND));
        }
        let mut memory = self.memories.take(key);
        // Boxed: it is large, and it lives as long as the slowest of its calls.
        let outcome = Box::pin(self.visit(key, &cluster, &mut memory)).await;
        self.memories.put(key, memory);
        outcome
    }

    async fn visit(
        &self,
        key: &NamespacedName,
        cluster: &GuestCluster,
        memory: &mut Memory,
    ) -> Result<Requeue, Error> {
        let previous = cluster.status.clone().unwrap_or_default();
        let wanted = match Wanted::parse(cluster, &self.settings) {
            Ok(wanted) => wanted,
            Err(errors) => {
                let status =
                    guestcluster_planner::report::invalid(cluster, &errors, &previous, now());
                let wait = self.report_invalid(key, cluster, &status, memory).await?;
                self.memories.set_settled(key, true);
                return Ok(wait.map_or(Requeue::OnChange, Requeue::After));
            }
        };
        let subject = Subject {
            key,
            cluster,
            wanted: &wanted,
        };
        let seen = Box::pin(self.observe(&subject, memory)).await;
        let now = now();
        let begun = monotonic();
        let plan = plan(&wanted, &seen, &previous, now);
        self.metrics
            .planned(monotonic().saturating_duration_since(begun));
        for hold in &plan.holds {
            self.metrics.held(hold.reason.as_str());
        }
        let status = guestcluster_planner::report::status(&wanted, &seen, &plan, &previous, now);
        let round = Round {
            subject: &subject,
            seen: &seen,
            plan: &plan,
            status: &status,
            now,
        };
        let done = self.execute(&round, memory).await;
        let postponed = self.report(&round, &done, memory).await;
        let requeue = requeue(&round, &done);
        log(&round, &done, requeue);
        self.memories.set_settled(key, is_settled(&plan, requeue));
        let made = done.actions.len();
        done.outcome.map_err(|error| error.after(made))?;
        let postponed = postponed.map_err(|error| error.after(made))?;
        let probes = &memory.probes;
        let wavers = probes.wavers();
        let again = [postponed, wavers.then_some(WAVERING)];
        Ok(again.into_iter().flatten().fold(requeue, sooner))
    }

    /// A guest's API behind a door.
    const fn guest_api<'a>(&'a self, door: &'a Door) -> GuestApi<'a> {
        GuestApi {
            way: Way::Door(&self.doors, door),
            calls: &self.guest_calls,
        }
    }

    fn forget(&self, key: &NamespacedName) {
        self.memories.forget(key);
        self.ledger.forget(key);
        self.doors.forget(key);
    }
}

fn requeue(round: &Round<'_>, done: &execute::Done) -> Requeue {
    if done.taken {
        return Requeue::After(TAKEN);
    }
    if done.waits_for_key {
        return Requeue::After(KEY);
    }
    if !done.actions.is_empty() {
        return Requeue::After(Duration::ZERO);
    }
    match &round.plan.requeue {
        guestcluster_planner::Requeue::OnChange => Requeue::OnChange,
        guestcluster_planner::Requeue::At(at, _) => {
            let wait = Duration::try_from(*at - round.now).unwrap_or(Duration::ZERO);
            Requeue::After(spread(wait, &round.subject.wanted.identity.uid))
        }
    }
}

fn sooner(requeue: Requeue, wait: Duration) -> Requeue {
    match requeue {
        Requeue::After(other) => Requeue::After(wait.min(other)),
        Requeue::OnChange => Requeue::After(wait),
        Requeue::Gone => Requeue::Gone,
    }
}

/// Long waits differ from cluster to cluster, so that many of them do not come back in step.
fn spread(wait: Duration, uid: &str) -> Duration {
    if wait < CALM {
        return wait;
    }
    // FNV-1a: any hash of the UID does, as long as it stays the same.
    let hash = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    wait.mul_f64(0.8 + 0.4 * f64::from(hash) / f64::from(u32::MAX))
}

/// Nothing is on its way: neither done now, nor held back, nor to be looked at soon.
fn is_settled(plan: &Plan, requeue: Requeue) -> bool {
    let calm = match requeue {
        Requeue::OnChange | Requeue::Gone => true,
        Requeue::After(wait) => wait >= CALM.mul_f64(0.8),
    };
    plan.actions.is_empty() && plan.holds.is_empty() && calm
}

/// One line for each plan that did something.
fn log(round: &Round<'_>, done: &execute::Done, requeue: Requeue) {
    let cluster = round.subject.key;
    let actions: Vec<_> = done.actions.iter().map(|action| action.kind()).collect();
    let actions = actions.join(" ");
    let holds: Vec<_> = round.plan.holds.iter().map(|h| h.reason.as_str()).collect();
    let holds = holds.join(" ");
    let requeue = match requeue {
        Requeue::OnChange => "on change".to_owned(),
        Requeue::After(wait) => format!("after {wait:.1?}"),
        Requeue::Gone => "never".to_owned(),
    };
    if actions.is_empty() {
        debug!(%cluster, holds, requeue, "nothing to do");
    } else {
        let planned = round.plan.actions.len();
        info!(%cluster, actions, planned, holds, requeue, "plan carried out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_are_spread_and_short_ones_are_not() {
        let minute = Duration::from_secs(60);
        let waits: Vec<_> = ["u-1", "u-2", "u-3"].map(|uid| spread(minute, uid)).into();
        assert!(
            waits
                .iter()
                .all(|w| (48.0..=72.0).contains(&w.as_secs_f64())),
            "{waits:?}"
        );
        assert!(waits[0] != waits[1] && waits[1] != waits[2], "{waits:?}");
        assert_eq!(
            spread(Duration::from_secs(1), "u-1"),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn a_cluster_is_settled_when_nothing_is_to_be_looked_at_soon() {
        let plan = Plan::default();
        assert!(is_settled(&plan, Requeue::OnChange));
        assert!(is_settled(
            &plan,
            Requeue::After(spread(Duration::from_secs(60), "u-1"))
        ));
        assert!(!is_settled(&plan, Requeue::After(Duration::from_secs(1))));
        let busy = Plan {
            actions: vec![guestcluster_planner::Action::AddFinalizer],
            ..Plan::default()
        };
        assert!(!is_settled(&busy, Requeue::OnChange));
    }
}
