//! What the provider does for Clusters, step by step, in a world where each write takes effect at once.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "serve/evictions.rs"]
mod evictions;
#[path = "serve/machines.rs"]
mod machines;
#[path = "serve/moves.rs"]
mod moves;
#[path = "serve/world.rs"]
mod world;

use std::collections::BTreeMap;

use guestcluster_bridge::capi;
use guestcluster_bridge::serve::{Action, Dialect, is_progress, plan};
use guestcluster_foreign::capk::{Endpoint, KubevirtMachineStatus};
use serde_json::{Value, json};
use world::{World, condition};

fn kinds(actions: &[Action]) -> Vec<&'static str> {
    actions.iter().map(Action::kind).collect()
}

#[test]
fn a_cluster_gets_its_endpoint_and_each_machine_its_vm_in_order() {
    let mut world = World::new(Dialect::V1Beta1);
    world.add_machine("c-cp-1", true);
    let first = world.step();
    assert_eq!(
        kinds(&first),
        ["AddFinalizer", "ApplyService", "AddFinalizer"],
        "no machine before the endpoint"
    );
    assert_eq!(
        world.reason("c-cp-1", "VMProvisioned"),
        "WaitingForClusterInfrastructure"
    );
    world.load_balancer("10.9.9.9");
    assert_eq!(kinds(&world.step()), ["SetEndpoint"]);
    let told = world.seen.infra.clone().unwrap();
    let endpoint = Endpoint {
        host: "10.9.9.9".to_owned(),
        port: 6443,
    };
    assert_eq!(told.spec.control_plane_endpoint, Some(endpoint));
    assert!(told.status.unwrap().ready);
    world.infrastructure_is_provisioned();
    assert_eq!(world.step(), [], "there is no first-boot document yet");
    assert_eq!(
        world.reason("c-cp-1", "VMProvisioned"),
        "WaitingForBootstrapData"
    );
    world.boot_document("c-cp-1");
    assert_eq!(kinds(&world.step()), ["WriteUserData", "CreateVm"]);
    assert_eq!(world.step(), [], "it boots");
    world.runs("c-cp-1", "host-1");
    assert_eq!(world.step(), [], "its guest does not show it yet");
    assert_eq!(
        world.reason("c-cp-1", "BootstrapExecSucceeded"),
        "BootstrapFailed"
    );
    world.joins("c-cp-1");
    assert_eq!(kinds(&world.step()), ["SetProviderId", "SetNodeProviderId"]);
    assert_eq!(world.step(), []);
    let status = world.status("c-cp-1");
    assert!(status.ready && status.nodeupdated, "{status:?}");
    world.is_known("c-cp-1");
    assert_eq!(kinds(&world.step()), ["ScrubUserData"]);
    assert_eq!(world.step(), [], "all is done");
}

#[test]
fn a_settled_cluster_asks_for_nothing_and_says_the_same() {
    for dialect in [Dialect::V1Beta1, Dialect::V1Beta2] {
        let mut world = World::settled(dialect, 3, 2);
        let before = (world.seen.infra.clone(), world.seen.machines.clone());
        assert_eq!(world.step(), [], "{dialect:?}");
        let after = (world.seen.infra.clone(), world.seen.machines.clone());
        assert_eq!(before.0, after.0, "{dialect:?}");
        for (name, machine) in &before.1 {
            assert_eq!(machine.object, after.1[name].object, "{dialect:?}");
        }
        assert!(
            !guestcluster_bridge::serve::asks_guest(&world.seen),
            "{dialect:?}"
        );
    }
}

#[test]
fn each_schema_hears_of_zones_and_of_provisioning_in_its_own_shape() {
    let shown = |dialect| {
        let mut world = World::new(dialect);
        world.seen.zones = ["a", "b"].map(str::to_owned).into();
        world.step();
        world.load_balancer("10.9.9.9");
        world.step();
        serde_json::to_value(world.seen.infra.unwrap().status).unwrap()
    };
    let (old, new) = (shown(Dialect::V1Beta1), shown(Dialect::V1Beta2));
    assert_eq!(old["failureDomains"]["b"], json!({ "controlPlane": true }));
    assert_eq!(
        new["failureDomains"][1],
        json!({ "name": "b", "controlPlane": true })
    );
    assert!(old.get("initialization").is_none());
    assert_eq!(new["initialization"]["provisioned"], true);
}

#[test]
fn an_object_is_held_until_what_was_made_for_it_is_gone() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 1);
    world.delete("c-w-1");
    assert_eq!(kinds(&world.step()), ["DeleteVm"]);
    assert_eq!(world.step(), [], "it shuts down");
    assert_eq!(world.reason("c-w-1", "VMProvisioned"), "Deleting");
    world.vm_is_gone("c-w-1");
    assert_eq!(world.step(), [], "its instance still shuts down");
    world.instance_is_gone("c-w-1");
    assert_eq!(kinds(&world.step()), ["DeleteUserData", "RemoveFinalizer"]);
    world.delete_cluster();
    assert_eq!(world.step(), [], "a machine is left");
    world.delete("c-cp-1");
    world.step();
    world.vm_is_gone("c-cp-1");
    world.instance_is_gone("c-cp-1");
    world.step();
    world.forget_gone();
    assert_eq!(kinds(&world.step()), ["DeleteService"]);
    assert_eq!(kinds(&world.step()), ["RemoveFinalizer"]);
}

