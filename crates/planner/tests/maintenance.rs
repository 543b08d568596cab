//! What a HostMaintenance does and says, situation by situation.

#[path = "maintenance/alive.rs"]
mod alive;
#[path = "maintenance/coordinator.rs"]
mod coordinator;

use guestcluster_api::host_maintenance::{
    CapacityPolicy, HostMaintenanceStatus, MaintenancePhase as Phase, MaintenanceState as State,
};
use guestcluster_api::{HostMaintenance, HostMaintenanceSpec};
use guestcluster_planner::foresight::Foresight;
use guestcluster_planner::maintenance::{
    Action, Node, Plan, Request, Seat, Seen, Word, emptied, plan,
};
use guestcluster_testkit::build::start;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use rstest::rstest;

fn request() -> Request {
    Request {
        name: "firmware".to_owned(),
        generation: 1,
        host: "host-1".to_owned(),
        finalizer: true,
        ..Request::default()
    }
}

fn node() -> Node {
    Node {
        uid: "u".to_owned(),
        ..Node::default()
    }
}

fn cordoned() -> Node {
    Node {
        unschedulable: true,
        cordoned_by: Some("firmware".to_owned()),
        ..node()
    }
}

fn seen() -> Seen {
    Seen {
        node: Some(node()),
        foresight: Foresight::Fits,
        machines: vec![seat("a-cp-1")],
        ..Seen::default()
    }
}

/// A machine that runs on the host.
fn seat(name: &str) -> Seat {
    Seat {
        namespace: "tenant-a".to_owned(),
        guest: "a".to_owned(),
        name: name.to_owned(),
        role: "control-plane".to_owned(),
        launcher: true,
        exists: true,
        host: Some("host-1".to_owned()),
        running: true,
        ..Seat::default()
    }
}

/// The same on another host.
fn elsewhere(name: &str) -> Seat {
    Seat {
        launcher: false,
        host: Some("host-2".to_owned()),
        ..seat(name)
    }
}

fn short() -> Foresight {
    Foresight::Short {
        homeless: vec!["tenant-a/a-cp-1".to_owned()],
        why: "host-2 has no room".to_owned(),
        cure: Some("add a host".to_owned()),
    }
}

fn draining() -> HostMaintenanceStatus {
    HostMaintenanceStatus {
        phase: Some(Phase::Draining),
        ..HostMaintenanceStatus::default()
    }
}

fn planned(request: &Request, seen: &Seen, previous: &HostMaintenanceStatus) -> Plan {
    let first = plan(request, seen, previous, start());
    assert_eq!(first, plan(request, seen, previous, start()), "same input");
    first
}

fn status(plan: &Plan) -> HostMaintenanceStatus {
    plan.status.clone().unwrap_or_default()
}

/// Status and reason of a condition.
fn condition(plan: &Plan, type_: &str) -> (String, String, String) {
    let all = status(plan).conditions.into_iter();
    let mut found = all.filter(|c| c.type_ == type_);
    let found = found.next().map(|c| (c.status, c.reason, c.message));
    found.unwrap_or_default()
}

#[rstest]
#[case::enforced_and_fits(CapacityPolicy::Enforce, Foresight::Fits, Phase::Draining, "Draining")]
#[case::enforced_and_short(CapacityPolicy::Enforce, short(), Phase::Blocked, "CapacityShort")]
#[case::enforced_and_no_answer_found(
    CapacityPolicy::Enforce,
    Foresight::NotKnown,
    Phase::Pending,
    "CapacityUnknown"
)]
#[case::enforced_and_not_asked(
    CapacityPolicy::Enforce,
    Foresight::NotAsked,
    Phase::Pending,
    "CapacityUnknown"
)]
#[case::warned_and_short(CapacityPolicy::Warn, short(), Phase::Draining, "Draining")]
#[case::warned_and_no_answer_found(
    CapacityPolicy::Warn,
    Foresight::NotKnown,
    Phase::Draining,
    "Draining"
)]
#[case::warned_and_not_asked(
    CapacityPolicy::Warn,
    Foresight::NotAsked,
    Phase::Pending,
    "CapacityUnknown"
)]
#[case::ignored(
    CapacityPolicy::Ignore,
    Foresight::NotAsked,
    Phase::Draining,
    "Draining"
)]
fn a_host_is_touched_only_once_the_policy_allows_it(
    #[case] policy: CapacityPolicy,
    #[case] foresight: Foresight,
    #[case] phase: Phase,
    #[case] reason: &str,
) {
    let request = Request {
        policy,
        ..request()
    };
    let seen = Seen {
        foresight,
        ..seen()
    };
    let plan = planned(&request, &seen, &HostMaintenanceStatus::default());
    assert_eq!(status(&plan).phase, Some(phase));
    assert_eq!(condition(&plan, "Ready").1, reason);
    let cordons = plan.actions
        == [Action::Cordon {
            uid: "u".to_owned(),
        }];
    assert_eq!(cordons, phase == Phase::Draining, "{:?}", plan.actions);
    assert!(plan.look_again.is_some(), "it looks again by itself");
}

