//! Saying what was seen and done: status, events.
//!
//! # Guarantees
//! - A status that says nothing new is not written.
//! - What people and programs wait for is written at once; counters and phases of machines, which
//!   change many times while a cluster comes up, at most once per [`PAUSE`].

mod notes;

use std::time::Duration;

use guestcluster_api::{ConditionType, GuestCluster, GuestClusterStatus};
use guestcluster_planner::Action;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::apply::{StatusWrite, TIMES, equal_ignoring};
use guestcluster_shell::clock::monotonic;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;

use super::execute::{ACTION, Done};
use super::observe::Subject;
use super::{Context, Round};
use crate::error::Error;
use crate::memory::Memory;

/// How long changes of little weight are gathered before they are written.
const PAUSE: Duration = Duration::from_secs(10);

/// Conditions that somebody may wait for.
const AWAITED: [ConditionType; 6] = [
    ConditionType::Ready,
    ConditionType::Accepted,
    ConditionType::CapacityAvailable,
    ConditionType::PlacementHealthy,
    ConditionType::Paused,
    ConditionType::Deleting,
];

/// What to do with a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// It says nothing new.
    Skip,
    /// It is worth a write now.
    Write,
    /// It will be, after this long.
    Postpone(Duration),
}

impl Context {
    /// Reports a round. Answers how long from now the status must be written at the latest, if it
    /// was not yet.
    pub(super) async fn report(
        &self,
        round: &Round<'_>,
        done: &Done<'_>,
        memory: &mut Memory,
    ) -> Result<Option<Duration>, Error> {
        let did = |kind: fn(&Action) -> bool| done.actions.iter().any(|action| kind(action));
        // An object that is gone or going has nobody who reads its status.
        if did(|action| matches!(action, Action::RemoveFinalizer)) {
            return Ok(None);
        }
        self.publish_actions(round, done).await;
        // That action wrote this very status.
        if did(|action| {
            matches!(
                action,
                Action::RecordOrdinals(_) | Action::RecordDeparture { .. }
            )
        }) {
            self.publish_edges(round.subject.cluster, round.status)
                .await;
            return Ok(None);
        }
        // After actions the next round follows at once and sees more.
        let hurried = !done.actions.is_empty() && done.outcome.is_ok();
        self.report_status(round.subject, round.status, (memory, hurried))
            .await
    }

    /// Reports a specification that cannot be read.
    pub(super) async fn report_invalid(
        &self,
        key: &NamespacedName,
        cluster: &GuestCluster,
        status: &GuestClusterStatus,
        memory: &mut Memory,
    ) -> Result<Option<Duration>, Error> {
        if decide(cluster.status.as_ref(), status, None)? == Decision::Skip {
            return Ok(None);
        }
        self.write(key, cluster, (status, memory)).await?;
        self.publish_edges(cluster, status).await;
        Ok(None)
    }

    async fn report_status(
        &self,
        subject: &Subject<'_>,
        status: &GuestClusterStatus,
        (memory, hurried): (&mut Memory, bool),
    ) -> Result<Option<Duration>, Error> {
        let before = subject.cluster.status.as_ref();
        let age = memory
            .status_written
            .map(|at| monotonic().saturating_duration_since(at));
        match decide(before, status, age)? {
            Decision::Skip => Ok(None),
            Decision::Write if hurried && age.is_some_and(|age| age < PAUSE) => Ok(None),
            Decision::Postpone(wait) => Ok(Some(wait)),
            Decision::Write => {
                self.write_status(subject, status, memory).await?;
                self.publish_edges(subject.cluster, status).await;
                Ok(None)
            }
        }
    }

    /// Writes a status as it is.
    pub(super) async fn write_status(
        &self,
        subject: &Subject<'_>,
        status: &GuestClusterStatus,
        memory: &mut Memory,
    ) -> Result<(), Error> {
        self.write(subject.key, subject.cluster, (status, memory))
            .await
    }

    async fn write(
        &self,
        key: &NamespacedName,
        cluster: &GuestCluster,
        (status, memory): (&GuestClusterStatus, &mut Memory),
    ) -> Result<(), Error> {
        let time = monotonic();
        if !self.leader.allows(time, ACTION) {
            return Err(Error::NotLeading);
        }
        let api = Api::<GuestCluster>::namespaced(self.client.clone(), &key.namespace);
        if let StatusWrite::Written(written) = self
            .status_writer
            .apply_status(&api, cluster, status)
            .await?
        {
            memory.status_written = Some(time);
            self.ledger.wrote(key, written.as_ref(), time);
        }
        Ok(())
    }
}

/// A pause that status tells of holds back status too, as it holds back all writes.
fn stays_paused(before: &GuestClusterStatus, after: &GuestClusterStatus) -> bool {
    let paused = |status: &GuestClusterStatus| {
        let paused =
            |c: &Condition| c.type_ == ConditionType::Paused.as_str() && c.status == "True";
        status.conditions.iter().any(paused)
    };
    paused(before) && paused(after) && before.observed_generation == after.observed_generation
}