#[test]
fn a_machine_whose_owner_and_cluster_are_gone_still_goes() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 0);
    world.seen.cluster = None;
    world.seen.infra = None;
    world.seen.machines.get_mut("c-cp-1").unwrap().owner = None;
    world.delete("c-cp-1");
    world.step();
    world.vm_is_gone("c-cp-1");
    world.instance_is_gone("c-cp-1");
    assert_eq!(kinds(&world.step()), ["DeleteUserData", "RemoveFinalizer"]);
}

#[test]
fn nothing_is_done_in_a_pause() {
    for dialect in [Dialect::V1Beta1, Dialect::V1Beta2] {
        let mut world = World::new(dialect);
        world.add_machine("c-w-1", false);
        world.seen.cluster.as_mut().unwrap().spec.paused = true;
        assert_eq!(world.step(), []);
        let told = condition(world.seen.infra.clone().unwrap().status.as_ref(), "Paused");
        match dialect {
            Dialect::V1Beta1 => assert_eq!(told, None),
            Dialect::V1Beta2 => assert_eq!(told.unwrap()["status"], "True"),
        }
        world.seen.cluster.as_mut().unwrap().spec.paused = false;
        assert_ne!(world.step(), []);
    }
    let mut world = World::settled(Dialect::V1Beta1, 1, 1);
    let machine = world.seen.machines.get_mut("c-w-1").unwrap();
    machine.object.metadata.annotations = Some([(capi::PAUSED.to_owned(), String::new())].into());
    world.must_leave("c-w-1");
    assert_eq!(world.step(), [], "the pause of one object");
}

#[test]
fn what_is_paused_stays_even_if_it_is_to_go() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 1);
    world.seen.cluster.as_mut().unwrap().spec.paused = true;
    world.delete("c-w-1");
    world.delete_cluster();
    assert_eq!(
        world.step(),
        [],
        "whoever moves a Cluster deletes its objects, and machines run on"
    );
    world.seen.cluster.as_mut().unwrap().spec.paused = false;
    assert_eq!(kinds(&world.step()), ["DeleteVm"]);
}

#[test]
fn what_another_takes_care_of_is_left_to_it() {
    let mut world = World::new(Dialect::V1Beta1);
    let infra = world.seen.infra.as_mut().unwrap();
    infra.metadata.annotations = Some([(capi::MANAGED_BY.to_owned(), "x".to_owned())].into());
    let plan = plan(&world.seen, world.now);
    assert_eq!((plan.actions, plan.cluster), (vec![], None));
}

#[test]
fn a_service_that_was_changed_or_lost_is_made_as_it_was() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 0);
    world.seen.service.as_mut().unwrap().spec.selector = Some(BTreeMap::new());
    assert_eq!(kinds(&world.step()), ["ApplyService"]);
    assert_eq!(world.step(), []);
    world.seen.service = None;
    let Some(Action::ApplyService(body)) = world.step().into_iter().next() else {
        panic!("it is not made again");
    };
    assert_eq!(
        body["spec"]["loadBalancerIP"], "10.9.9.9",
        "its guest knows that address"
    );
    assert_eq!(world.cluster_reason(), "LoadBalancerProvisioningFailed");
    world.load_balancer("10.9.9.10");
    assert_eq!(world.step(), []);
    let message = world.cluster_message();
    assert!(
        message.contains("10.9.9.10") && message.contains("know 10.9.9.9"),
        "{message}"
    );
    world.load_balancer("10.9.9.9");
    world.step();
    assert_eq!(world.cluster_reason(), "");
}

#[test]
fn what_cannot_work_is_refused_with_what_to_write_instead() {
    let told = |change: fn(&mut World)| {
        let mut world = World::new(Dialect::V1Beta1);
        change(&mut world);
        let actions = world.step();
        assert!(!kinds(&actions).contains(&"ApplyService"), "{actions:?}");
        world.cluster_message()
    };
    let long = told(|world| world.seen.name = "n".repeat(61));
    assert!(long.contains("at most 60"), "{long}");
    let node_port = told(|world| world.service_type("NodePort"));
    assert!(
        node_port.contains("spec.controlPlaneEndpoint"),
        "{node_port}"
    );
    let external = told(|world| world.service_type("ExternalName"));
    assert!(external.contains("LoadBalancer"), "{external}");
    let namesake = told(|world| world.seen.namesake = Some("other/c".to_owned()));
    assert!(namesake.contains("other/c"), "{namesake}");
}

