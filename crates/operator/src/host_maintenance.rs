//! One visit to one HostMaintenance: observe, plan, execute, report.
//!
//! # Guarantees
//! - Nothing is planned before the stores show our own last writes.
//! - Whether a host may be emptied is answered from what the stores showed after the maintenance was
//!   first seen: a host that was cordoned just before counts as cordoned.
//! - Each write is begun only while this replica leads for longer than it may take.
//! - Status tells of what has been done, not of what failed.
//! - A maintenance in which nothing changes is not written to.

mod observe;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guestcluster_api::host_maintenance::{HostMaintenanceStatus, MaintenanceCondition};
use guestcluster_api::{HostMaintenance, labels};
use guestcluster_foreign::core::HostNode;
use guestcluster_planner::maintenance::{self, Action, Plan, Request};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::apply::{StatusWrite, Writer};
use guestcluster_shell::clock::{monotonic, now};
use guestcluster_shell::events::{Events, Note, Severity};
use guestcluster_shell::freshness::Ledger;
use guestcluster_shell::queue::Requeue;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::info;

use crate::error::Error;
use crate::forecast::Forecast;
use crate::leader::Leader;
use crate::pointer;
use crate::stores::{BEHIND, Stores, is_behind};

/// The longest that one write may take.
const ACTION: Duration = Duration::from_secs(8);

/// Everything that a visit needs. One for the whole process.
pub struct Context {
    /// The infrastructure cluster.
    pub client: Client,
    /// What is known of it.
    pub stores: Stores,
    /// Our own writes that the stores may not show yet.
    pub ledger: Ledger,
    /// Writes objects.
    pub writer: Writer,
    /// Writes the status.
    pub status_writer: Writer,
    /// What the loss of each host would mean.
    pub forecast: Forecast,
    /// When each maintenance was first seen.
    pub asked: Asked,
    /// Whether this replica leads.
    pub leader: Leader,
    /// Publishes events.
    pub events: Events,
}

/// When each maintenance was first seen.
#[derive(Debug, Default)]
pub struct Asked {
    times: Mutex<BTreeMap<NamespacedName, Instant>>,
}

impl Asked {
    fn since(&self, key: &NamespacedName) -> Instant {
        *self.times().entry(key.clone()).or_insert_with(monotonic)
    }

    fn forget(&self, key: &NamespacedName) {
        self.times().remove(key);
    }

