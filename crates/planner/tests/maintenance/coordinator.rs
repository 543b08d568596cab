//! Machines on hosts that are being emptied, in a simulated world.

use guestcluster_api::Reason;
use guestcluster_api::host_maintenance::CapacityPolicy;
use guestcluster_planner::maintenance::{Word, word};
use guestcluster_planner::observed::{GuestPod, Probe};
use guestcluster_planner::wanted::Settings;
use guestcluster_planner::{Action, Wanted, plan};
use guestcluster_testkit::{Mishap, Step, World, cluster};
use k8s_openapi::jiff::SignedDuration;
use rstest::rstest;

const ROUNDS: u32 = 1000;

fn calm(control_plane: i32, workers: i32) -> World {
    let cluster = cluster("prod").control_plane(control_plane);
    let mut world = World::new(7, cluster.workers("general", workers).build());
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    world
}

fn host_of(world: &World, machine: &str) -> Option<String> {
    world.observe().instances.get(machine)?.host.clone()
}

fn is_empty(world: &World, host: &str) -> bool {
    let seen = world.observe();
    let mut instances = seen.instances.values();
    instances.all(|instance| instance.host.as_deref() != Some(host))
}

fn holds(world: &World, host: &str) -> bool {
    !is_empty(world, host)
}

/// Goes on for five minutes.
fn go_on(world: &mut World) {
    for _ in 0..150 {
        world.reconcile(Mishap::None);
        world.pass(1);
    }
    assert!(world.broken().is_empty(), "{:#?}", world.broken());
}

#[test]
fn a_host_that_is_emptied_is_left_by_all_and_taken_again() {
    let mut world = calm(3, 1);
    let host = host_of(&world, "prod-cp-1").unwrap();
    world.empty_host(&host, CapacityPolicy::Enforce);
    assert!(
        world.run_until(ROUNDS, |world, _| is_empty(world, &host)),
        "{}",
        world.log()
    );
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    world.end_maintenance(&host);
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    assert!(world.broken().is_empty(), "{:#?}", world.broken());
}

/// Four hosts, one of which is dead: three control-plane machines have no other host.
#[rstest]
#[case::enforced(CapacityPolicy::Enforce, false)]
#[case::warned(CapacityPolicy::Warn, true)]
#[case::ignored(CapacityPolicy::Ignore, true)]
fn a_member_without_another_host_goes_only_if_that_was_allowed(
    #[case] policy: CapacityPolicy,
    #[case] goes: bool,
) {
    let mut world = calm(3, 0);
    let free = world.observe().infra.hosts;
    let free = free.iter().position(|host| is_empty(&world, &host.name));
    world.step(Step::KillHost(free.unwrap()));
    let host = host_of(&world, "prod-cp-2").unwrap();
    world.empty_host(&host, policy);
    go_on(&mut world);
    assert_eq!(is_empty(&world, &host), goes, "{}", world.log());
    let says = word(&world.status(), "prod-cp-2");
    assert_eq!(matches!(says, Word::Stays(_)), !goes, "{says:?}");
    // A second member of that guest must wait, whoever asks.
    let other = host_of(&world, "prod-cp-1").unwrap();
    world.empty_host(&other, CapacityPolicy::Ignore);
    go_on(&mut world);
    assert_eq!(holds(&world, &other), goes, "{}", world.log());
    world.end_maintenance(&host);
    world.end_maintenance(&other);
    world.heal();
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    assert_eq!(world.running(), ["prod-cp-1", "prod-cp-2", "prod-cp-3"]);
    assert!(world.broken().is_empty(), "{:#?}", world.broken());
}