#[test]
fn a_node_port_is_the_port_of_the_endpoint() {
    let mut world = World::new(Dialect::V1Beta1);
    world.service_type("NodePort");
    let endpoint = Endpoint {
        host: "hosts.example.org".to_owned(),
        port: 31443,
    };
    world
        .seen
        .infra
        .as_mut()
        .unwrap()
        .spec
        .control_plane_endpoint = Some(endpoint);
    world.step();
    assert_eq!(world.applied["spec"]["ports"][0]["nodePort"], 31443);
    world.step();
    assert_eq!(world.cluster_reason(), "");
}

#[test]
fn what_the_api_server_says_against_a_machine_is_told() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 0);
    world.add_machine("c-w-1", false);
    world.boot_document("c-w-1");
    world.refuses = Some("spec.template.spec.domain.memory.guest: must be positive".to_owned());
    world.step();
    assert_eq!(world.step(), [], "it is not tried again at once");
    assert_eq!(world.reason("c-w-1", "VMProvisioned"), "VMCreateFailed");
    assert!(
        world
            .message("c-w-1", "VMProvisioned")
            .contains("must be positive")
    );
}

#[test]
fn a_vm_that_is_lost_or_marked_so_is_not_made_again_but_reported() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 1);
    world.vm_is_gone("c-w-1");
    world.instance_is_gone("c-w-1");
    assert_eq!(
        world.step(),
        [],
        "its disks are gone, and its token is spent"
    );
    assert_eq!(
        world.status("c-w-1").failure_reason.as_deref(),
        Some("UpdateError")
    );
    let mut world = World::settled(Dialect::V1Beta1, 1, 1);
    let labels = world.labels_of_vm("c-w-1");
    labels.insert(capi::TERMINAL.to_owned(), "disk-broken".to_owned());
    world.step();
    let message = world.status("c-w-1").failure_message.unwrap();
    assert!(message.contains("disk-broken"), "{message}");
    world.labels_of_vm("c-w-1").remove(capi::TERMINAL);
    world.step();
    assert_eq!(
        world.status("c-w-1").failure_message,
        None,
        "it has recovered"
    );
}

#[test]
fn a_vm_of_somebody_else_is_neither_used_nor_deleted() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 1);
    world.labels_of_vm("c-w-1").clear();
    assert_eq!(world.step(), []);
    assert_eq!(world.reason("c-w-1", "VMProvisioned"), "VMCreateFailed");
    world.delete("c-w-1");
    assert_eq!(kinds(&world.step()), ["DeleteUserData", "RemoveFinalizer"]);
}

#[test]
fn a_node_that_belongs_to_another_machine_is_told() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 1);
    let machine = world.seen.machines.get_mut("c-w-1").unwrap();
    machine.object.status.as_mut().unwrap().nodeupdated = false;
    world.provider_id("c-w-1", "other://x");
    world.step();
    let message = world.message("c-w-1", "VMProvisioned");
    assert!(message.contains("other://x"), "{message}");
}

#[test]
fn two_members_of_etcd_on_one_host_are_told_of() {
    let mut world = World::settled(Dialect::V1Beta1, 3, 0);
    let told = |world: &World| {
        let infra = world.seen.infra.clone().unwrap();
        condition(infra.status.as_ref(), "PlacementHealthy").unwrap()
    };
    assert_eq!(told(&world)["status"], "True");
    world.runs("c-cp-2", "host-of-c-cp-1");
    world.step();
    let message = told(&world)["message"].to_string();
    assert!(message.contains("c-cp-1 and c-cp-2"), "{message}");
}

#[test]
fn words_about_progress_can_wait_and_nothing_else_can() {
    let status = |change: fn(&mut Value)| -> KubevirtMachineStatus {
        let mut status = json!({ "ready": false, "conditions": [{
            "type": "Ready", "status": "False", "severity": "Info", "reason": "DVPending",
        }]});
        change(&mut status);
        serde_json::from_value(status).unwrap()
    };
    let before = status(|_| ());
    let waits = |change| is_progress(&before, &status(change));
    assert!(waits(|s| s["conditions"][0]["reason"] = json!("DVNotReady")));
    assert!(!waits(|s| s["conditions"][0]["severity"] = json!("Error")));
    assert!(!waits(|s| s["conditions"][0]["status"] = json!("True")));
    assert!(!waits(|s| s["ready"] = json!(true)));
    assert!(!waits(|s| s["failureMessage"] = json!("lost")));
    assert!(!waits(
        |s| s["addresses"] = json!([{ "type": "InternalIP", "address": "10.0.0.1" }])
    ));
}

#[test]
fn a_key_logs_in_only_if_somebody_named_it() {
    let keys = |named: Option<&str>| {
        let mut world = World::settled(Dialect::V1Beta1, 1, 0);
        let infra = world.seen.infra.as_mut().unwrap();
        infra.spec.ssh_keys.data_secret_name = named.map(str::to_owned);
        world.add_machine("c-w-1", false);
        world.boot_document("c-w-1");
        world.step().into_iter().find_map(|action| match action {
            Action::WriteUserData { ssh_keys, .. } => Some(json!(ssh_keys)),
            _ => None,
        })
    };
    assert_eq!(keys(None), Some(Value::Null));
    assert_eq!(keys(Some("mine")), Some(json!("mine")));
}
