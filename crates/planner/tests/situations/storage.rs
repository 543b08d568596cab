//! Where etcd's disks lie.

use guestcluster_api::labels;
use guestcluster_api::spec::Disk;
use guestcluster_testkit::Fault;
use guestcluster_testkit::build::guest_infra;

use super::{Mishap, ROUNDS, World, assert_picture, calm, prod, world};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// A guest that has settled, on hosts with a label of their name, in three zones.
fn settled() -> World {
    let mut world = world(prod().build());
    world.infra_mut().hosts = guest_infra(6).hosts;
    for (number, host) in world.infra_mut().hosts.iter_mut().enumerate() {
        let zone = format!("zone-{}", number % 3);
        host.labels.insert(labels::ZONE.to_owned(), zone);
        host.labels.insert(HOSTNAME.to_owned(), host.name.clone());
    }
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    world
}

/// The volumes of the control plane's root disks can be reached from hosts with these values alone.
fn lay(world: &mut World, label: &str, values: [&str; 3]) {
    for (number, value) in values.iter().enumerate() {
        let claim = format!("prod-cp-{}-root", number + 1);
        world.lay(&claim, label, &[value]);
    }
    world.run_until(5, |_, _| false);
}

/// Status and reason of `StorageSpread`, and how many disks are lost together.
type Told = (Option<(String, String)>, Option<i32>);

fn told(world: &World) -> Told {
    let status = world.status();
    let mut all = status.conditions.into_iter();
    let condition = all.find(|c| c.type_ == "StorageSpread");
    let sharing = status.control_plane.disks_sharing_storage;
    (condition.map(|c| (c.status, c.reason)), sharing)
}

fn verdict(status: &str, reason: &str, sharing: Option<i32>) -> Told {
    (Some((status.to_owned(), reason.to_owned())), sharing)
}

#[test]
fn etcd_disks_on_one_storage_host_are_told_of_and_left_there() {
    let mut world = settled();
    lay(&mut world, HOSTNAME, ["host-1", "host-2", "host-1"]);
    assert_picture!("storage_host_shared", world);
    assert_eq!(told(&world), verdict("False", "StorageHostShared", Some(2)));
    assert!(world.is_ready(), "the guest serves");
    assert!(world.is_idle(), "nothing is moved");
}

#[test]
fn a_zone_with_the_quorum_of_etcds_disks_is_told_of() {
    let mut world = settled();
    lay(&mut world, labels::ZONE, ["zone-0", "zone-0", "zone-2"]);
    assert_picture!("storage_zone_shared", world);
    assert_eq!(told(&world), verdict("False", "StorageZoneShared", Some(2)));
}

#[test]
fn etcd_disks_apart_are_told_to_be() {
    let mut world = settled();
    lay(&mut world, HOSTNAME, ["host-1", "host-2", "host-3"]);
    assert_eq!(told(&world), verdict("True", "DisksSpread", Some(0)));
}

/// Where the control plane may run in one zone alone, its disks are not to be spread over others.
#[test]
fn zones_that_the_control_plane_may_not_use_do_not_count() {
    let mut world = settled();
    lay(&mut world, labels::ZONE, ["zone-0", "zone-0", "zone-0"]);
    for host in &mut world.infra_mut().hosts {
        if host.labels[labels::ZONE] != "zone-0" {
            host.labels.remove("kubevirt.io/schedulable");
        }
    }
    world.reconcile(Mishap::None);
    assert_eq!(told(&world), verdict("True", "DisksSpread", Some(0)));
}

#[test]
fn volumes_that_do_not_tell_where_they_lie_are_neither_healthy_nor_unhealthy() {
    let mut world = settled();
    assert_eq!(told(&world), verdict("Unknown", "StorageUnknown", None));
    assert!(world.is_ready());
    world.lay("prod-cp-1-root", HOSTNAME, &["host-1"]);
    world.lay("prod-cp-2-root", HOSTNAME, &["host-2"]);
    world.run_until(5, |_, _| false);
    assert_eq!(told(&world), verdict("Unknown", "StorageUnknown", None));
}

#[test]
fn what_was_said_of_disks_stands_while_volumes_are_not_listed() {
    let mut world = settled();
    lay(&mut world, HOSTNAME, ["host-1", "host-2", "host-1"]);
    let before = world.status();
    world.set(Fault::VolumesHidden, true);
    world.run_until(20, |_, _| false);
    assert_eq!(world.status(), before);
}

#[test]
fn the_disk_that_counts_is_the_one_that_holds_etcd() {
    let build = prod().with(|spec| {
        spec.control_plane.machine.etcd_disk = Some(Disk::default());
    });
    let mut world = calm(build.build());
    for host in &mut world.infra_mut().hosts {
        let name = host.name.clone();
        host.labels.insert(HOSTNAME.to_owned(), name);
    }
    lay(&mut world, HOSTNAME, ["host-1", "host-1", "host-1"]);
    let unknown = verdict("Unknown", "StorageUnknown", None);
    assert_eq!(told(&world), unknown, "root disks hold no etcd");
    for (number, host) in ["host-2", "host-2", "host-3"].iter().enumerate() {
        let claim = format!("prod-cp-{}-etcd", number + 1);
        world.lay(&claim, HOSTNAME, &[host]);
    }
    world.run_until(5, |_, _| false);
    assert_eq!(told(&world), verdict("False", "StorageHostShared", Some(2)));
}
