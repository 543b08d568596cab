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
use guestcluster_foreign::capk::{KubevirtCluster, KubevirtMachine};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::apply::{StatusWrite, Writer};
use guestcluster_shell::clock::{monotonic, now};
use guestcluster_shell::freshness::Ledger;
use guestcluster_shell::queue::Requeue;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
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
/// How soon an eviction that was refused is asked for again, as kubectl does.
const RETRY: Duration = Duration::from_secs(5);
/// When to look again whether CAPK's own controller has gone.
const RIVAL: Duration = Duration::from_secs(10);
/// When to try again to make a virtual machine that was refused.
const REFUSED: Duration = Duration::from_secs(30);

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
        let refused = memory.refused.clone();
        let done = self.execute(key, (seen, &plan), memory).await;
        // What was seen is told even where something could not be done.
        let told = self.report(key, (seen, &plan)).await;
        let done = done?;
        if done.is_empty() {
            debug!(cluster = %key, "nothing to do");
        } else {
            info!(cluster = %key, actions = done.join(" "), "plan for a Cluster carried out");
        }
        told.map_err(|error| error.after(done.len()))?;
        Ok(requeue(
            &plan,
            (refused != memory.refused, !memory.refused.is_empty()),
            now,
        ))
    }

    async fn report(
        &self,
        key: &NamespacedName,
        (seen, plan): (&Seen, &Plan),
    ) -> Result<(), Error> {
        let leads = || self.leader.allows(monotonic(), ACTION);
        if let (Some(infra), Some(status)) = (&seen.infra, &plan.cluster) {
            if !leads() {
                return Err(Error::NotLeading);
            }
            let api = self.api::<KubevirtCluster>(&key.namespace);
            let written = self.status_writer.apply_status(&api, infra, status).await?;
            if let StatusWrite::Written(written) = written {
                self.ledger.wrote(key, written.as_ref(), monotonic());
            }
        }
        for (name, status) in &plan.machines {
            let Some(machine) = seen.machines.get(name) else {
                continue;
            };
            if !leads() {
                return Err(Error::NotLeading);
            }
            let api = self.api::<KubevirtMachine>(&key.namespace);
            let object = &machine.object;
            let written = self
                .status_writer
                .apply_status(&api, object, status)
                .await?;
            if let StatusWrite::Written(written) = written {
                self.ledger.wrote(key, written.as_ref(), monotonic());
            }
        }
        Ok(())
    }
}

fn requeue(plan: &Plan, (is_news, is_refused): (bool, bool), now: Timestamp) -> Requeue {
    let acted = plan
        .actions
        .iter()
        .any(|action| action.kind() != "CreateVm" || !is_refused);
    if is_news || acted {
        return Requeue::After(Duration::ZERO);
    }
    let planned = plan
        .look_again
        .map(|at| Duration::try_from(at - now).unwrap_or_default());
    let wait = [planned, is_refused.then_some(REFUSED)]
        .into_iter()
        .flatten()
        .min();
    wait.map_or(Requeue::OnChange, Requeue::After)
}
