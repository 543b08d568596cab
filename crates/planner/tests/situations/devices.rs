//! Machines that hold devices of their hosts.

use guestcluster_api::Reason;
use guestcluster_api::host_maintenance::CapacityPolicy;
use guestcluster_api::spec::{Device, DeviceKind};
use guestcluster_planner::action::Kind;
use guestcluster_planner::observed::Quantity;
use guestcluster_planner::{Action, Plan};
use guestcluster_testkit::build::ClusterBuilder;
use guestcluster_testkit::{Mishap, World, cluster};

use super::{ROUNDS, assert_picture, world};

const GPU: &str = "nvidia.com/GA102GL_A10";
const MACHINE: &str = "prod-gpu-1";

/// Machines that can all migrate, but for one that holds a GPU.
fn prod() -> ClusterBuilder {
    let cluster = cluster("prod").control_plane(3).workers("gpu", 1);
    cluster.migratable().with(|spec| {
        spec.workers[0].devices = vec![Device {
            device_name: GPU.to_owned(),
            kind: DeviceKind::Gpu,
            count: 1,
        }];
    })
}

/// A world whose first hosts offer so many GPUs.
fn with_gpus(gpus: &[u64]) -> World {
    let mut world = world(prod().build());
    world.foresee(true);
    for (host, number) in world.infra_mut().hosts.iter_mut().zip(gpus) {
        host.allocatable
            .insert(GPU.into(), Quantity::units(*number));
    }
    world
}

fn calm(gpus: &[u64]) -> World {
    let mut world = with_gpus(gpus);
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    world
}

fn host_of(world: &World) -> Option<String> {
    world.observe().instances.get(MACHINE)?.host.clone()
}

/// Status, reason and message.
fn condition(world: &World, type_: &str) -> (String, String, String) {
    let mut all = world.status().conditions.into_iter();
    let found = all.find(|condition| condition.type_ == type_);
    found.map_or_else(Default::default, |c| (c.status, c.reason, c.message))
}

fn migrates(action: &Action) -> bool {
    let of_machine = |name: &str| name.starts_with(MACHINE);
    matches!(action, Action::Create(object) if object.kind == Kind::Migration && of_machine(&object.name))
}

#[test]
fn a_condition_says_what_devices_cost() {
    let (status, reason, message) = condition(&calm(&[1, 1]), "LiveMigratable");
    assert_eq!((&*status, &*reason), ("False", "NotMigratable"));
    assert_eq!(
        message,
        "machines of pool gpu (nvidia.com/GA102GL_A10) hold devices of their hosts and never move \
         while they run: where a host is emptied, they are shut down and start on another one that \
         has such devices free. Other machines can move"
    );
}

#[test]
fn a_machine_with_devices_is_shut_down_and_starts_where_such_a_device_is_free() {
    let mut world = calm(&[1, 1]);
    let own = host_of(&world).unwrap_or_default();
    world.empty_host(&own, CapacityPolicy::Enforce);
    let is_moved = |world: &World| host_of(world).is_some_and(|host| host != own);
    let ended = world.run_until(ROUNDS, |world, plan: &Plan| {
        plan.actions.iter().any(migrates) || is_moved(world)
    });
    assert!(ended && is_moved(&world), "{}", world.log());
    assert!(
        ["host-1", "host-2"]
            .map(String::from)
            .contains(&host_of(&world).unwrap_or_default())
    );
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
}

/// Whatever a later KubeVirt says of it.
#[test]
fn a_machine_with_devices_is_not_migrated_even_if_it_is_said_to_be_migratable() {
    let mut world = calm(&[1, 1]);
    let own = host_of(&world).unwrap_or_default();
    world.empty_host(&own, CapacityPolicy::Enforce);
    let mut seen = world.observe();
    for instance in seen.instances.values_mut() {
        instance.migratable = guestcluster_planner::observed::Migratable::Yes;
    }
    let (plan, _) = world.consider_seeing(&seen);
    assert!(!plan.actions.iter().any(migrates), "{:#?}", plan.actions);
    let drains =
        |action: &Action| matches!(action, Action::SetDrain { node, .. } if node == MACHINE);
    assert!(plan.actions.iter().any(drains), "{:#?}", plan.actions);
}

#[test]
fn a_machine_stays_where_no_other_host_has_its_device_free() {
    let mut world = calm(&[1]);
    let own = host_of(&world).unwrap_or_default();
    world.empty_host(&own, CapacityPolicy::Enforce);
    world.run_until(50, |_, _| false);
    assert_eq!(host_of(&world), Some(own));
    let (plan, _) = world.consider();
    let stays = |hold: &guestcluster_planner::action::Hold| {
        let named = hold
            .message
            .contains(&format!("has 0 {GPU} in all, the machine needs 1"));
        hold.reason == Reason::NoOtherHost && hold.message.starts_with(MACHINE) && named
    };
    assert!(plan.holds.iter().any(stays), "{:#?}", plan.holds);
}

#[test]
fn the_loss_of_the_only_host_with_a_device_is_foreseen() {
    let (status, reason, message) = condition(&calm(&[1]), "CapacityAvailable");
    assert_eq!((&*status, &*reason), ("False", "HostLossNotSurvived"));
    assert!(
        message.contains(&format!("tenant-a/{MACHINE} would find no host")),
        "{message}"
    );
    assert!(message.contains(&format!("1 {GPU}")), "{message}");
    let (status, ..) = condition(&calm(&[1, 1]), "CapacityAvailable");
    assert_eq!(status, "True");
}

#[test]
fn a_device_that_no_host_offers_is_named() {
    let mut world = with_gpus(&[]);
    world.run_until(ROUNDS, |world, _| {
        let instance = &world.observe().instances;
        instance
            .get(MACHINE)
            .is_some_and(|one| one.unschedulable.is_some())
    });
    world.reconcile(Mishap::None);
    let (status, reason, message) = condition(&world, "PlacementHealthy");
    assert_eq!((&*status, &*reason), ("False", "Unschedulable"));
    assert!(
        message.contains(&format!("no host offers {GPU}")),
        "{message}"
    );
}

#[test]
fn a_pool_whose_devices_are_all_held_rolls_delete_first() {
    let mut world = calm(&[1]);
    world.edit(|cluster| {
        let pool = &mut cluster.spec.workers[0];
        pool.machine.cpu = 5;
        pool.rollout.max_unavailable = 1;
    });
    world.reconcile(Mishap::None);
    assert_picture!("devices_roll_delete_first", world);
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    assert_eq!(condition(&world, "UpToDate").0, "True");
}
