//! Histories that once went wrong, each told as one sentence.

use guestcluster_planner::machines::recorded;
use guestcluster_testkit::build::ClusterBuilder;
use guestcluster_testkit::model::VISIT;
use guestcluster_testkit::{Mishap, Move, Step, World, cluster, guest_infra};

const ROUNDS: u32 = 2400;

fn prod() -> ClusterBuilder {
    cluster("prod").control_plane(3).workers("general", 1)
}

fn calm(cluster: ClusterBuilder) -> World {
    let mut world = World::new(11, cluster.build());
    settle(&mut world);
    world
}

fn settle(world: &mut World) {
    assert!(
        world.run_until_calm(ROUNDS),
        "{:#?}\n{}",
        world.status(),
        world.log()
    );
    assert!(
        world.broken().is_empty(),
        "{:#?}\n{}",
        world.broken(),
        world.log()
    );
}

fn reach(world: &mut World, done: impl Fn(&World) -> bool) {
    assert!(
        world.run_until(ROUNDS, |world, _| done(world)),
        "{}",
        world.log()
    );
}

/// An API server answers before `kubeadm init` ends; a guest without its last add-ons, to which
/// nothing can join, must not count as one.
#[test]
fn an_init_that_is_cut_short_after_its_api_answers_is_begun_anew() {
    let mut world = World::new(11, prod().build());
    reach(&mut world, |world| world.has_node("prod-cp-1"));
    world.power_cycle("prod-cp-1");
    settle(&mut world);
    assert_eq!(
        world.running(),
        ["prod-cp-2", "prod-cp-3", "prod-cp-4", "prod-general-1"]
    );
}

#[test]
fn a_pool_that_comes_back_does_not_use_its_old_names() {
    let mut world = calm(cluster("prod").workers("general", 0));
    world.edit(|cluster| cluster.spec.workers[0].replicas = 2);
    let recorded_two = |world: &World| world.status().workers[0].last_ordinal == 2;
    reach(&mut world, recorded_two);
    let pool = world
        .cluster()
        .map(|cluster| cluster.spec.workers.clone())
        .unwrap_or_default();
    world.edit(|cluster| cluster.spec.workers.clear());
    world.reconcile(Mishap::None);
    world.edit(|cluster| cluster.spec.workers = pool);
    settle(&mut world);
    assert_eq!(
        world.running(),
        ["prod-cp-1", "prod-general-3", "prod-general-4"]
    );
}

/// Recorded ordinals alone do not tell which of them were used: with more machines missing than were
/// recorded last, an old name came up again.
#[test]
fn names_of_machines_that_failed_do_not_come_up_again_when_a_pool_grows() {
    let mut world = calm(cluster("prod").workers("general", 0));
    world.edit(|cluster| cluster.spec.workers[0].replicas = 2);
    reach(&mut world, |world| {
        world.log().contains("prod-general-2 reaches Started")
    });
    world.power_cycle("prod-general-1");
    world.power_cycle("prod-general-2");
    world.pass(5);
    world.edit(|cluster| cluster.spec.workers[0].replicas = 4);
    settle(&mut world);
}

#[test]
fn what_a_person_deletes_of_a_joined_machine_costs_it_nothing_else() {
    let mut world = calm(prod());
    let before = world.left();
    world.delete_secret("prod-cp-3-user-data");
    for _ in 0..30 {
        world.pass(1);
        world.reconcile(Mishap::None);
    }
    let lost = |name: &String| name != "Secret prod-cp-3-user-data";
    assert_eq!(
        world.left(),
        before.into_iter().filter(lost).collect::<Vec<_>>()
    );
    assert!(
        world.is_ready() && world.broken().is_empty(),
        "{}",
        world.log()
    );
}

/// Nothing can be asked of a guest without control plane: its machines come back unasked.
#[test]
fn all_vms_that_a_person_deleted_come_back_on_their_disks() {
    let mut world = calm(prod());
    let machines = world.running();
    world.step(Step::CutGuest);
    for _ in 0..5 {
        world.reconcile(Mishap::None);
    }
    for machine in &machines {
        world.delete_vm(machine);
    }
    for _ in 0..60 {
        world.pass(1);
        world.reconcile(Mishap::None);
    }
    assert_eq!(world.running(), machines, "{}", world.log());
    world.step(Step::MendGuest);
    settle(&mut world);
}

