//! What the virt-handlers of both hosts write while an instance moves from one to the other.
//!
//! Each write is answered to by the next one, and what is to be written next shows in the instance itself: a handler
//! that starts anew goes on where it was.

use std::net::Ipv4Addr;

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::status::remove_condition;
use crate::faults::MigrationFault;

/// The label by which the target's handler finds an instance that is to come.
const TARGET_LABEL: &str = "kubevirt.io/migrationTargetNodeName";
/// Conditions that moving was for.
const SERVED: [&str; 3] = ["HotVCPUChange", "HotMemoryChange", "VolumesChange"];

/// One write, in the order in which a move that goes well takes them; the last two end one that does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The target waits for the guest.
    Prepare,
    /// The source begins to copy.
    Start,
    /// The guest is seen on the target.
    Detect,
    /// It runs there: the guest itself moves with this write.
    TakeOver,
    /// The move is over.
    Complete,
    /// The target forgets that it was one.
    Tidy,
    /// The source could not move it, for this reason.
    Fail(String),
    /// The source gives up because it was told to.
    Abort,
}

/// What `host` has to write next; none when it is the other's turn, or nobody's.
pub fn next(instance: &DynamicObject, host: &str, fault: Option<&MigrationFault>) -> Option<Step> {
    let state = instance.data.pointer("/status/migrationState")?;
    let is_set = |field: &str| !matches!(&state[field], Value::Null | Value::Bool(false));
    let runs_here = instance.data["status"]["nodeName"] == host;
    let (is_source, is_target) = (state["sourceNode"] == host, state["targetNode"] == host);
    if is_set("completed") || is_set("failed") {
        let labels = instance.metadata.labels.as_ref();
        let labelled = labels.is_some_and(|labels| labels.contains_key(TARGET_LABEL));
        let tidies = labelled && is_set("completed") && !is_set("failed") && runs_here;
        return tidies.then_some(Step::Tidy);
    }
    if instance.data["status"]["phase"] != "Running" {
        return None;
    }
    // Once the guest is seen on the target it is too late to give up.
    if is_source && runs_here && !is_set("targetNodeDomainDetected") {
        if is_set("abortRequested") {
            return Some(Step::Abort);
        }
        if !is_set("startTimestamp") {
            return is_set("targetNodeAddress").then_some(Step::Start);
        }
        return match fault {
            Some(MigrationFault::Fail(reason)) => Some(Step::Fail(reason.clone())),
            _ => None,
        };
    }
    if !is_target {
        return None;
    }
    if runs_here {
        return is_set("endTimestamp").then_some(Step::Complete);
    }
    if is_set("targetNodeDomainDetected") {
        return Some(Step::TakeOver);
    }
    if is_set("abortRequested") {
        return None;
    }
    if !is_set("targetNodeAddress") {
        return Some(Step::Prepare);
    }
    (is_set("startTimestamp") && fault.is_none()).then_some(Step::Detect)
}

/// What a step needs to know beside the instance.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The host that writes.
    pub host: &'a str,
    /// Its address.
    pub host_address: Ipv4Addr,
    /// The address of its launcher Pod, for a take-over.
    pub pod_address: Option<Ipv4Addr>,
    /// The time.
    pub now: &'a str,
}

/// Writes `step` into the instance.
pub fn write(instance: &mut DynamicObject, step: &Step, facts: &Facts<'_>) {
    let now = json!(facts.now);
    match step {
        Step::TakeOver => take_over(instance, facts),
        Step::Tidy => remove_label(instance, TARGET_LABEL),
        _ => {}
    }
    let status = &mut instance.data["status"];
    let mut set = |field: &str, value: Value| status["migrationState"][field] = value;
    match step {
        Step::Prepare => {
            set("targetNodeAddress", json!(facts.host_address.to_string()));
            set("targetDirectMigrationNodePorts", json!({"49152": 0}));
        }
        Step::Start => {
            set("startTimestamp", now);
            set("mode", json!("PreCopy"));
        }
        Step::Detect => {
            set("targetNodeDomainDetected", json!(true));
            set("targetNodeDomainReadyTimestamp", now);
            remove_condition(status, "MigrationRequired");
        }
        Step::TakeOver => set("endTimestamp", now),
        Step::Complete => set("completed", json!(true)),
        Step::Tidy => {}
        Step::Fail(reason) => {
            set("failed", json!(true));
            set("failureReason", json!(reason));
        }
        Step::Abort => {
            set("failed", json!(true));
            set("failureReason", json!("Live migration was aborted"));
            set("abortStatus", json!("Succeeded"));
        }
    }
    if matches!(step, Step::Fail(_) | Step::Abort) {
        let state = &mut instance.data["status"]["migrationState"];
        state["completed"] = json!(true);
        state["endTimestamp"] = json!(facts.now);
    }
}

/// The guest runs on this host now.
fn take_over(instance: &mut DynamicObject, facts: &Facts<'_>) {
    let labels = instance.metadata.labels.get_or_insert_default();
    labels.insert("kubevirt.io/nodeName".to_owned(), facts.host.to_owned());
    remove_label(instance, "kubevirt.io/outdatedLauncherImage");
    if let Some(annotations) = &mut instance.metadata.annotations {
        annotations.remove("kubevirt.io/eviction-source");
    }
    let domain = instance.data["spec"]["domain"].clone();
    let status = &mut instance.data["status"];
    status["nodeName"] = json!(facts.host);
    status["evacuationNodeName"] = json!("");
    status["launcherContainerImageVersion"] = json!("");
    status["migrationTransport"] = json!("Unix");
    for kind in SERVED {
        remove_condition(status, kind);
    }
    let cpu = &domain["cpu"];
    if cpu.is_object() {
        let parts = ["cores", "sockets", "threads"].into_iter();
        let stated = parts.filter(|part| cpu[part].is_u64());
        let topology = stated.map(|part| (part.to_owned(), cpu[part].clone()));
        status["currentCPUTopology"] = Value::Object(topology.collect());
    }
    if let (Some(memory), Some(guest)) = (
        status["memory"].as_object_mut(),
        domain["memory"].get("guest"),
    ) {
        memory.insert("guestCurrent".to_owned(), guest.clone());
        memory.insert("guestRequested".to_owned(), guest.clone());
    }
    if let (Some(address), Some(interface)) = (
        facts.pod_address.map(|address| address.to_string()),
        status["interfaces"].get_mut(0),
    ) {
        interface["ipAddresses"] = json!([address]);
        interface["ipAddress"] = json!(address);
    }
}

fn remove_label(instance: &mut DynamicObject, label: &str) {
    if let Some(labels) = &mut instance.metadata.labels {
        labels.remove(label);
    }
}

#[cfg(test)]
mod tests;
