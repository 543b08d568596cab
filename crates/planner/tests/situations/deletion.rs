//! A cluster goes.

use super::{assert_picture, calm, prod, until_planned};
use guestcluster_planner::Action;
use guestcluster_testkit::{Mishap, Step, World};

fn deleted(mut world: World) -> World {
    world.step(Step::CutGuest);
    world.delete_cluster();
    world
}

#[test]
fn machines_go_first() {
    let mut world = deleted(calm(prod().build()));
    assert_picture!("deleting", world);
    world.reconcile(Mishap::None);
    world.pass(1);
    assert_picture!("deleting_and_waiting", world);
    until_planned(
        &mut world,
        |action| matches!(action, Action::Delete { object, .. } if object.name == "prod-ca"),
    );
    assert_picture!("deleting_what_machines_used", world);
    until_planned(&mut world, |action| {
        matches!(action, Action::RemoveFinalizer)
    });
    assert_picture!("deleted", world);
}

#[test]
fn a_protected_cluster_stays() {
    assert_picture!(
        "deleting_protected",
        deleted(calm(prod().protected().build()))
    );
}

#[test]
fn disks_are_retained() {
    let mut world = deleted(calm(prod().retaining_disks().build()));
    until_planned(&mut world, |action| {
        matches!(action, Action::RetainDisk { .. })
    });
    assert_picture!("deleting_and_retaining_disks", world);
}

#[test]
fn a_shared_image_stays() {
    let mut world = calm(prod().build());
    world.share_image(true);
    let mut world = deleted(world);
    until_planned(&mut world, |action| {
        matches!(action, Action::RemoveFinalizer)
    });
    assert_picture!("deleted_while_the_image_is_shared", world);
}
