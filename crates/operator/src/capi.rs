//! One visit to one Cluster of Cluster API, as its infrastructure provider: observe, plan, execute,
//! report.
//!
//! # Guarantees
//! - Nothing is done while CAPK's own controller manager runs, or as long as that is not known.
//! - Nothing is planned before the stores show our own last writes.
//! - Each write is begun only while this replica leads for longer than it may take.
//! - A Cluster in which nothing changes is not written to, and its guest is not asked.

mod execute;
mod guests;
mod memory;
mod observe;
mod provider;
mod rival;
mod stores;
mod templates;

use std::time::Duration;

use guestcluster_bridge::serve::{self as decide, Dialect, Plan, Seen};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::apply::{StatusWrite, Writer};
use guestcluster_shell::clock::{monotonic, now};
use guestcluster_shell::freshness::Ledger;
use guestcluster_shell::queue::Requeue;
use k8s_openapi::jiff::Timestamp;
use kube::core::NamespaceResourceScope;
use kube::core::object::HasStatus;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{debug, info};

use crate::error::Error;
use crate::leader::Leader;
use crate::secrets::SecretReader;
use crate::stores::{BEHIND, is_behind};
use guests::Guests;
use memory::{Memories, Memory};
pub use provider::{Parts, serve};
use rival::Rival;
use stores::{Queues, Stores, put_up};

/// The longest that one write may take.
const ACTION: Duration = Duration::from_secs(8);
/// How old a guest's answer may be.
const FRESH: Duration = Duration::from_secs(1);
/// When to look again whether CAPK's own controller has gone.
const RIVAL: Duration = Duration::from_secs(10);
/// How long after a status words about progress can wait for each other.
const PROGRESS: Duration = Duration::from_secs(3);
/// Everything that a visit needs. One for the whole process.
struct Context {
    /// The cluster in which everything is.
    client: Client,
    /// The schema of the provider's kinds there.
    dialect: Dialect,
    /// What is known of it.
    stores: Stores,
    /// Our own writes that the stores may not show yet.
    ledger: Ledger,
    /// What is known besides.
    memories: Memories,
    /// Writes objects.
    writer: Writer,
    /// Writes the status.
    status_writer: Writer,
    /// Bounds calls to guests.
    guest_calls: Writer,
    /// Reads Secrets.
    secrets: SecretReader,
    /// Connects to guests.
    guests: Guests,
    /// CAPK's own controller.
    rival: Rival,
    /// Whether this replica leads.
    leader: Leader,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("stores", &self.stores)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Visits a Cluster.
    ///
    /// # Errors
    /// If a write fails, or this replica does not lead for long enough.
    async fn reconcile(&self, key: &NamespacedName) -> Result<Requeue, Error> {
        if self.rival.obstacle().is_some() {
            return Ok(Requeue::After(RIVAL));
        }
        if is_behind(&self.ledger, key) {
            return Ok(Requeue::After(BEHIND));
        }
        if let Some(why) = self.stores.unreadable(&key.name) {
            return Err(Error::Unreadable(why));
        }
        let mut memory = self.memories.take(key);
        let Some(seen) = self.observe(key, &mut memory).await else {
            self.ledger.forget(key);
            self.guests.forget(key);
            return Ok(Requeue::Gone);
        };
        let outcome = Box::pin(self.visit(key, &seen, &mut memory)).await;
        self.memories.put(key, memory);
        outcome
    }

    async fn visit(
        &self,
        key: &NamespacedName,
        seen: &Seen,
        memory: &mut Memory,
    ) -> Result<Requeue, Error> {
        let now = now();
        let plan = decide::plan(seen, now);
        let done = self.execute(key, (seen, &plan), memory).await;
        // What was seen is told even where something could not be done.
        let told = self.report(key, (seen, &plan), memory).await;
        let done = done?;
        if done.is_empty() {
            debug!(cluster = %key, "nothing to do");
        } else {
            info!(cluster = %key, actions = done.join(" "), "plan for a Cluster carried out");
        }
        let postponed = told.map_err(|error| error.after(done.len()))?;
        Ok(requeue(&plan, postponed, now))
    }

    /// Writes what is new. Answers when to come back for what can wait.
    async fn report(
        &self,
        key: &NamespacedName,
        (seen, plan): (&Seen, &Plan),
        memory: &mut Memory,
    ) -> Result<Option<Duration>, Error> {
        if let (Some(infra), Some(status)) = (&seen.infra, &plan.cluster) {
            self.tell(key, infra, status).await?;
        }
        let mut postponed = None;
        for (name, status) in &plan.machines {
            let Some(machine) = seen.machines.get(name) else {
                continue;
            };
            let before = machine.object.status.as_ref();
            let time = monotonic();
            let age = memory
                .told
                .get(name)
                .map(|told| time.saturating_duration_since(*told));
            let rest = age
                .and_then(|age| PROGRESS.checked_sub(age))
                .filter(|rest| !rest.is_zero());
            let can_wait = before.is_some_and(|before| decide::is_progress(before, status));
            let is_new = before != Some(status);
            if let Some(rest) = rest.filter(|_| can_wait && is_new) {
                postponed = Some(postponed.map_or(rest, |other: Duration| other.min(rest)));
                continue;
            }
            if self.tell(key, &machine.object, status).await? {
                memory.told.insert(name.clone(), monotonic());
            }
        }
        memory
            .told
            .retain(|name, _| seen.machines.contains_key(name));
        Ok(postponed)
    }

    /// Writes a status unless it says nothing new; whether it was written.
    async fn tell<K>(
        &self,
        key: &NamespacedName,
        object: &K,
        status: &K::Status,
    ) -> Result<bool, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + HasStatus,
        K: Clone + DeserializeOwned + std::fmt::Debug,
        K::Status: Serialize,
    {
        if !self.leader.allows(monotonic(), ACTION) {
            return Err(Error::NotLeading);
        }
        let api = self.api::<K>(&key.namespace);
        let written = self
            .status_writer
            .apply_status(&api, object, status)
            .await?;
        let StatusWrite::Written(written) = written else {
            return Ok(false);
        };
        self.ledger.wrote(key, written.as_ref(), monotonic());
        Ok(true)
    }
}

fn requeue(plan: &Plan, postponed: Option<Duration>, now: Timestamp) -> Requeue {
    if !plan.actions.is_empty() {
        return Requeue::After(Duration::ZERO);
    }
    let planned = plan.look_again;
    let planned = planned.map(|at| Duration::try_from(at - now).unwrap_or_default());
    let wait = [planned, postponed].into_iter().flatten().min();
    wait.map_or(Requeue::OnChange, Requeue::After)
}
