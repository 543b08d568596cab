//! Machines that fail, stop or move, and a guest that is silent.

use super::{assert_picture, calm, prod, until, until_planned, world};
use guestcluster_planner::Action;
use guestcluster_planner::observed::Probe;
use guestcluster_testkit::{Fault, Mishap, Step, World};

/// A control-plane machine loses its power in the middle of its join: before its etcd member votes,
/// or after.
fn cut_short(voter: bool) -> World {
    let mut world = world(prod().build());
    let reached = |world: &World| {
        if voter {
            world.votes("prod-cp-2") && !world.has_node("prod-cp-2")
        } else {
            world.learner() == Some("prod-cp-2")
        }
    };
    until(&mut world, reached);
    world.power_cycle("prod-cp-2");
    world
}

#[test]
fn a_join_dies_as_a_learner() {
    let mut world = cut_short(false);
    until_planned(&mut world, |action| {
        matches!(action, Action::RemoveEtcdMember { .. })
    });
    assert_picture!("join_failed_as_learner", world);
    let is_vm = |action: &Action| matches!(action, Action::Delete { object, .. } if object.kind == guestcluster_planner::action::Kind::VirtualMachine);
    until_planned(&mut world, is_vm);
    assert_picture!("join_failed_and_learner_removed", world);
    let is_disk = |action: &Action| matches!(action, Action::Delete { object, .. } if object.kind == guestcluster_planner::action::Kind::DataVolume);
    until_planned(&mut world, is_disk);
    assert_picture!("failed_machine_is_swept", world);
}

#[test]
fn a_join_dies_as_a_voter_and_comes_back_by_itself() {
    let mut world = cut_short(true);
    let failed = |world: &World| {
        let (plan, _) = world.consider();
        plan.holds
            .iter()
            .any(|hold| hold.message.contains("votes in etcd"))
    };
    until(&mut world, failed);
    assert_picture!("join_failed_as_voter", world);
    assert!(world.run_until_calm(super::ROUNDS), "{}", world.log());
    assert_eq!(
        world.running(),
        ["prod-cp-1", "prod-cp-2", "prod-cp-3", "prod-general-1"]
    );
}

#[test]
fn the_init_is_cut_short() {
    let mut world = world(prod().build());
    until(&mut world, |world| world.has_node("prod-cp-1"));
    world.power_cycle("prod-cp-1");
    until_planned(&mut world, Action::disruptive);
    assert_picture!("init_failed", world);
    until_planned(&mut world, |action| {
        matches!(action, Action::WriteUserData(_))
    });
    assert_picture!("init_begins_anew", world);
}

#[test]
fn a_machine_comes_back_with_another_address() {
    let mut world = calm(prod().build());
    world.power_cycle("prod-cp-2");
    until_planned(&mut world, |action| matches!(action, Action::Apply(_)));
    assert_picture!("machine_is_off", world);
    world.reconcile(Mishap::None);
    until_planned(&mut world, |action| matches!(action, Action::Apply(_)));
    assert_picture!("machine_has_another_address", world);
}

#[test]
fn an_address_follows_a_machine_that_moves_while_it_runs() {
    let mut world = calm(prod().migratable().build());
    for machine in ["prod-cp-2", "prod-general-1"] {
        world.migrate(machine);
        let (plan, _) = world.consider();
        let slices = plan.actions.iter().filter_map(|action| match action {
            Action::Apply(slice) => Some(slice),
            _ => None,
        });
        let [slice] = slices.collect::<Vec<_>>()[..] else {
            panic!("{:?}", plan.actions);
        };
        assert_eq!(slice.name, machine);
        assert!(!plan.actions.iter().any(Action::disruptive));
        let endpoints = slice.body["endpoints"].as_array().unwrap();
        let address = world.observe().instances[machine].address.clone();
        assert_eq!(endpoints.len(), 1, "the target alone");
        assert_eq!(endpoints[0]["addresses"][0].as_str(), address.as_deref());
        world.reconcile(Mishap::None);
        assert!(world.run_until_calm(super::ROUNDS), "{}", world.log());
    }
}

#[test]
fn all_control_planes_are_off() {
    let mut world = calm(prod().build());
    for machine in ["prod-cp-1", "prod-cp-2", "prod-cp-3"] {
        world.power_cycle(machine);
    }
    world.reconcile(Mishap::None);
    assert_picture!("all_control_planes_off", world);
}

#[test]
fn the_guest_is_silent() {
    let mut world = calm(prod().build());
    world.step(Step::CutGuest);
    assert_picture!("guest_unreachable", world);
}

#[test]
fn a_host_dies() {
    let mut world = calm(prod().build());
    world.step(Step::KillHost(0));
    world.pass(5);
    world.reconcile(Mishap::None);
    assert_picture!("host_down", world);
}

#[test]
fn a_person_stops_a_machine() {
    let mut world = calm(prod().build());
    world.set_strategy("prod-cp-3", "Halted");
    world.pass(10);
    world.reconcile(Mishap::None);
    assert_picture!("stopped_by_user", world);
}

#[test]
fn a_person_deletes_a_vm() {
    let mut world = calm(prod().build());
    world.delete_vm("prod-cp-3");
    until_planned(&mut world, |action| matches!(action, Action::Create(_)));
    assert_picture!("vm_deleted_by_user", world);
}

#[test]
fn a_disk_is_gone_and_the_machine_does_not_come_back_on_an_empty_one() {
    let mut world = calm(prod().build());
    world.destroy_disk("prod-cp-3");
    world.delete_vm("prod-cp-3");
    world.pass(20);
    world.reconcile(Mishap::None);
    assert_picture!("disk_lost", world);
}

#[test]
fn a_join_takes_long_and_its_token_is_kept_alive() {
    let mut world = calm(prod().build());
    world.set(Fault::ClonesHang, true);
    world.edit(|cluster| cluster.spec.workers[0].replicas = 2);
    until_planned(&mut world, |action| {
        matches!(action, Action::ExtendToken { .. })
    });
    assert_picture!("token_is_extended", world);
}

#[test]
fn nodes_under_pressure_are_named() {
    let world = calm(prod().build());
    let mut seen = world.observe();
    if let Probe::Known(guest) = &mut seen.guest {
        for (machine, pressure) in [("prod-cp-2", "memory"), ("prod-general-1", "disk")] {
            let taint = format!("node.kubernetes.io/{pressure}-pressure");
            guest
                .nodes
                .get_mut(machine)
                .expect("a Node")
                .taints
                .insert(taint);
        }
    }
    let (_, status) = world.consider_seeing(&seen);
    let message = |condition: &str| {
        let mut all = status.conditions.iter();
        all.find(|c| c.type_ == condition)
            .map(|c| c.message.as_str())
    };
    assert_eq!(
        message("ControlPlaneAvailable"),
        Some(
            "3 of 3 control-plane machines are ready; new Pods are kept off: prod-cp-2 is short of memory"
        )
    );
    assert_eq!(
        message("WorkersAvailable"),
        Some("1 of 1 workers are ready; new Pods are kept off: prod-general-1 is short of disk")
    );
}