/// Whether `after` is worth a write, given what is written and how long ago that was.
fn decide(
    before: Option<&GuestClusterStatus>,
    after: &GuestClusterStatus,
    age: Option<Duration>,
) -> Result<Decision, Error> {
    let Some(before) = before else {
        return Ok(Decision::Write);
    };
    if stays_paused(before, after) {
        return Ok(Decision::Skip);
    }
    let value =
        |status| serde_json::to_value(status).map_err(|error| Error::Malformed(error.to_string()));
    if equal_ignoring(&value(before)?, &value(after)?, TIMES) {
        return Ok(Decision::Skip);
    }
    Ok(match age.and_then(|age| PAUSE.checked_sub(age)) {
        Some(wait) if !wait.is_zero() && !is_awaited(before, after) => Decision::Postpone(wait),
        _ => Decision::Write,
    })
}

/// Whether what differs is something that must not wait.
fn is_awaited(before: &GuestClusterStatus, after: &GuestClusterStatus) -> bool {
    let verdict = |status: &GuestClusterStatus, type_: ConditionType| {
        let condition = status.conditions.iter().find(|c| c.type_ == type_.as_str());
        condition.map(|condition| condition.status.clone())
    };
    let ordinals = |status: &GuestClusterStatus| {
        let pools = status
            .workers
            .iter()
            .map(|pool| (pool.name.clone(), pool.last_ordinal));
        (status.control_plane.last_ordinal, pools.collect::<Vec<_>>())
    };
    before.initialised != after.initialised
        || before.observed_generation != after.observed_generation
        || ordinals(before) != ordinals(after)
        || AWAITED
            .iter()
            .any(|type_| verdict(before, *type_) != verdict(after, *type_))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use k8s_openapi::jiff::Timestamp;
    use rstest::rstest;

    use super::*;

    fn status(ready: &str, second: i64) -> GuestClusterStatus {
        let condition = Condition {
            type_: "Ready".to_owned(),
            status: ready.to_owned(),
            reason: "Provisioning".to_owned(),
            message: String::new(),
            last_transition_time: Time(Timestamp::from_second(second).unwrap()),
            observed_generation: Some(1),
        };
        GuestClusterStatus {
            conditions: vec![condition],
            ..GuestClusterStatus::default()
        }
    }

    fn with(change: impl FnOnce(&mut GuestClusterStatus)) -> GuestClusterStatus {
        let mut status = status("False", 0);
        change(&mut status);
        status
    }

    #[rstest]
    #[case::the_same_at_another_time(status("False", 99), Decision::Skip)]
    #[case::the_guest_is_ready(status("True", 0), Decision::Write)]
    #[case::the_guest_has_answered(with(|s| s.initialised = true), Decision::Write)]
    #[case::an_ordinal_was_given(with(|s| s.control_plane.last_ordinal = 1), Decision::Write)]
    #[case::another_count(
        with(|s| s.control_plane.ready = 1),
        Decision::Postpone(Duration::from_secs(9))
    )]
    fn only_what_somebody_waits_for_is_written_at_once(
        #[case] after: GuestClusterStatus,
        #[case] decision: Decision,
    ) {
        let age = Some(Duration::from_secs(1));
        assert_eq!(
            decide(Some(&status("False", 0)), &after, age).unwrap(),
            decision
        );
    }

    fn paused(generation: i64, ready: i32) -> GuestClusterStatus {
        let mut status = with(|s| s.control_plane.ready = ready);
        "Paused".clone_into(&mut status.conditions[0].type_);
        "True".clone_into(&mut status.conditions[0].status);
        status.observed_generation = Some(generation);
        status
    }

    #[rstest]
    #[case::it_goes_on(paused(2, 1), paused(2, 0), Decision::Skip)]
    #[case::it_begins(with(|s| s.observed_generation = Some(1)), paused(2, 1), Decision::Write)]
    #[case::the_specification_changes(paused(2, 1), paused(3, 1), Decision::Write)]
    #[case::it_ends(paused(2, 1), with(|s| s.observed_generation = Some(3)), Decision::Write)]
    fn a_pause_that_is_told_of_holds_back_status(
        #[case] before: GuestClusterStatus,
        #[case] after: GuestClusterStatus,
        #[case] decision: Decision,
    ) {
        assert_eq!(decide(Some(&before), &after, None).unwrap(), decision);
    }

    #[rstest]
    #[case::after_a_while(Some(PAUSE))]
    #[case::after_a_restart(None)]
    fn what_has_waited_is_written(#[case] age: Option<Duration>) {
        let after = with(|s| s.control_plane.ready = 1);
        assert_eq!(
            decide(Some(&status("False", 0)), &after, age).unwrap(),
            Decision::Write
        );
    }

    #[test]
    fn the_first_status_is_written_at_once() {
        let age = Some(Duration::ZERO);
        assert_eq!(
            decide(None, &status("Unknown", 0), age).unwrap(),
            Decision::Write
        );
    }
}