#[test]
fn a_host_that_is_too_much_missed_is_named_with_machines_and_cure() {
    let seen = Seen {
        foresight: short(),
        ..seen()
    };
    let plan = planned(&request(), &seen, &HostMaintenanceStatus::default());
    let (status, _, message) = condition(&plan, "Stalled");
    assert_eq!(status, "True");
    for word in [
        "host-1",
        "tenant-a/a-cp-1",
        "host-2 has no room",
        "add a host",
    ] {
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn what_has_begun_goes_on_whatever_the_fleet_looks_like_now() {
    let seen = Seen {
        node: Some(cordoned()),
        foresight: short(),
        ..seen()
    };
    // Status may have been lost; the cordon tells as well.
    for previous in [draining(), HostMaintenanceStatus::default()] {
        let plan = planned(&request(), &seen, &previous);
        assert_eq!(status(&plan).phase, Some(Phase::Draining));
        assert!(plan.actions.is_empty());
    }
}

#[test]
fn the_oldest_maintenance_of_a_host_has_it() {
    let seen = Seen {
        before: Some("kernel".to_owned()),
        ..seen()
    };
    let plan = planned(&request(), &seen, &HostMaintenanceStatus::default());
    assert_eq!(status(&plan).phase, Some(Phase::Pending));
    assert!(condition(&plan, "Ready").2.contains("kernel"));
    assert!(plan.actions.is_empty() && status(&plan).machines.is_empty());
}

#[test]
fn a_host_that_does_not_exist_stalls() {
    let seen = Seen {
        node: None,
        ..seen()
    };
    let plan = planned(&request(), &seen, &HostMaintenanceStatus::default());
    assert_eq!(condition(&plan, "Stalled").1, "HostNotFound");
}

#[test]
fn the_finalizer_comes_before_the_cordon() {
    let request = Request {
        finalizer: false,
        ..request()
    };
    let plan = planned(&request, &seen(), &HostMaintenanceStatus::default());
    assert_eq!(plan.actions, [Action::AddFinalizer]);
    assert_eq!(plan.status, None, "nothing is said before it is safe");
}

#[rstest]
#[case::ours(cordoned(), vec![Action::Uncordon { uid: "u".to_owned() }, Action::RemoveFinalizer])]
#[case::a_persons(
    Node { unschedulable: true, ..node() },
    vec![Action::RemoveFinalizer]
)]
#[case::anothers(
    Node { cordoned_by: Some("kernel".to_owned()), ..cordoned() },
    vec![Action::RemoveFinalizer]
)]
fn an_end_uncordons_only_what_it_cordoned(#[case] node: Node, #[case] actions: Vec<Action>) {
    let request = Request {
        deleting: true,
        ..request()
    };
    let seen = Seen {
        node: Some(node),
        ..seen()
    };
    assert_eq!(planned(&request, &seen, &draining()).actions, actions);
}

#[rstest]
#[case::a_person_uncordoned_it(Node { unschedulable: false, ..cordoned() }, true)]
#[case::a_person_cordoned_it_first(Node { unschedulable: true, ..node() }, false)]
#[case::a_maintenance_that_has_ended_cordoned_it(
    Node { cordoned_by: Some("kernel".to_owned()), ..cordoned() },
    true
)]
#[case::as_it_should_be(cordoned(), false)]
fn a_host_stays_cordoned_while_it_is_wanted_empty(#[case] node: Node, #[case] acts: bool) {
    let seen = Seen {
        node: Some(node),
        ..seen()
    };
    let plan = planned(&request(), &seen, &draining());
    assert_eq!(plan.actions.len(), usize::from(acts), "{:?}", plan.actions);
}

