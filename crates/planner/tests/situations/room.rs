//! Room for the loss of a host, and machines that share one.

use guestcluster_api::spec::{CapacityPolicy, CapacityScope, CoLocation};
use guestcluster_api::{GuestCluster, Reason, labels};
use guestcluster_planner::action::Kind;
use guestcluster_planner::observed::Quantity;
use guestcluster_planner::{Action, Plan};
use guestcluster_testkit::{Mishap, World, guest_infra};

use super::{ROUNDS, assert_picture, calm, prod, until_planned, world};

fn with(policy: CapacityPolicy) -> GuestCluster {
    prod().with(|spec| spec.capacity_policy = policy).build()
}

/// A world in which the loss of hosts is foreseen, with so many hosts.
fn foreseeing(cluster: GuestCluster, hosts: usize) -> World {
    let mut world = world(cluster);
    world.foresee(true);
    world.infra_mut().hosts.truncate(hosts);
    world
}

fn settled(cluster: GuestCluster, hosts: usize) -> World {
    let mut world = foreseeing(cluster, hosts);
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    world
}

#[test]
fn the_loss_of_any_host_is_survived() {
    assert_picture!("host_loss_survived", settled(with(CapacityPolicy::Warn), 4));
}

#[test]
fn three_hosts_are_too_few_for_three_machines_and_a_loss() {
    assert_picture!(
        "host_loss_not_survived",
        settled(with(CapacityPolicy::Warn), 3)
    );
    assert_picture!("capacity_ignored", settled(with(CapacityPolicy::Ignore), 3));
}

/// Hosts in two zones, in turn.
fn in_zones(cluster: GuestCluster, hosts: usize) -> World {
    let mut world = world(cluster);
    world.foresee(true);
    world.infra_mut().hosts = guest_infra(6).hosts;
    world.infra_mut().hosts.truncate(hosts);
    for (number, host) in world.infra_mut().hosts.iter_mut().enumerate() {
        let zone = format!("zone-{}", number % 2);
        host.labels.insert(labels::ZONE.to_owned(), zone);
    }
    world
}

fn settled_in_zones(scope: CapacityScope, hosts: usize) -> World {
    let cluster = prod().with(|spec| spec.capacity_scope = scope).build();
    let mut world = in_zones(cluster, hosts);
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    world
}

/// Of four hosts in two zones two are left, which are too few for three control-plane machines.
#[test]
fn the_loss_of_a_zone_is_told_where_that_is_asked() {
    let reason = |world: &World| {
        let mut all = world.status().conditions.into_iter();
        let told = all.find(|condition| condition.type_ == "CapacityAvailable");
        told.map(|condition| condition.reason)
    };
    let few = settled_in_zones(CapacityScope::Zone, 4);
    assert_eq!(reason(&few).as_deref(), Some("ZoneLossNotSurvived"));
    let capacity = few.status().capacity;
    assert_eq!(capacity.survives_host_loss, Some(true));
    assert_eq!(capacity.survives_zone_loss, Some(false));
    assert_eq!(capacity.worst_zone.as_deref(), Some("zone-0"));
    let unasked = settled_in_zones(CapacityScope::Host, 4);
    assert_eq!(reason(&unasked).as_deref(), Some("SurvivesHostLoss"));
    assert_eq!(unasked.status().capacity.survives_zone_loss, None);
    let many = settled_in_zones(CapacityScope::Zone, 6);
    assert_eq!(reason(&many).as_deref(), Some("SurvivesHostLoss"));
    assert_eq!(many.status().capacity.survives_zone_loss, Some(true));
}

