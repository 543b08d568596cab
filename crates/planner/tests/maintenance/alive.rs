//! Machines that leave their hosts while they run.

use std::collections::BTreeSet;

use guestcluster_api::host_maintenance::CapacityPolicy;
use guestcluster_planner::Plan;
use guestcluster_planner::action::{Action, Kind};
use guestcluster_planner::observed::Progress;
use guestcluster_testkit::{Fault, Mishap, Step, World, cluster};

const ROUNDS: u32 = 1500;
const MACHINE: &str = "prod-cp-1";

fn calm(control_plane: i32, workers: i32) -> World {
    let cluster = cluster("prod").control_plane(control_plane);
    let cluster = cluster.workers("general", workers).migratable();
    let mut world = World::new(5, cluster.build());
    settle(&mut world);
    world
}

fn settle(world: &mut World) {
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    assert!(world.broken().is_empty(), "{:#?}", world.broken());
}

fn host_of(world: &World, machine: &str) -> Option<String> {
    world.observe().instances.get(machine)?.host.clone()
}

fn instance_of(world: &World, machine: &str) -> String {
    let seen = world.observe();
    seen.instances[machine].meta.uid.clone()
}

fn moves(world: &World) -> bool {
    let seen = world.observe();
    let mut migrations = seen.migrations.values();
    migrations.any(|migration| migration.progress == Progress::Moves)
}

/// Empties the host of [`MACHINE`] until `done`; says what was done meanwhile.
fn empty(world: &mut World, done: impl Fn(&World) -> bool) -> Vec<Action> {
    let host = host_of(world, MACHINE).unwrap_or_default();
    world.empty_host(&host, CapacityPolicy::Enforce);
    go_on(world, done)
}

fn go_on(world: &mut World, done: impl Fn(&World) -> bool) -> Vec<Action> {
    let (mut actions, mut is_done) = (Vec::new(), false);
    for _ in 0..ROUNDS {
        world.pass(1);
        let Plan { actions: now, .. } = world.reconcile(Mishap::None);
        actions.extend(now);
        is_done = done(world);
        if is_done {
            break;
        }
    }
    assert!(is_done, "{}", world.log());
    assert!(world.broken().is_empty(), "{:#?}", world.broken());
    actions
}

fn is_stop(action: &Action) -> bool {
    matches!(action, Action::Delete { object, .. } if object.kind == Kind::Instance)
}

#[test]
fn a_machine_that_can_moves_while_it_runs_out_of_service_and_undrained() {
    for seed in 0..20 {
        let cluster = cluster("prod").control_plane(3).workers("general", 0);
        let mut world = World::new(seed, cluster.migratable().build());
        settle(&mut world);
        let (host, instance) = (host_of(&world, MACHINE), instance_of(&world, MACHINE));
        let actions = empty(&mut world, |world| host_of(world, MACHINE) != host);
        let failed = |m: &guestcluster_planner::observed::Migration| m.progress == Progress::Failed;
        if world.observe().migrations.values().any(failed) {
            continue;
        }
        assert_eq!(instance_of(&world, MACHINE), instance, "{}", world.log());
        let drains = |action: &Action| matches!(action, Action::SetDrain { .. });
        assert!(!actions.iter().any(drains), "{actions:#?}");
        settle(&mut world);
        let pod = world.observe().instances[MACHINE].launcher.clone();
        assert!(pod.is_some_and(|pod| pod.serving));
        return;
    }
    panic!("each migration failed");
}

#[test]
fn a_machine_whose_migration_fails_is_shut_down_instead() {
    let mut world = calm(3, 1);
    world.set(Fault::MigrationsFail, true);
    let host = host_of(&world, MACHINE);
    let actions = empty(&mut world, |world| {
        let there = host_of(world, MACHINE);
        there.is_some() && there != host
    });
    assert!(actions.iter().any(is_stop), "{}", world.log());
    settle(&mut world);
}

#[test]
fn a_migration_that_does_not_end_is_called_off_and_the_machine_shut_down() {
    let mut world = calm(3, 1);
    world.set(Fault::MigrationsHang, true);
    let instance = instance_of(&world, MACHINE);
    empty(&mut world, moves);
    for _ in 0..9 {
        world.pass(60);
        world.reconcile(Mishap::None);
        assert!(moves(&world), "{}", world.log());
    }
    world.pass(120);
    let actions = go_on(&mut world, |world| !moves(world));
    let ruled_out = |action: &Action| matches!(action, Action::RuleOutMigration { .. });
    assert!(actions.iter().any(ruled_out), "{actions:#?}");
    go_on(&mut world, |world| {
        let seen = world.observe();
        let now = seen.instances.get(MACHINE);
        now.is_some_and(|now| now.meta.uid != instance && now.host.is_some())
    });
    settle(&mut world);
}