/// The only member moves if another host takes it, and otherwise only if that was allowed.
#[rstest]
#[case::another_host_takes_it(CapacityPolicy::Enforce, true, true)]
#[case::none_does(CapacityPolicy::Enforce, false, false)]
#[case::none_does_and_it_was_warned(CapacityPolicy::Warn, false, false)]
#[case::none_does_and_all_the_same(CapacityPolicy::Ignore, false, true)]
fn a_single_member_goes_where_another_host_takes_it(
    #[case] policy: CapacityPolicy,
    #[case] room: bool,
    #[case] goes: bool,
) {
    let mut world = calm(1, 0);
    let host = host_of(&world, "prod-cp-1").unwrap();
    for number in (0..4).filter(|_| !room) {
        if world.observe().infra.hosts[number].name != host {
            world.step(Step::KillHost(number));
        }
    }
    world.empty_host(&host, policy);
    go_on(&mut world);
    assert_eq!(is_empty(&world, &host), goes, "{}", world.log());
}

#[test]
fn a_maintenance_that_ends_early_brings_its_machines_back_into_service() {
    let mut world = calm(3, 0);
    let host = host_of(&world, "prod-cp-1").unwrap();
    world.empty_host(&host, CapacityPolicy::Enforce);
    let is_out = |world: &World| {
        let seen = world.observe();
        let launcher = seen.instances["prod-cp-1"].launcher.as_ref();
        launcher.is_some_and(|pod| !pod.serving)
    };
    assert!(
        world.run_until(ROUNDS, |world, _| is_out(world)),
        "{}",
        world.log()
    );
    world.end_maintenance(&host);
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    assert_eq!(host_of(&world, "prod-cp-1"), Some(host));
    assert!(!is_out(&world), "{}", world.log());
}

/// A member that etcd cannot spare, so long after KubeVirt was asked to evict it.
#[rstest]
#[case::it_was_just_asked(60, Reason::Evicted)]
#[case::it_hangs(660, Reason::EvictionStuck)]
fn an_eviction_that_costs_the_quorum_waits_and_says_how_to_call_it_off(
    #[case] age: i64,
    #[case] reason: Reason,
) {
    let world = calm(3, 0);
    let (mut seen, name) = (world.observe(), "prod-cp-1");
    let instance = seen.instances.get_mut(name).unwrap();
    instance.evicted_from = host_of(&world, name);
    instance.evicted_since = Some(world.now() - SignedDuration::from_secs(age));
    let Probe::Known(etcd) = &mut seen.etcd else {
        panic!("{:?}", seen.etcd);
    };
    let other = etcd.members.iter_mut().find(|m| m.name == "prod-cp-2");
    other.unwrap().healthy = false;
    let wanted = Wanted::parse(world.cluster().unwrap(), &Settings::default()).unwrap();
    let plan = plan(&wanted, &seen, &world.status(), world.now());
    assert!(!plan.actions.iter().any(Action::disruptive), "{plan:#?}");
    let mut holds = plan.holds.iter();
    let hold = holds.find(|hold| hold.reason == reason).unwrap();
    let says_how = hold
        .message
        .contains("virtctl evacuate-cancel vmi prod-cp-1 -n tenant-a");
    assert_eq!(says_how, reason == Reason::EvictionStuck, "{hold:?}");
}

/// Marked by a person, on a host that nobody empties any more: KubeVirt keeps its mark, and so does the
/// answer. Once the mark is taken back the machine serves again where it is.
#[test]
fn a_mark_that_is_taken_back_brings_the_machine_back_into_service() {
    let mut world = calm(3, 0);
    let host = host_of(&world, "prod-cp-1").unwrap();
    let instance = world.observe().instances["prod-cp-1"].meta.uid.clone();
    let at = world
        .observe()
        .infra
        .hosts
        .iter()
        .position(|h| h.name == host);
    world.step(Step::Drain(at.unwrap()));
    let is_out = |world: &World| {
        let seen = world.observe();
        let launcher = seen.instances["prod-cp-1"].launcher.as_ref();
        launcher.is_some_and(|pod| !pod.serving)
    };
    let ran = world.run_until(ROUNDS, |world, _| is_out(world));
    assert!(ran, "{}", world.log());
    world.step(Step::Uncordon(at.unwrap()));
    let marked = &world.observe().instances["prod-cp-1"].evicted_from;
    assert!(marked.is_some(), "uncordoning leaves the mark");
    world.cancel_eviction("prod-cp-1");
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    assert!(!is_out(&world), "{}", world.log());
    assert_eq!(world.observe().instances["prod-cp-1"].meta.uid, instance);
}

