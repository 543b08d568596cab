//! Limits of migrations, which KubeVirt keeps outside the cluster's namespace.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{calm, prod, until, until_planned, world};
use guestcluster_planner::Action;
use guestcluster_planner::action::Kind;
use guestcluster_testkit::{Fault, Mishap, World};

const POLICY: &str = "tenant-a.prod";

fn policies(world: &World) -> Vec<String> {
    let seen = world.observe().migration_policies;
    seen.into_iter().flatten().map(|(name, _)| name).collect()
}

fn is_applied(action: &Action) -> bool {
    matches!(action, Action::Apply(object) if object.kind == Kind::MigrationPolicy)
}

fn is_deleted(action: &Action) -> bool {
    matches!(action, Action::Delete { object, .. } if object.kind == Kind::MigrationPolicy)
}

fn migratable_message(world: &World) -> String {
    let conditions = world.consider().1.conditions;
    let mut told = conditions
        .into_iter()
        .filter(|c| c.type_ == "LiveMigratable");
    told.next().unwrap().message
}

#[test]
fn only_a_guest_that_can_migrate_has_limits_of_its_own() {
    assert_eq!(policies(&calm(prod().build())), Vec::<String>::new());
    assert_eq!(policies(&calm(prod().migratable().build())), [POLICY]);
}

#[test]
fn limits_follow_the_specification() {
    let mut world = calm(prod().migratable().build());
    world.edit(|cluster| {
        let migration = &mut cluster.spec.maintenance.migration;
        migration.bandwidth_per_migration = Some("256Mi".to_owned());
    });
    let (plan, _) = world.consider();
    let [Action::Apply(policy)] = &plan.actions[..] else {
        panic!("{:?}", plan.actions);
    };
    assert_eq!(policy.body["spec"]["bandwidthPerMigration"], "256Mi");
    world.reconcile(Mishap::None);
    assert!(!world.consider().0.actions.iter().any(is_applied));
    world.edit(|cluster| {
        let spec = &mut cluster.spec;
        spec.control_plane.machine.root_disk.access_mode = None;
        spec.workers[0].machine.root_disk.access_mode = None;
    });
    assert!(world.consider().0.actions.iter().any(is_deleted));
}

#[test]
fn where_kubevirt_has_no_limits_nothing_waits_for_them() {
    let mut world = world(prod().migratable().build());
    world.set(Fault::NoMigrationPolicies, true);
    assert!(world.run_until_calm(super::ROUNDS), "{}", world.log());
    assert!(!migratable_message(&world).contains("not in force"));
    world.edit(|cluster| {
        let migration = &mut cluster.spec.maintenance.migration;
        migration.bandwidth_per_migration = Some("256Mi".to_owned());
    });
    assert!(world.consider().0.actions.is_empty());
    assert!(migratable_message(&world).contains("not in force"));
}

#[test]
fn a_policy_of_somebody_else_is_left_alone_and_told_of() {
    let mut world = world(prod().migratable().build());
    world.take_name(POLICY, "nobody");
    until(&mut world, |world| world.running().len() == 4);
    assert_eq!(policies(&world), Vec::<String>::new());
    let (plan, _) = world.consider();
    let mut holds = plan.holds.iter();
    assert!(holds.any(|hold| hold.needs_person && hold.message.contains(POLICY)));
}

#[test]
fn a_deleted_guest_takes_its_limits_along() {
    let mut world = calm(prod().migratable().build());
    world.delete_cluster();
    until_planned(&mut world, is_deleted);
    until_planned(&mut world, |action| {
        matches!(action, Action::RemoveFinalizer)
    });
    assert_eq!(world.left(), Vec::<String>::new());
}
