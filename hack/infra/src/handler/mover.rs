//! Takes a host's part in every move of an instance from or to it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Context;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::Value;

use super::migration::{Facts, Step, next, write};
use super::{InstanceFeed, RETRY, each, now, replace};
use crate::data_centre::DataCentre;
use crate::faults::{MigrationFault, Target};
use crate::hosts::Host;

/// Runs until it is dropped.
pub async fn run(host: Arc<Host>, centre: Arc<DataCentre>) {
    let concerns = |instance: &DynamicObject| moves(instance, &host.name);
    each(&centre, concerns, |feed| {
        let (host, centre) = (host.clone(), centre.clone());
        Mover { host, centre, feed }.work()
    })
    .await;
}

/// Whether the instance moves, or has moved, from or to this host.
fn moves(instance: &DynamicObject, host: &str) -> bool {
    let state = instance.data.pointer("/status/migrationState");
    state.is_some_and(|state| state["sourceNode"] == host || state["targetNode"] == host)
}

/// A host's part in the moves of one instance.
struct Mover {
    host: Arc<Host>,
    centre: Arc<DataCentre>,
    feed: InstanceFeed,
}

impl Mover {
    async fn work(mut self) {
        let mut faults = self.centre.migration_faults.subscribe();
        loop {
            let instance = self.feed.borrow_and_update().clone();
            let fault = self.fault(&instance);
            let step = next(&instance, &self.host.name, fault.as_ref());
            let done = match &step {
                Some(step) => self.take(step).await,
                None => Ok(()),
            };
            if let Err(error) = &done {
                tracing::warn!(instance = instance.name_any(), "no move: {error:#}");
            }
            tokio::select! {
                changed = self.feed.changed() => if changed.is_err() { return },
                changed = faults.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RETRY), if done.is_err() => {}
            }
        }
    }

    async fn take(&mut self, step: &Step) -> anyhow::Result<()> {
        let pod_address = if *step == Step::TakeOver {
            Some(self.receive().await?)
        } else {
            None
        };
        let (centre, host) = (self.centre.clone(), self.host.clone());
        let now = now();
        let change = |instance: &mut DynamicObject| {
            let fault = fault_of(&centre, instance);
            let still = next(instance, &host.name, fault.as_ref()).as_ref() == Some(step);
            if still {
                let facts = Facts {
                    host: &host.name,
                    host_address: host.address,
                    pod_address,
                    now: &now,
                };
                write(instance, step, &facts);
            }
            still
        };
        replace(&self.centre.clients.handler, &mut self.feed, change).await;
        Ok(())
    }

    /// Takes the guest into the target Pod; returns the Pod's address.
    async fn receive(&self) -> anyhow::Result<Ipv4Addr> {
        let instance = self.feed.borrow().clone();
        let name = instance.data.pointer("/status/migrationState/targetPod");
        let name = name
            .and_then(Value::as_str)
            .context("no target Pod is named")?;
        let namespace = instance.namespace().unwrap_or_default();
        let pod = self.centre.pods.find(&namespace, name);
        let address = pod.and_then(|pod| pod.status.clone()?.pod_ip);
        let address = address.and_then(|ip| ip.parse().ok());
        let address = address.with_context(|| format!("Pod {name} has no address"))?;
        let uid = instance.uid().unwrap_or_default();
        let guests = &self.centre.guests;
        guests.relocate(&uid, &self.host.name, address).await?;
        Ok(address)
    }

    fn fault(&self, instance: &DynamicObject) -> Option<MigrationFault> {
        fault_of(&self.centre, instance)
    }
}

/// What is to go wrong with moves of this instance.
fn fault_of(centre: &DataCentre, instance: &DynamicObject) -> Option<MigrationFault> {
    let at = Target::new(
        instance.namespace().unwrap_or_default(),
        instance.name_any(),
    );
    centre.migration_faults.borrow().get(&at).cloned()
}
