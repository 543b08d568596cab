use std::net::Ipv4Addr;

use kube::core::DynamicObject;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Facts, Step, TARGET_LABEL, next, write};
use crate::faults::MigrationFault;

const NOW: &str = "2026-01-01T00:00:00Z";

fn instance(state: &Value) -> DynamicObject {
    let mut whole = json!({
        "metadata": {"name": "vm", "labels": {
            TARGET_LABEL: "new", "kubevirt.io/nodeName": "old",
        }},
        "spec": {"domain": {"cpu": {"cores": 1, "sockets": 2, "threads": 1}}},
        "status": {
            "phase": "Running", "nodeName": "old", "evacuationNodeName": "old",
            "interfaces": [{"name": "default", "ipAddress": "10.244.0.10", "mac": "m"}],
            "conditions": [{"type": "HotVCPUChange"}, {"type": "Ready"}],
            "activePods": {"uid": "old"},
        },
    });
    if !state.is_null() {
        whole["status"]["migrationState"] =
            json!({"sourceNode": "old", "targetNode": "new", "targetPod": "p"});
        for (field, value) in state.as_object().unwrap() {
            whole["status"]["migrationState"][field] = value.clone();
        }
    }
    serde_json::from_value(whole).unwrap()
}

fn apply(instance: &mut DynamicObject, host: &str, step: &Step) {
    let facts = Facts {
        host,
        host_address: Ipv4Addr::new(10, 78, 0, 2),
        pod_address: Some(Ipv4Addr::new(10, 244, 0, 11)),
        now: NOW,
    };
    write(instance, step, &facts);
}

/// Both handlers write until neither has anything left to write.
fn play(instance: &mut DynamicObject, fault: Option<&MigrationFault>) -> Vec<(&'static str, Step)> {
    let mut taken = Vec::new();
    while let Some((host, step)) = ["old", "new"]
        .into_iter()
        .find_map(|host| Some((host, next(instance, host, fault)?)))
    {
        apply(instance, host, &step);
        taken.push((host, step));
        assert!(taken.len() < 10, "{taken:?}");
    }
    taken
}

#[test]
fn both_handlers_write_in_turns_until_the_move_is_over() {
    let mut moved = instance(&json!({}));
    assert_eq!(
        play(&mut moved, None),
        [
            ("new", Step::Prepare),
            ("old", Step::Start),
            ("new", Step::Detect),
            ("new", Step::TakeOver),
            ("new", Step::Complete),
            ("new", Step::Tidy),
        ]
    );
    let status = &moved.data["status"];
    assert_eq!(status["nodeName"], "new");
    assert_eq!(status["evacuationNodeName"], "");
    assert_eq!(status["interfaces"][0]["ipAddress"], "10.244.0.11");
    assert_eq!(status["interfaces"][0]["mac"], "m");
    assert_eq!(status["currentCPUTopology"]["sockets"], 2);
    assert_eq!(status["conditions"], json!([{"type": "Ready"}]));
    assert_eq!(status["activePods"]["uid"], "old", "virt-controller's own");
    assert_eq!(status["migrationState"]["completed"], true);
    let labels = moved.metadata.labels.unwrap();
    assert_eq!(labels["kubevirt.io/nodeName"], "new");
    assert!(!labels.contains_key(TARGET_LABEL));
}

#[test]
fn a_stalled_move_goes_on_once_it_is_mended() {
    let mut stalled = instance(&json!({}));
    let taken = play(&mut stalled, Some(&MigrationFault::Stall));
    assert_eq!(taken.last(), Some(&("old", Step::Start)));
    let taken = play(&mut stalled, None);
    assert_eq!(taken.first(), Some(&("new", Step::Detect)));
    assert_eq!(stalled.data["status"]["migrationState"]["completed"], true);
}

#[test]
fn a_failed_move_says_why_and_leaves_the_guest_where_it_was() {
    let mut failed = instance(&json!({}));
    let fault = MigrationFault::Fail("no route".to_owned());
    let taken = play(&mut failed, Some(&fault));
    assert_eq!(
        taken.last(),
        Some(&("old", Step::Fail("no route".to_owned())))
    );
    let status = &failed.data["status"];
    assert_eq!(status["nodeName"], "old");
    assert_eq!(status["migrationState"]["failureReason"], "no route");
    assert_eq!(status["migrationState"]["failed"], true);
}

#[test]
fn an_aborted_move_ends_at_once() {
    let mut aborted = instance(&json!({}));
    play(&mut aborted, Some(&MigrationFault::Stall));
    aborted.data["status"]["migrationState"]["abortRequested"] = json!(true);
    let taken = play(&mut aborted, Some(&MigrationFault::Stall));
    assert_eq!(taken, [("old", Step::Abort)]);
    let state = &aborted.data["status"]["migrationState"];
    assert_eq!(state["abortStatus"], "Succeeded");
    assert_eq!(state["endTimestamp"], NOW);
}

#[rstest]
#[case::not_moving(json!(null))]
#[case::of_other_hosts(json!({"sourceNode": "a", "targetNode": "b"}))]
#[case::over(json!({"completed": true, "failed": true}))]
fn nothing_is_written_without_a_move(#[case] state: Value) {
    let still = instance(&state);
    assert_eq!(next(&still, "old", None), None);
    assert_eq!(next(&still, "new", None), None);
}

#[test]
fn it_is_too_late_to_abort_what_is_seen_on_the_target() {
    let late = instance(&json!({
        "abortRequested": true, "startTimestamp": NOW, "targetNodeAddress": "a",
        "targetNodeDomainDetected": true,
    }));
    assert_eq!(next(&late, "old", None), None);
    assert_eq!(next(&late, "new", None), Some(Step::TakeOver));
}
