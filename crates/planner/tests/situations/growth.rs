//! From the first object to a guest that serves.

use super::{assert_picture, calm, prod, until, until_planned, world};
use guestcluster_api::spec::{Profile, Topology};
use guestcluster_planner::Action;
use guestcluster_testkit::{Fault, cluster};

#[test]
fn a_fresh_object_gets_its_finalizer_alone() {
    assert_picture!("fresh_object", world(prod().build()));
}

#[test]
fn the_foundation_comes_before_machines() {
    let mut world = world(prod().with_finalizer().build());
    assert_picture!("foundation", world);
    until_planned(&mut world, |action| {
        matches!(action, Action::RecordOrdinals(_))
    });
    assert_picture!("names_are_recorded", world);
}

#[test]
fn the_endpoint_gets_no_address() {
    let mut world = world(prod().build());
    world.set(Fault::NoBalancer, true);
    for _ in 0..5 {
        world.pass(1);
        world.reconcile(guestcluster_testkit::Mishap::None);
    }
    assert_picture!("endpoint_pending", world);
}

#[test]
fn the_image_cannot_be_imported() {
    let mut world = world(prod().build());
    world.set(Fault::ImageBroken, true);
    for _ in 0..10 {
        world.pass(1);
        world.reconcile(guestcluster_testkit::Mishap::None);
    }
    assert_picture!("image_import_fails", world);
}

#[test]
fn one_machine_initialises() {
    let mut world = world(prod().build());
    until_planned(&mut world, |action| {
        matches!(action, Action::WriteUserData(_))
    });
    assert_picture!("init_machine_is_made", world);
    until(&mut world, |world| world.running() == ["prod-cp-1"]);
    until_planned(&mut world, |action| {
        matches!(action, Action::ApplyCni { .. })
    });
    assert_picture!("init_under_way", world);
}

#[test]
fn everything_joins_once_the_first_machine_answers() {
    let mut world = world(prod().build());
    let joins = |action: &Action| matches!(action, Action::WriteUserData(data) if data.machine == "prod-cp-2");
    until_planned(&mut world, joins);
    assert_picture!("init_answered", world);
}

#[test]
fn a_guest_that_serves_is_left_alone() {
    assert_picture!("ready", calm(prod().build()));
}

#[test]
fn every_machine_behind_masquerade_has_an_address_of_its_own() {
    let mut world = world(prod().migratable().with_finalizer().build());
    until_planned(
        &mut world,
        |action| matches!(action, Action::Create(object) if object.name == "prod-general-1"),
    );
    assert_picture!("migratable_growing", world);
    assert!(world.run_until_calm(super::ROUNDS), "{}", world.log());
    assert_picture!("migratable", world);
}

#[test]
fn every_machine_of_a_converged_guest_is_a_worker() {
    let converged = cluster("prod")
        .control_plane(3)
        .with(|spec| spec.topology = Topology::Converged);
    let mut world = world(converged.build());
    until(&mut world, |world| world.status().control_plane.ready == 2);
    assert_picture!("converged_growing", world);
    assert!(world.run_until_calm(super::ROUNDS), "{}", world.log());
    assert_picture!("converged", world);
}

#[test]
fn a_lab_stands_on_one_host_and_says_so() {
    let lab = cluster("lab")
        .workers("general", 2)
        .with(|spec| spec.profile = Profile::Lab);
    let mut world = world(lab.build());
    world.infra_mut().hosts.truncate(1);
    assert!(world.run_until_calm(super::ROUNDS), "{}", world.log());
    assert_picture!("lab", world);
}

#[test]
fn one_machine_is_a_cluster_that_runs_workloads() {
    let one = cluster("lab").with(|spec| {
        spec.profile = Profile::Lab;
        spec.topology = Topology::Converged;
    });
    let mut world = world(one.build());
    world.infra_mut().hosts.truncate(1);
    assert!(world.run_until_calm(super::ROUNDS), "{}", world.log());
    assert_picture!("lab_of_one_machine", world);
}

#[test]
fn a_lab_without_a_host_waits_for_one() {
    let lab = cluster("lab").with(|spec| spec.profile = Profile::Lab);
    let mut world = world(lab.build());
    let hosts = &mut world.infra_mut().hosts;
    hosts.truncate(1);
    hosts[0].unschedulable = true;
    until(&mut world, |world| {
        let (plan, _) = world.consider();
        plan.holds
            .iter()
            .any(|hold| hold.reason == guestcluster_api::Reason::TooFewHosts)
    });
    assert_picture!("lab_without_a_host", world);
}

#[test]
fn a_guest_without_pod_network_of_ours() {
    let world = calm(cluster("prod").without_cni().build());
    assert_picture!("ready_without_cni", world);
    assert!(!world.log().contains("ApplyCni"));
}

#[test]
fn more_workers_are_asked_for() {
    let mut world = calm(prod().build());
    world.edit(|cluster| cluster.spec.workers[0].replicas = 3);
    assert_picture!("more_workers", world);
}

#[test]
fn fewer_machines_are_asked_for() {
    let mut world = calm(prod().build());
    world.edit(|cluster| cluster.spec.workers[0].replicas = 0);
    assert_picture!("surplus", world);
    world.edit(|cluster| cluster.spec.workers.clear());
    assert_picture!("pool_removed", world);
}

#[test]
fn writes_are_paused() {
    let mut world = calm(prod().build());
    world.edit(|cluster| {
        cluster.spec.paused = true;
        cluster.spec.workers[0].replicas = 2;
    });
    assert_picture!("paused", world);
}