#[test]
fn nothing_is_made_that_would_not_survive_a_zone_where_that_is_enforced() {
    let enforced = prod().with(|spec| {
        spec.capacity_policy = CapacityPolicy::Enforce;
        spec.capacity_scope = CapacityScope::Zone;
    });
    let mut few = in_zones(enforced.clone().build(), 4);
    few.run_until(20, |_, _| false);
    assert!(few.status().control_plane.machines.is_empty());
    let (plan, _) = few.consider();
    let told = |hold: &guestcluster_planner::action::Hold| {
        let lost = hold.message.contains("if zone zone-0 died");
        hold.reason == Reason::ZoneLossNotSurvived && lost
    };
    assert!(plan.holds.iter().any(told), "{:#?}", plan.holds);
    let mut many = in_zones(enforced.build(), 6);
    assert!(many.run_until_calm(ROUNDS), "{}", many.log());
}

#[test]
fn an_operator_that_begins_says_what_was_said_before_it() {
    for hosts in [3, 4] {
        let mut world = settled(with(CapacityPolicy::Warn), hosts);
        let before = world.status();
        world.foresee(false);
        world.run_until(20, |_, _| false);
        assert_eq!(world.status(), before);
    }
}

#[test]
fn nothing_is_made_that_would_not_survive_where_that_is_enforced() {
    let mut refused = foreseeing(with(CapacityPolicy::Enforce), 3);
    refused.run_until(20, |_, _| false);
    assert!(refused.status().control_plane.machines.is_empty());
    assert_picture!("enforce_refuses_a_guest", refused);
}

#[test]
fn a_pool_is_not_grown_beyond_what_survives() {
    let mut world = settled(with(CapacityPolicy::Enforce), 4);
    for host in &mut world.infra_mut().hosts {
        host.allocatable.insert("cpu".into(), Quantity::units(9));
    }
    world.edit(|cluster| cluster.spec.workers[0].replicas = 4);
    assert_picture!("enforce_refuses_workers", world);
}

#[test]
fn a_guest_that_is_short_already_is_repaired() {
    let mut world = settled(with(CapacityPolicy::Warn), 3);
    world.edit(|cluster| cluster.spec.capacity_policy = CapacityPolicy::Enforce);
    world.delete_vm("prod-cp-3");
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    assert_eq!(world.status().control_plane.ready, 3);
}

#[test]
fn a_rollout_without_room_for_one_more_goes_delete_first() {
    let mut world = settled(with(CapacityPolicy::Enforce), 4);
    world.edit(|cluster| cluster.spec.control_plane.machine.cpu = 5);
    until_planned(&mut world, |action| {
        matches!(action, Action::RecordDeparture { .. })
    });
    assert_picture!("enforce_rolls_delete_first", world);
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
}

#[test]
fn machines_that_share_a_host_are_moved_apart() {
    let mut world = calm(prod().build());
    world.bind("prod-cp-3", "host-1");
    assert_picture!("host_shared", world);
    let stops = |plan: &Plan| {
        let is_stop = |action: &Action| matches!(action, Action::Delete { object, .. } if object.kind == Kind::Instance);
        plan.actions.iter().any(is_stop)
    };
    assert!(
        world.run_until(ROUNDS, |_, plan| stops(plan)),
        "{}",
        world.log()
    );
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    assert!(world.broken().is_empty(), "{:?}", world.broken());
}

#[test]
fn machines_that_share_a_host_stay_where_no_other_takes_one() {
    let mut world = calm(prod().build());
    world.infra_mut().hosts.truncate(3);
    world.infra_mut().hosts[2].unschedulable = true;
    world.bind("prod-cp-3", "host-1");
    assert_picture!("host_shared_without_another", world);
}

#[test]
fn machines_that_share_a_host_stay_where_that_is_only_to_be_told() {
    let mut world = calm(prod().build());
    world.edit(|cluster| cluster.spec.repair.co_location = CoLocation::Report);
    world.bind("prod-cp-3", "host-1");
    world.reconcile(Mishap::None);
    assert_picture!("host_shared_reported", world);
}

#[test]
fn a_tenant_has_more_machines_on_a_host_than_it_may() {
    let mut world = settled(prod().build(), 4);
    world.edit(|cluster| cluster.spec.workers[0].max_per_host = Some(1));
    assert_picture!("tenant_cap_exceeded", world);
}