#[rstest]
#[case::its_turn_has_not_come(seat("a-cp-1"), State::Waiting)]
#[case::it_leaves(Seat { word: Word::Leaves, ..seat("a-cp-1") }, State::Leaving)]
#[case::it_waits_for_pods(
    Seat { word: Word::Waits("2 Pods".to_owned()), ..seat("a-cp-1") },
    State::Leaving
)]
#[case::no_other_host_takes_it(
    Seat { word: Word::Stays("full".to_owned()), ..seat("a-cp-1") },
    State::Stuck
)]
#[case::its_instance_stops(Seat { stopping: true, ..seat("a-cp-1") }, State::Leaving)]
#[case::it_runs_elsewhere_and_its_old_launcher_is_there_still(
    Seat { launcher: true, ..elsewhere("a-cp-1") },
    State::Leaving
)]
#[case::it_runs_elsewhere(elsewhere("a-cp-1"), State::Moved)]
#[case::it_starts_elsewhere(Seat { running: false, ..elsewhere("a-cp-1") }, State::Starting)]
#[case::no_host_takes_it_now(
    Seat { host: None, running: false, unschedulable: Some("0/4 nodes".to_owned()), ..elsewhere("a-cp-1") },
    State::NoHost
)]
#[case::its_guest_is_gone(
    Seat { exists: false, host: None, running: false, ..elsewhere("a-cp-1") },
    State::Gone
)]
fn a_machine_has_moved_when_no_launcher_of_it_is_left(#[case] seat: Seat, #[case] state: State) {
    let seen = Seen {
        node: Some(cordoned()),
        machines: vec![seat],
        ..seen()
    };
    let plan = planned(&request(), &seen, &draining());
    assert_eq!(status(&plan).machines[0].state, state);
    let done = matches!(state, State::Moved | State::Gone | State::NoHost);
    assert_eq!(status(&plan).phase == Some(Phase::Done), done);
    assert_eq!(condition(&plan, "Ready").0 == "True", done);
    let stuck = state == State::Stuck;
    assert_eq!(condition(&plan, "Stalled").0 == "True", stuck);
}

#[test]
fn an_empty_host_is_done_tells_of_strangers_and_is_not_looked_at_again() {
    let seen = Seen {
        node: Some(cordoned()),
        machines: vec![elsewhere("a-cp-1"), elsewhere("b-cp-1")],
        foreign: 1,
        ..seen()
    };
    let first = planned(&request(), &seen, &draining());
    assert_eq!(status(&first).summary.as_deref(), Some("2/2 moved"));
    assert_eq!(status(&first).machines[0].to.as_deref(), Some("host-2"));
    assert!(condition(&first, "Ready").2.contains("1 virtual machine"));
    assert_eq!((first.actions.len(), first.look_again), (0, None));
    let later = start() + SignedDuration::from_hours(1);
    let again = plan(&request(), &seen, &status(&first), later);
    assert_eq!(again.status, first.status, "time alone changes nothing");
}

#[test]
fn a_deadline_is_told_of_and_forces_nothing() {
    let request = Request {
        deadline: Some(start() + SignedDuration::from_secs(60)),
        ..request()
    };
    let seen = Seen {
        node: Some(cordoned()),
        ..seen()
    };
    let before = plan(&request, &seen, &draining(), start());
    assert_eq!(condition(&before, "Overdue").0, "False");
    let late = start() + SignedDuration::from_secs(60);
    let after = plan(&request, &seen, &status(&before), late);
    assert_eq!(condition(&after, "Overdue").0, "True");
    assert_eq!(after.actions, before.actions);
}

#[test]
fn a_pause_begins_nothing_and_does_not_count_as_a_beginning() {
    let paused = Request {
        paused: true,
        ..request()
    };
    let first = planned(&paused, &seen(), &HostMaintenanceStatus::default());
    assert_eq!(status(&first).phase, Some(Phase::Paused));
    assert!(first.actions.is_empty() && status(&first).machines.is_empty());
    let short = Seen {
        foresight: short(),
        ..seen()
    };
    let then = planned(&request(), &short, &status(&first));
    assert_eq!(status(&then).phase, Some(Phase::Blocked));
}

#[rstest]
#[case::it_drains(Phase::Draining, false, true)]
#[case::it_is_kept_empty(Phase::Done, false, true)]
#[case::it_is_paused(Phase::Draining, true, false)]
#[case::it_may_not_begin(Phase::Blocked, false, false)]
fn guests_leave_a_host_while_its_maintenance_says_so(
    #[case] phase: Phase,
    #[case] paused: bool,
    #[case] counts: bool,
) {
    let spec = HostMaintenanceSpec {
        node_name: "host-1".to_owned(),
        reason: None,
        deadline: None,
        paused,
        capacity_policy: CapacityPolicy::Warn,
    };
    let mut object = HostMaintenance::new("firmware", spec);
    object.status = Some(HostMaintenanceStatus {
        phase: Some(phase),
        ..HostMaintenanceStatus::default()
    });
    let all = emptied([&object].into_iter());
    assert_eq!(all.contains_key("host-1"), counts, "{all:?}");
    object.metadata.deletion_timestamp = Some(Time(start()));
    assert!(emptied([&object].into_iter()).is_empty(), "it ends");
}