    /// Each change is one insert or remove, so a panic elsewhere leaves the value whole.
    fn times(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Instant>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("stores", &self.stores)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Visits a maintenance.
    ///
    /// # Errors
    /// If a write fails, or this replica does not lead for long enough.
    pub async fn reconcile(&self, key: &NamespacedName) -> Result<Requeue, Error> {
        let Some(object) = self.stores.maintenances.get(key) else {
            self.ledger.forget(key);
            self.asked.forget(key);
            return Ok(Requeue::Gone);
        };
        if is_behind(&self.ledger, key) {
            return Ok(Requeue::After(BEHIND));
        }
        let request = Request::from(object.as_ref());
        let asked = self.asked.since(key);
        let foresight = self.forecast.without(&request.host, asked);
        let seen = observe::seen(&self.stores, foresight, (&object, &request));
        let previous = object.status.clone().unwrap_or_default();
        let now = now();
        let plan = maintenance::plan(&request, &seen, &previous, now);
        for action in &plan.actions {
            self.carry_out(&object, &request, action).await?;
            info!(maintenance = %key, action = action.kind(), host = request.host, "carried out");
        }
        if let Some(status) = &plan.status {
            self.report(&object, status).await?;
        }
        Ok(requeue(&plan, now))
    }

    async fn carry_out(
        &self,
        object: &HostMaintenance,
        request: &Request,
        action: &Action,
    ) -> Result<(), Error> {
        self.may_write()?;
        let (key, time) = (NamespacedName::of(object), monotonic());
        let (all, finalizer) = (self.maintenances(), labels::FINALIZER);
        match action {
            Action::AddFinalizer => {
                let written = self.writer.add_finalizer(&all, object, finalizer).await?;
                if let Some(written) = written {
                    self.ledger.wrote(&key, &written, time);
                }
            }
            Action::RemoveFinalizer => {
                let removed = self
                    .writer
                    .remove_finalizer(&all, object, finalizer)
                    .await?;
                match removed {
                    // The last finalizer: the server has removed the object instead of changing it.
                    Some(written) if written.finalizers().is_empty() => {
                        self.ledger.removed(&key, &written, time);
                    }
                    Some(written) => self.ledger.wrote(&key, &written, time),
                    None => {}
                }
            }
            Action::Cordon { uid } | Action::Uncordon { uid } => {
                let api = Api::<HostNode>::all(self.client.clone());
                let node = self
                    .stores
                    .hosts
                    .get(&NamespacedName::new("", &request.host));
                let gone = || Error::Gone(format!("Node {} is gone", request.host));
                let node = node.ok_or_else(gone)?;
                let patch = match action {
                    Action::Cordon { .. } => cordon(&node, uid, &request.name),
                    _ => uncordon(&node, uid, &request.name),
                };
                let written = self.writer.patch(&api, &request.host, patch).await?;
                self.ledger.wrote(&key, &written, time);
            }
        }
        Ok(())
    }

    async fn report(
        &self,
        object: &HostMaintenance,
        status: &HostMaintenanceStatus,
    ) -> Result<(), Error> {
        self.may_write()?;
        let written = self
            .status_writer
            .apply_status(&self.maintenances(), object, status)
            .await?;
        let StatusWrite::Written(written) = written else {
            return Ok(());
        };
        let key = NamespacedName::of(object);
        self.ledger.wrote(&key, written.as_ref(), monotonic());
        if let Some(note) = news(object.status.as_ref(), status) {
            self.events.publish(object, note).await;
        }
        Ok(())
    }

    fn may_write(&self) -> Result<(), Error> {
        let leads = self.leader.allows(monotonic(), ACTION);
        leads.then_some(()).ok_or(Error::NotLeading)
    }

    fn maintenances(&self) -> Api<HostMaintenance> {
        Api::all(self.client.clone())
    }
}

fn requeue(plan: &Plan, now: Timestamp) -> Requeue {
    let wait = |at: Timestamp| Duration::try_from(at - now).unwrap_or_default();
    match (plan.actions.is_empty(), plan.look_again) {
        (false, _) => Requeue::After(Duration::ZERO),
        (true, Some(at)) => Requeue::After(wait(at)),
        (true, None) => Requeue::OnChange,
    }
}

/// An event where the maintenance has come to another phase or reason.
fn news(before: Option<&HostMaintenanceStatus>, after: &HostMaintenanceStatus) -> Option<Note> {
    let ready = |status: &HostMaintenanceStatus| -> Option<Condition> {
        let mut all = status.conditions.iter();
        let ready = MaintenanceCondition::Ready.as_str();
        all.find(|condition| condition.type_ == ready).cloned()
    };
    let now = ready(after)?;
    let told = before.and_then(ready);
    let is_old = told.is_some_and(|told| told.reason == now.reason);
    let stalled = MaintenanceCondition::Stalled.as_str();
    let mut all = after.conditions.iter();
    let is_bad = all.any(|c| c.type_ == stalled && c.status == "True");
    let (severity, reason) = if is_bad {
        (Severity::Warning, "MaintenanceStalled")
    } else if now.status == "True" {
        (Severity::Normal, "HostEmptied")
    } else {
        (Severity::Normal, "MaintenanceProgressed")
    };
    (!is_old).then_some(Note {
        severity,
        reason,
        action: "EmptyHost",
        text: now.message,
        about: None,
    })
}

/// A Node's version changes with every heartbeat, so it is no guard; its uid is.
fn cordon(node: &HostNode, uid: &str, name: &str) -> Value {
    let mut steps = vec![json!({ "op": "test", "path": "/metadata/uid", "value": uid })];
    if node.metadata.annotations.is_none() {
        steps.push(json!({ "op": "add", "path": "/metadata/annotations", "value": {} }));
    }
    let annotation = pointer::annotation(labels::CORDONED_BY);
    steps.push(json!({ "op": "add", "path": annotation, "value": name }));
    steps.push(json!({ "op": "add", "path": "/spec/unschedulable", "value": true }));
    Value::Array(steps)
}

/// Fails if the cordon is not, or not any more, of that name.
fn uncordon(node: &HostNode, uid: &str, name: &str) -> Value {
    let annotation = pointer::annotation(labels::CORDONED_BY);
    let mut steps = vec![
        json!({ "op": "test", "path": "/metadata/uid", "value": uid }),
        json!({ "op": "test", "path": annotation, "value": name }),
        json!({ "op": "remove", "path": annotation }),
    ];
    if node.spec.unschedulable {
        steps.push(json!({ "op": "remove", "path": "/spec/unschedulable" }));
    }
    Value::Array(steps)
}

/// The maintenance that a Node's cordon names.
fn cordoned_by(node: &HostNode) -> Option<String> {
    node.annotations().get(labels::CORDONED_BY).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(annotations: &Value, unschedulable: bool) -> HostNode {
        serde_json::from_value(json!({
            "metadata": { "name": "host-1", "uid": "u", "annotations": annotations },
            "spec": { "unschedulable": unschedulable },
        }))
        .unwrap()
    }

    #[test]
    fn a_cordon_names_its_maintenance() {
        let steps = json!([
            { "op": "test", "path": "/metadata/uid", "value": "u" },
            { "op": "add", "path": "/metadata/annotations", "value": {} },
            {
                "op": "add", "path": "/metadata/annotations/guestcluster.dev~1cordoned-by",
                "value": "firmware",
            },
            { "op": "add", "path": "/spec/unschedulable", "value": true },
        ]);
        assert_eq!(cordon(&node(&Value::Null, false), "u", "firmware"), steps);
    }

    #[test]
    fn only_what_the_maintenance_cordoned_is_uncordoned() {
        let by = json!({ labels::CORDONED_BY: "firmware" });
        let node = node(&by, true);
        assert_eq!(cordoned_by(&node).as_deref(), Some("firmware"));
        let steps = uncordon(&node, "u", "firmware");
        assert_eq!(
            steps[1],
            json!({
                "op": "test", "path": "/metadata/annotations/guestcluster.dev~1cordoned-by",
                "value": "firmware",
            })
        );
        assert_eq!(steps[3]["path"], "/spec/unschedulable");
    }
}