#[test]
fn a_learner_is_gone_before_the_next_machine_joins() {
    let mut world = World::new(11, prod().build());
    reach(&mut world, |world| world.learner() == Some("prod-cp-2"));
    world.power_cycle("prod-cp-2");
    settle(&mut world);
    assert_eq!(world.learner(), None);
    assert!(!world.running().contains(&"prod-cp-2".to_owned()));
}

/// A learner without a machine would block every later join, and nobody would start it.
#[test]
fn a_learner_whose_machine_a_person_erased_is_taken_out() {
    let mut world = World::new(11, prod().build());
    reach(&mut world, |world| world.learner() == Some("prod-cp-2"));
    world.erase("prod-cp-2");
    settle(&mut world);
    assert_eq!(
        world.running(),
        ["prod-cp-1", "prod-cp-3", "prod-cp-4", "prod-general-1"]
    );
}

/// Its kubelet may still enter by itself, and it would be one too many if it had a successor.
#[test]
fn a_voter_whose_join_was_cut_short_comes_back_without_a_successor() {
    let mut world = World::new(11, prod().build());
    let voter = |world: &World| world.votes("prod-cp-2") && !world.has_node("prod-cp-2");
    reach(&mut world, voter);
    world.power_cycle("prod-cp-2");
    settle(&mut world);
    assert_eq!(
        world.running(),
        ["prod-cp-1", "prod-cp-2", "prod-cp-3", "prod-general-1"]
    );
}

#[test]
fn a_guest_with_fewer_hosts_than_machines_comes_to_rest() {
    let mut world = World::new(11, cluster("prod").control_plane(5).build());
    for _ in 0..300 {
        world.pass(1);
        world.reconcile(Mishap::None);
    }
    let ready = recorded(&world.status())
        .filter(|machine| machine.phase == "Ready")
        .count();
    assert_eq!(ready, 3, "{}", world.log());
    assert!(world.is_idle());
    let (plan, _) = world.consider();
    assert!(
        matches!(plan.requeue, guestcluster_planner::Requeue::At(at, _)
        if at.duration_since(world.now()).as_secs() >= 60)
    );
}

#[test]
fn hosts_that_are_down_for_a_while_make_no_machine_and_take_none_away() {
    let mut world = calm(prod());
    let before = world.left();
    for host in 0..4 {
        world.step(Step::KillHost(host));
    }
    for _ in 0..50 {
        world.reconcile(Mishap::None);
        world.pass(1);
    }
    let instance = |name: &String| !name.starts_with("VirtualMachineInstance");
    let kept = |names: Vec<String>| names.into_iter().filter(instance).collect::<Vec<_>>();
    assert_eq!(kept(world.left()), kept(before));
    world.heal_hosts();
    settle(&mut world);
}

/// A calm control plane without pod network on as many hosts, to go on in single moves.
fn in_moves(machines: i32, hosts: u32) -> World {
    let cluster = cluster("prod").control_plane(machines).without_cni();
    let mut world = World::new(11, cluster.build());
    world.infra_mut().hosts = guest_infra(hosts).hosts;
    settle(&mut world);
    world.in_moves()
}

fn visits(world: &mut World, times: usize) {
    for _ in 0..times {
        world.take(&VISIT);
    }
}

/// Its document was written and its VM was not: the next machine took itself for the only one that
/// joins, and waited in the guest with its kubelet running.
#[test]
fn a_machine_that_has_its_document_joins_before_the_next_one() {
    let mut world = in_moves(1, 4);
    world.step(Step::Scale(3));
    visits(&mut world, 2);
    world.take(&Move::Reconcile(Mishap::Crash(1)));
    visits(&mut world, 2);
    let vms = world
        .left()
        .into_iter()
        .filter(|name| name.starts_with("VirtualMachine "));
    assert_eq!(
        vms.collect::<Vec<_>>(),
        ["VirtualMachine prod-cp-1", "VirtualMachine prod-cp-2"],
        "{}",
        world.log()
    );
    settle(&mut world);
}

/// One machine that is upgraded, and its successor votes without a Node: its token lapsed while the
/// operator was away.
fn with_a_voter_cut_short() -> World {
    let mut world = in_moves(1, 2);
    world.step(Step::Upgrade(4));
    visits(&mut world, 3);
    let joins = "prod-cp-2".to_owned();
    world.take(&Move::On(joins.clone()));
    world.take(&Move::Boot(joins.clone()));
    world.take(&Move::LongBoot);
    visits(&mut world, 1);
    world.take(&Move::Boot(joins));
    assert!(world.votes("prod-cp-2") && !world.has_node("prod-cp-2"));
    world
}

