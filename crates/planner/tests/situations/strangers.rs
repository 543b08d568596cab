//! What the world of the test kit does not play by itself: members that a person adds to etcd, a dead
//! endpoint, machines in a person's hands.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use guestcluster_api::GuestClusterStatus;
use guestcluster_planner::Action;
use guestcluster_planner::observed::{EtcdMember, Observed, Probe};
use guestcluster_testkit::World;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::SignedDuration;
use rstest::rstest;

use super::{calm, prod};

const ID: u64 = 0xbad;

/// Sees one more member of etcd, which does not answer.
fn with_member(world: &World, name: &str, learner: bool) -> Observed {
    let mut seen = world.observe();
    if let Probe::Known(etcd) = &mut seen.etcd {
        etcd.members.push(EtcdMember {
            id: ID,
            name: name.to_owned(),
            peer_urls: vec!["https://192.0.2.1:2380".to_owned()],
            learner,
            healthy: false,
        });
    }
    seen
}

fn removed(actions: &[Action]) -> Vec<u64> {
    let id = |action: &Action| match action {
        Action::RemoveEtcdMember { id, .. } => Some(*id),
        _ => None,
    };
    actions.iter().filter_map(id).collect()
}

#[rstest]
#[case::a_learner("", true, &[ID])]
#[case::a_voter_that_never_started("", false, &[ID])]
#[case::a_voter_of_a_machine_that_is_gone("prod-cp-9", false, &[ID])]
#[case::a_voter_that_somebody_runs("theirs", false, &[])]
fn a_member_without_a_machine_is_taken_out(
    #[case] name: &str,
    #[case] learner: bool,
    #[case] gone: &[u64],
) {
    let world = calm(prod().build());
    let (plan, _) = world.consider_seeing(&with_member(&world, name, learner));
    assert_eq!(removed(&plan.actions), gone);
}

#[test]
fn a_voter_without_a_machine_stays_while_the_others_are_no_quorum_without_it() {
    let world = calm(prod().build());
    let mut seen = with_member(&world, "", false);
    if let Probe::Known(etcd) = &mut seen.etcd {
        etcd.members
            .iter_mut()
            .skip(2)
            .for_each(|m| m.healthy = false);
    }
    let (plan, _) = world.consider_seeing(&seen);
    assert!(removed(&plan.actions).is_empty(), "{:?}", plan.actions);
}

fn condition<'a>(status: &'a GuestClusterStatus, type_: &str) -> &'a Condition {
    let mut conditions = status.conditions.iter();
    conditions.find(|c| c.type_ == type_).unwrap()
}

/// The worker's Node is not ready, and has not been for an hour.
fn with_silent_worker(world: &mut World) -> Observed {
    let hour_ago = world.now() - SignedDuration::from_hours(1);
    world.edit(|cluster| {
        let status = cluster.status.as_mut().unwrap();
        let worker = &mut status.workers[0].machines[0];
        "Unhealthy".clone_into(&mut worker.phase);
        worker.unhealthy_since = Some(Time(hour_ago));
    });
    let mut seen = world.observe();
    if let Probe::Known(guest) = &mut seen.guest {
        guest.nodes.get_mut("prod-general-1").unwrap().ready = false;
    }
    seen
}

fn leaves(actions: &[Action]) -> bool {
    let leaves = |action: &Action| matches!(action, Action::RecordDeparture { .. });
    actions.iter().any(leaves)
}

/// Its successor could not even join.
#[test]
fn a_worker_behind_a_dead_endpoint_is_not_replaced() {
    let mut world = calm(prod().build());
    let mut seen = with_silent_worker(&mut world);
    seen.endpoint = Probe::Known(());
    let (plan, _) = world.consider_seeing(&seen);
    assert!(leaves(&plan.actions), "{:?}", plan.actions);
    seen.endpoint = Probe::Unreachable("no answer".to_owned());
    let (plan, status) = world.consider_seeing(&seen);
    assert!(!leaves(&plan.actions), "{:?}", plan.actions);
    let since = &status.workers[0].machines[0].unhealthy_since;
    assert_eq!(*since, None, "its time begins when the endpoint is back");
    let endpoint = condition(&status, "EndpointReady");
    assert_eq!(
        (&*endpoint.status, &*endpoint.reason),
        ("Unknown", "EndpointUnreachable")
    );
    let ready = condition(&status, "Ready");
    assert_eq!(ready.status, "False");
}

#[test]
fn an_endpoint_that_the_operator_alone_does_not_reach_is_no_trouble_of_the_guest() {
    let world = calm(prod().build());
    let mut seen = world.observe();
    seen.endpoint = Probe::Unreachable("no answer".to_owned());
    let (_, status) = world.consider_seeing(&seen);
    assert_eq!(condition(&status, "EndpointReady").status, "Unknown");
    assert_eq!(condition(&status, "Ready").status, "True");
}

#[test]
fn status_tells_of_a_machine_in_a_persons_hands() {
    let world = calm(prod().build());
    let mut seen = world.observe();
    seen.vms.get_mut("prod-cp-2").unwrap().unmanaged = true;
    let (_, status) = world.consider_seeing(&seen);
    let told = condition(&status, "Remediating");
    assert_eq!((&*told.status, &*told.reason), ("False", "HandedOver"));
    let how = "kubectl annotate vm prod-cp-2 -n tenant-a guestcluster.dev/unmanaged-";
    assert!(told.message.contains(how), "{}", told.message);
}