/// A worker whose Pods a budget holds, so long after it was asked to leave.
#[rstest]
#[case::it_has_just_begun(60, Reason::Evicted)]
#[case::it_hangs(660, Reason::EvictionStuck)]
fn an_eviction_that_hangs_says_how_to_call_it_off(#[case] age: i64, #[case] reason: Reason) {
    let world = calm(1, 1);
    let (mut seen, name) = (world.observe(), "prod-general-1");
    let host = host_of(&world, name).unwrap();
    seen.instances.get_mut(name).unwrap().evicted_from = Some(host);
    let Probe::Known(guest) = &mut seen.guest else {
        panic!("{:?}", seen.guest);
    };
    let node = guest.nodes.get_mut(name).unwrap();
    node.unschedulable = true;
    node.drained_since = Some(world.now() - SignedDuration::from_secs(age));
    let pod = GuestPod {
        name: "web".to_owned(),
        refused: Some("the disruption budget web".to_owned()),
        ..GuestPod::default()
    };
    guest.pods.insert(name.to_owned(), vec![pod]);
    let wanted = Wanted::parse(world.cluster().unwrap(), &Settings::default()).unwrap();
    let plan = plan(&wanted, &seen, &world.status(), world.now());
    let mut holds = plan.holds.iter();
    let hold = holds.find(|hold| hold.reason == reason).unwrap();
    assert!(hold.message.contains("disruption budget web"), "{hold:?}");
    let says_how = hold.message.contains("evacuate/cancel");
    assert_eq!(says_how, reason == Reason::EvictionStuck, "{hold:?}");
}

#[rstest]
#[case::by_a_maintenance(Step::Empty(0, 2))]
#[case::by_a_drain(Step::Drain(0))]
fn members_of_a_guest_that_is_cut_off_stay_until_it_answers(#[case] begin: Step) {
    let mut world = calm(3, 0);
    let host = world.observe().infra.hosts[0].name.clone();
    if is_empty(&world, &host) {
        world.migrate("prod-cp-1");
    }
    assert!(holds(&world, &host), "{}", world.log());
    world.step(Step::CutGuest);
    go_on(&mut world);
    world.step(begin);
    go_on(&mut world);
    assert!(holds(&world, &host), "{}", world.log());
    world.step(Step::MendGuest);
    assert!(
        world.run_until(ROUNDS, |world, _| is_empty(world, &host)),
        "{}",
        world.log()
    );
    assert!(world.broken().is_empty(), "{:#?}", world.broken());
}

#[test]
fn a_member_that_waits_for_the_only_host_that_takes_it_is_not_replaced() {
    let mut world = calm(3, 0);
    let vm = |world: &World| world.observe().vms["prod-cp-1"].meta.uid.clone();
    let before = vm(&world);
    let own = host_of(&world, "prod-cp-1");
    let hosts = world.observe().infra.hosts;
    let names = hosts.iter().map(|host| &host.name).enumerate();
    let drained: Vec<usize> = names
        .filter(|(_, host)| Some(*host) == own.as_ref() || is_empty(&world, host))
        .map(|(number, _)| number)
        .collect();
    assert_eq!(drained.len(), 2, "one spare host and its own");
    for number in &drained {
        world.step(Step::Drain(*number));
    }
    for _ in 0..12 {
        go_on(&mut world);
    }
    assert_eq!(host_of(&world, "prod-cp-1"), None, "{}", world.log());
    for number in &drained {
        world.step(Step::Uncordon(*number));
    }
    assert!(world.run_until_calm(ROUNDS), "{}", world.log());
    assert_eq!(vm(&world), before, "{}", world.log());
}