/// It was to be left to come back by itself, and without its VM it could not: etcd had no quorum without
/// it, and a person was asked for although its disk was there.
#[test]
fn a_voter_that_was_given_up_and_lost_its_vm_comes_back_for_its_vote() {
    let mut world = with_a_voter_cut_short();
    visits(&mut world, 1);
    world.delete_vm("prod-cp-2");
    world.take(&Move::Off("prod-cp-2".to_owned()));
    settle(&mut world);
    assert_eq!(world.running().len(), 1, "{}", world.log());
}

/// Between the old machine and the new one its host is free: a fourth machine was made for it, found
/// no host in the end, and everything waited for it.
#[test]
fn a_host_that_a_machine_leaves_is_no_spare_host() {
    let mut world = in_moves(3, 3);
    world.step(Step::Upgrade(4));
    settle(&mut world);
    assert_eq!(world.running(), ["prod-cp-4", "prod-cp-5", "prod-cp-6"]);
}

/// The drain waited for the lost machine, and the lost machine for the drain.
#[test]
fn a_lost_machine_is_replaced_while_a_host_waits_to_be_drained() {
    let mut world = in_moves(3, 4);
    world.step(Step::Drain(0));
    world.delete_vm("prod-cp-2");
    settle(&mut world);
    assert_eq!(world.running(), ["prod-cp-1", "prod-cp-3", "prod-cp-4"]);
}

/// A machine that etcd does not count any more waited for one that was lost, and that one for it.
#[test]
fn a_machine_that_is_out_of_etcd_goes_whatever_becomes_of_the_others() {
    let mut world = in_moves(5, 6);
    world.step(Step::Scale(3));
    reach(&mut world, |world| !world.votes("prod-cp-1"));
    world.delete_vm("prod-cp-2");
    world.take(&Move::Off("prod-cp-2".to_owned()));
    settle(&mut world);
    assert_eq!(world.running(), ["prod-cp-3", "prod-cp-4", "prod-cp-5"]);
}

/// Of two members one could never be spared if its successor counted as one that does not answer.
#[test]
fn a_voter_that_cannot_enter_any_more_is_replaced_where_there_is_one_other() {
    let mut world = with_a_voter_cut_short();
    settle(&mut world);
    assert_eq!(world.running(), ["prod-cp-3"]);
}

/// The kubeconfig, joins and kube-proxy follow a new name once the whole control plane vouches for it,
/// and every machine is replaced once.
#[test]
fn a_new_name_of_the_endpoint_costs_each_machine_one_replacement() {
    let mut world = calm(prod());
    world.step(Step::Rename(1));
    settle(&mut world);
    let seen = world.observe();
    let server = seen.guest.known().and_then(|guest| guest.server.clone());
    assert_eq!(server.as_deref(), Some("api-1.example.com:6443"));
    assert_eq!(
        world.running(),
        ["prod-cp-4", "prod-cp-5", "prod-cp-6", "prod-general-2"]
    );
    assert_eq!(world.log().matches("MintKubeconfig").count(), 2);
    assert_eq!(world.log().matches("MoveEndpoint").count(), 1);
}

/// A name that was taken back before it was in use costs nothing more.
#[test]
fn a_name_that_is_taken_back_leaves_the_endpoint_where_it_was() {
    let mut world = calm(prod());
    let before = world
        .observe()
        .guest
        .known()
        .and_then(|guest| guest.server.clone());
    world.step(Step::Rename(1));
    reach(&mut world, |world| world.votes("prod-cp-4"));
    world.edit(|cluster| cluster.spec.control_plane.endpoint.host = None);
    settle(&mut world);
    let after = world
        .observe()
        .guest
        .known()
        .and_then(|guest| guest.server.clone());
    assert_eq!(after, before);
    assert!(!world.log().contains("MoveEndpoint"), "{}", world.log());
}

/// The others have no VM yet, and before it has joined nothing else tells it from them.
#[test]
fn the_machine_that_begins_a_control_plane_is_not_the_one_too_many() {
    let mut world = World::new(11, cluster("prod").control_plane(3).build());
    reach(&mut world, |world| !world.observe().instances.is_empty());
    world.step(Step::Scale(1));
    for _ in 0..40 {
        let (plan, _) = world.consider();
        let leaves = |left: &std::collections::BTreeMap<_, _>| left.contains_key("prod-cp-1");
        assert!(!plan.departures.iter().any(leaves), "{}", world.log());
        world.pass(1);
        world.reconcile(Mishap::None);
    }
    settle(&mut world);
    assert_eq!(world.running(), ["prod-cp-1"]);
}
