//! What cannot be carried out here is said, and nothing is begun.

use super::{assert_picture, prod, until_planned, world};
use guestcluster_planner::Action;
use guestcluster_testkit::{Mishap, World};

/// A cluster with its finalizer, in an infrastructure cluster that was changed.
fn on(change: impl FnOnce(&mut World)) -> World {
    let mut world = world(prod().with_finalizer().build());
    change(&mut world);
    world
}

#[test]
fn the_namespace_is_not_given_to_guests() {
    let world = on(|world| world.infra_mut().namespace_for_guests = false);
    assert_picture!("namespace_without_label", world);
}

#[test]
fn a_range_of_the_guest_is_in_use_below() {
    let world =
        on(|world| world.infra_mut().pod_ranges = "10.200.0.0/14".parse().into_iter().collect());
    assert_picture!("ranges_overlap", world);
}

#[test]
fn ranges_below_are_not_known() {
    let world = on(|world| world.infra_mut().pod_ranges.clear());
    assert_picture!("ranges_unknown", world);
}

#[test]
fn a_storage_class_is_missing() {
    let mut world = world(
        prod()
            .with_finalizer()
            .with(|spec| {
                spec.control_plane.machine.root_disk.storage_class_name = Some("fast".to_owned());
            })
            .build(),
    );
    assert_picture!("storage_class_missing", world);
    world.infra_mut().storage_classes.insert("fast".to_owned());
    world.infra_mut().default_storage_class = None;
    assert_picture!("storage_class_without_default", world);
}

#[test]
fn kubevirt_is_missing_or_of_another_release() {
    let world = on(|world| world.infra_mut().kubevirt = None);
    assert_picture!("kubevirt_missing", world);
    let world = on(|world| world.infra_mut().kubevirt = Some("v1.6.2".to_owned()));
    assert_picture!("kubevirt_too_old", world);
}

#[test]
fn an_authority_is_damaged() {
    let mut world = super::calm(prod().build());
    world.damage("prod-etcd", "the key does not belong to the certificate");
    assert_picture!("authority_damaged", world);
}

#[test]
fn an_authority_is_gone_while_machines_depend_on_it() {
    let mut world = super::calm(prod().build());
    world.delete_secret("prod-ca");
    assert_picture!("authority_gone", world);
}

#[test]
fn a_name_is_taken() {
    let mut world = world(prod().build());
    until_planned(&mut world, |action| {
        matches!(action, Action::WriteUserData(_))
    });
    world.take_name("prod-general-1", "VirtualMachine prod-general-1 of nobody");
    world.reconcile(Mishap::None);
    assert_picture!("name_taken", world);
}

#[test]
fn five_control_planes_on_four_hosts() {
    let mut world = world(prod().control_plane(5).build());
    until_planned(&mut world, |action| {
        matches!(action, Action::RecordOrdinals(_))
    });
    assert_picture!("five_replicas_on_four_hosts", world);
}

#[test]
fn a_host_is_too_small() {
    let mut world = on(|world| {
        let hosts = &mut world.infra_mut().hosts;
        hosts.truncate(3);
        hosts[1].unschedulable = true;
    });
    until_planned(&mut world, |action| {
        matches!(action, Action::RecordOrdinals(_))
    });
    assert_picture!("three_replicas_with_a_cordoned_host", world);
}
