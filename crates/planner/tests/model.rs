//! All that can happen to small control planes while one wish is carried out.
//!
//! Each test begins with a calm guest and a wish, and walks through every interleaving of the operator's
//! visits with what machines do meanwhile, with each single trouble on the way: a machine, VM or host
//! that fails, an operator that dies, loses an answer, is late or away. A failure tells the shortest way
//! there. `cargo test -p guestcluster-planner --test model -- --ignored` walks further: larger worlds,
//! and two troubles on one way.

use guestcluster_testkit::model::{Bounds, walk};
use guestcluster_testkit::{Move, Step, World, cluster, guest_infra};

/// A calm guest with so many control-plane machines on so many hosts.
fn calm(machines: i32, hosts: u32) -> World {
    // What the pod network's manifest looks like makes no difference, and takes a third of the time.
    let cluster = cluster("prod").control_plane(machines).without_cni();
    let mut world = World::new(11, cluster.build());
    world.infra_mut().hosts = guest_infra(hosts).hosts;
    assert!(world.run_until_calm(600), "{}", world.log());
    world.in_moves()
}

#[expect(clippy::disallowed_methods, reason = "says how long the walk takes")]
fn check(name: &str, mut world: World, (wishes, troubles): (&[Move], usize)) {
    let begun = std::time::Instant::now();
    for wish in wishes {
        world.take(wish);
    }
    let bounds = Bounds {
        troubles,
        lag: 3,
        worlds: 2_000_000,
    };
    let outcome = walk(&world, bounds);
    let seconds = begun.elapsed().as_secs_f64();
    println!("{name}: {outcome}, {seconds:.1} s");
    assert!(
        outcome.broken.is_none(),
        "{name}: {}",
        outcome.broken.unwrap_or_default()
    );
}

fn scale(machines: i32) -> Move {
    Move::Wish(Step::Scale(machines))
}

fn drain(host: usize) -> Move {
    Move::Wish(Step::Drain(host))
}

const UPGRADE: Move = Move::Wish(Step::Upgrade(4));
const RENAME: Move = Move::Wish(Step::Rename(1));

fn first() -> String {
    "prod-cp-1".to_owned()
}

#[test]
fn from_3_machines_to_1() {
    check("3 to 1", calm(3, 4), (&[scale(1)], 1));
}

#[test]
fn from_1_machine_to_3() {
    check("1 to 3", calm(1, 4), (&[scale(3)], 1));
}

#[test]
fn from_3_machines_to_5() {
    check("3 to 5", calm(3, 6), (&[scale(5)], 1));
}

#[test]
fn from_5_machines_to_3() {
    check("5 to 3", calm(5, 6), (&[scale(3)], 1));
}

#[test]
fn an_upgrade_with_a_spare_host() {
    check("upgrade, surge", calm(3, 4), (&[UPGRADE], 1));
}

#[test]
fn an_upgrade_without_a_spare_host() {
    check("upgrade, delete-first", calm(3, 3), (&[UPGRADE], 1));
}

#[test]
fn an_upgrade_of_1_machine() {
    check("upgrade of 1", calm(1, 2), (&[UPGRADE], 1));
}

#[test]
fn another_name_of_the_endpoint_of_1_machine() {
    check("rename of 1", calm(1, 2), (&[RENAME], 1));
}

#[test]
#[ignore = "takes half a minute"]
fn another_name_of_the_endpoint() {
    check("rename", calm(3, 4), (&[RENAME], 1));
}

#[test]
#[ignore = "takes minutes"]
fn another_name_of_the_endpoint_and_an_upgrade() {
    check(
        "rename and upgrade of 1",
        calm(1, 2),
        (&[RENAME, UPGRADE], 1),
    );
}

#[test]
fn an_upgrade_and_fewer_machines() {
    check("upgrade and 3 to 1", calm(3, 4), (&[UPGRADE, scale(1)], 1));
}

#[test]
#[ignore = "takes half a minute"]
fn an_upgrade_and_more_machines() {
    check("upgrade and 1 to 3", calm(1, 4), (&[UPGRADE, scale(3)], 1));
}

#[test]
fn a_drained_host() {
    check("drain", calm(3, 4), (&[drain(0)], 1));
}

#[test]
fn a_drained_host_with_the_only_machine() {
    check("drain of 1", calm(1, 2), (&[drain(0)], 1));
}

#[test]
fn two_hosts_drained_at_once() {
    check("two drains", calm(3, 5), (&[drain(0), drain(1)], 1));
}

#[test]
fn a_frozen_member() {
    check("repair", calm(3, 4), (&[Move::Freeze(first())], 1));
}

#[test]
fn a_vm_that_a_person_deletes() {
    check("deleted VM", calm(3, 4), (&[Move::VmDeleted(first())], 1));
}

#[test]
fn a_lost_host() {
    check(
        "lost host",
        calm(3, 4),
        (&[Move::HostDies("host-1".to_owned())], 1),
    );
}

#[test]
#[ignore = "takes minutes"]
fn an_upgrade_of_5_machines_with_a_spare_host() {
    check("upgrade of 5, surge", calm(5, 6), (&[UPGRADE], 1));
}

#[test]
#[ignore = "takes minutes"]
fn an_upgrade_of_5_machines_without_a_spare_host() {
    check("upgrade of 5, delete-first", calm(5, 5), (&[UPGRADE], 1));
}

#[test]
#[ignore = "takes minutes"]
fn two_hosts_of_5_drained_at_once() {
    check("two drains of 5", calm(5, 7), (&[drain(0), drain(1)], 1));
}

#[test]
#[ignore = "takes minutes"]
fn a_lost_host_of_5() {
    check(
        "lost host of 5",
        calm(5, 6),
        (&[Move::HostDies("host-1".to_owned())], 1),
    );
}

#[test]
#[ignore = "takes minutes"]
fn two_troubles_from_3_machines_to_1() {
    check("3 to 1, two troubles", calm(3, 4), (&[scale(1)], 2));
}

#[test]
#[ignore = "takes minutes"]
fn two_troubles_from_5_machines_to_3() {
    check("5 to 3, two troubles", calm(5, 6), (&[scale(3)], 2));
}

#[test]
#[ignore = "takes minutes"]
fn two_troubles_in_an_upgrade_of_1_machine() {
    check("upgrade of 1, two troubles", calm(1, 2), (&[UPGRADE], 2));
}

#[test]
#[ignore = "takes minutes"]
fn two_troubles_while_a_host_is_drained() {
    check("drain, two troubles", calm(3, 4), (&[drain(0)], 2));
}

#[test]
#[ignore = "takes minutes"]
fn two_troubles_while_the_only_machine_moves() {
    check("drain of 1, two troubles", calm(1, 2), (&[drain(0)], 2));
}

#[test]
#[ignore = "takes minutes"]
fn two_troubles_after_a_person_deletes_a_vm() {
    let deleted = Move::VmDeleted(first());
    check("deleted VM, two troubles", calm(3, 4), (&[deleted], 2));
}