#[test]
fn a_maintenance_that_is_called_off_ends_the_migration_and_brings_the_machine_back_into_service() {
    let mut world = calm(3, 0);
    world.set(Fault::MigrationsHang, true);
    let (host, instance) = (
        host_of(&world, MACHINE).unwrap(),
        instance_of(&world, MACHINE),
    );
    empty(&mut world, moves);
    world.end_maintenance(&host);
    go_on(&mut world, |world| !moves(world));
    settle(&mut world);
    assert_eq!(instance_of(&world, MACHINE), instance);
    assert_eq!(host_of(&world, MACHINE), Some(host));
}

/// 8Gi at 4Mi a second are more than half an hour.
#[test]
fn a_machine_whose_memory_does_not_pass_in_time_is_shut_down_at_once_and_that_is_told() {
    let mut world = calm(3, 1);
    world.edit(|cluster| {
        let migration = &mut cluster.spec.maintenance.migration;
        migration.bandwidth_per_migration = Some("4Mi".to_owned());
    });
    settle(&mut world);
    let conditions = world.status().conditions.into_iter();
    let mut told = conditions.filter(|c| c.type_ == "LiveMigratable");
    let told = told.next().unwrap();
    assert_eq!((&*told.status, &*told.reason), ("False", "NotMigratable"));
    assert!(
        told.message.contains("bandwidthPerMigration"),
        "{}",
        told.message
    );
    let instance = instance_of(&world, MACHINE);
    let actions = empty(&mut world, |world| {
        let seen = world.observe();
        let now = seen.instances.get(MACHINE);
        now.is_some_and(|now| now.meta.uid != instance)
    });
    assert!(actions.iter().any(is_stop), "{}", world.log());
    assert!(world.observe().migrations.is_empty());
}

#[test]
fn a_machine_without_another_host_is_not_migrated() {
    let mut world = calm(3, 0);
    let seen = world.observe();
    let is_free = |host: &&guestcluster_planner::observed::Host| {
        let mut all = seen.instances.values();
        all.all(|instance| instance.host.as_ref() != Some(&host.name))
    };
    let free = seen.infra.hosts.iter().position(|host| is_free(&host));
    world.step(Step::KillHost(free.unwrap()));
    let host = host_of(&world, MACHINE).unwrap();
    world.empty_host(&host, CapacityPolicy::Warn);
    let actions = go_on(&mut world, |world| host_of(world, MACHINE).is_none());
    assert!(actions.iter().any(is_stop), "{}", world.log());
    assert!(world.observe().migrations.is_empty());
}

/// As another controller's, or a person's.
#[test]
fn a_move_that_somebody_else_began_is_waited_for() {
    let world = calm(3, 0);
    let mut seen = world.observe();
    let own = host_of(&world, MACHINE).unwrap();
    seen.infra.emptied = [(own.clone(), CapacityPolicy::Enforce)].into();
    let hosts = seen.infra.hosts.iter().map(|host| host.name.clone());
    let mut hosts = hosts.filter(|host| *host != own);
    let held = seen.infra.holdings.iter();
    let held = held.filter(|held| held.machine == MACHINE).cloned();
    for mut held in held.collect::<Vec<_>>() {
        held.host = hosts.next_back().unwrap();
        seen.infra.holdings.push(held);
    }
    let (plan, _) = world.consider_seeing(&seen);
    assert!(plan.actions.is_empty(), "{:#?}", plan.actions);
    let waits =
        |hold: &guestcluster_planner::action::Hold| hold.message.contains("somebody else moves it");
    assert!(plan.holds.iter().any(waits), "{:#?}", plan.holds);
}

#[test]
fn a_migration_that_ends_on_the_host_of_another_member_is_followed_by_a_move_apart() {
    let mut world = calm(3, 0);
    let emptied = host_of(&world, MACHINE);
    empty(&mut world, |world| host_of(world, MACHINE) != emptied);
    let wrong = host_of(&world, "prod-cp-2").unwrap();
    world.bind(MACHINE, &wrong);
    let are_apart = |world: &World| {
        let seen = world.observe();
        let hosts: BTreeSet<_> = seen
            .instances
            .values()
            .filter_map(|i| i.host.clone())
            .collect();
        hosts.len() == 3 && !hosts.iter().any(|host| Some(host) == emptied.as_ref())
    };
    assert!(!are_apart(&world));
    go_on(&mut world, are_apart);
    settle(&mut world);
    assert!(are_apart(&world), "{}", world.log());
}
