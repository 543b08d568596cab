//! Machines that must leave their hosts.

use guestcluster_bridge::serve::Dialect;
use guestcluster_planner::observed::{GuestPod, Probe};
use serde_json::json;

use super::kinds;
use super::world::World;

#[test]
fn a_worker_leaves_its_host_drained_and_comes_back_uncordoned() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 2);
    world.must_leave("c-w-1");
    world.must_leave("c-w-2");
    assert_eq!(kinds(&world.step()), ["SetDrain"]);
    world.pods("c-w-1", vec![pod("a")]);
    let evicts = world.step();
    assert_eq!(
        kinds(&evicts),
        ["Evict"],
        "one machine at a time: {evicts:?}"
    );
    world.pods("c-w-1", Vec::new());
    assert_eq!(kinds(&world.step()), ["DeleteInstance"]);
    assert_eq!(world.step(), [], "it starts elsewhere");
    world.runs("c-w-1", "host-9");
    assert_eq!(kinds(&world.step()), ["SetDrain"], "it is uncordoned");
    assert!(world.node("c-w-1").drained_since.is_none());
    world.step();
    assert_eq!(
        world.node("c-w-2").drained_since,
        Some(world.now),
        "now the other"
    );
}

#[test]
fn a_budget_is_waited_for_as_long_as_the_machine_says() {
    let drained = |limit: Option<i32>| {
        let mut world = World::settled(Dialect::V1Beta1, 1, 1);
        let owner = world
            .seen
            .machines
            .get_mut("c-w-1")
            .unwrap()
            .owner
            .as_mut()
            .unwrap();
        owner.spec.deletion.node_drain_timeout_seconds = limit;
        world.must_leave("c-w-1");
        world.step();
        world.pods("c-w-1", vec![pod("held")]);
        world.pass(3600);
        kinds(&world.step())
    };
    assert_eq!(drained(None), ["Evict"]);
    assert_eq!(drained(Some(0)), ["Evict"], "0 means for ever");
    assert_eq!(drained(Some(60)), ["DeleteInstance"]);
}

#[test]
fn a_guest_that_does_not_answer_is_not_taken_for_empty() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 1);
    world.must_leave("c-w-1");
    world.seen.guest = Probe::Unreachable("silence".to_owned());
    world.pass(3600);
    assert_eq!(world.step(), []);
}

#[test]
fn a_member_of_etcd_that_would_lose_its_address_is_replaced_one_at_a_time() {
    let mut world = World::settled(Dialect::V1Beta1, 3, 0);
    for name in ["c-cp-1", "c-cp-2", "c-cp-3"] {
        world.must_leave(name);
    }
    assert_eq!(world.step(), []);
    assert_eq!(world.step(), []);
    let failed = |world: &World| {
        let all = ["c-cp-1", "c-cp-2", "c-cp-3"];
        all.map(|name| world.status(name).failure_message.is_some())
    };
    assert_eq!(failed(&world), [true, false, false]);
    world.delete("c-cp-1");
    world.step();
    assert_eq!(
        failed(&world)[1..],
        [false, false],
        "the first is still on its way"
    );
}

#[test]
fn a_member_with_an_address_of_its_own_is_drained_and_starts_elsewhere() {
    let mut world = World::settled(Dialect::V1Beta1, 3, 0);
    for name in ["c-cp-1", "c-cp-2", "c-cp-3"] {
        let template = &mut world.seen.machines.get_mut(name).unwrap().object.spec;
        let spec = &mut template.virtual_machine_template.spec["template"]["spec"];
        spec["networks"] = json!([{ "name": "default", "multus": { "networkName": "lan" } }]);
        world.must_leave(name);
    }
    world.step();
    world.pods("c-cp-1", Vec::new());
    assert_eq!(kinds(&world.step()), ["DeleteInstance"]);
    for _ in 0..3 {
        assert_eq!(world.step(), [], "no other goes before it is back");
    }
}

fn pod(name: &str) -> GuestPod {
    GuestPod {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        due: true,
        ..GuestPod::default()
    }
}
