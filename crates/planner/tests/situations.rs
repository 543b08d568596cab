//! Named situations: what the operator would do and say in each, as pictures that people can read.

#[path = "support/picture.rs"]
mod picture;

#[path = "situations/deletion.rs"]
mod deletion;
#[path = "situations/devices.rs"]
mod devices;
#[path = "situations/growth.rs"]
mod growth;
#[path = "situations/limits.rs"]
mod limits;
#[path = "situations/refusals.rs"]
mod refusals;
#[path = "situations/room.rs"]
mod room;
#[path = "situations/storage.rs"]
mod storage;
#[path = "situations/strangers.rs"]
mod strangers;
#[path = "situations/trouble.rs"]
mod trouble;

use guestcluster_api::GuestCluster;
use guestcluster_planner::Action;
use guestcluster_testkit::build::ClusterBuilder;
use guestcluster_testkit::{Mishap, World, cluster};

/// More than any of the situations takes, in rounds of two seconds.
const ROUNDS: u32 = 1000;

/// 3 + 1 machines.
fn prod() -> ClusterBuilder {
    cluster("prod").control_plane(3).workers("general", 1)
}

fn world(cluster: GuestCluster) -> World {
    World::new(7, cluster)
}

/// Goes on until a visit plans an action that `is`, without carrying it out.
fn until_planned(world: &mut World, is: impl Fn(&Action) -> bool) {
    for _ in 0..ROUNDS {
        if world.consider().0.actions.iter().any(&is) {
            return;
        }
        world.reconcile(Mishap::None);
        world.pass(1);
    }
    let reached = world.consider().0.actions.iter().any(&is);
    assert!(reached, "it never came to that\n{}", world.log());
}

fn until(world: &mut World, done: impl Fn(&World) -> bool) {
    assert!(
        world.run_until(ROUNDS, |world, _| done(world)),
        "{}",
        world.log()
    );
}

fn calm(cluster: GuestCluster) -> World {
    let mut world = world(cluster);
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    world
}

/// Asserts the picture of a situation.
macro_rules! assert_picture {
    ($name:literal, $world:expr) => {
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true,
            snapshot_path => "../snapshots" }, {
            insta::assert_snapshot!($name, crate::picture::picture(&$world));
        });
    };
}
use assert_picture;
