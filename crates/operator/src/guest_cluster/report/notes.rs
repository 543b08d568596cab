//! Events: what was done, and conditions that changed.

use guestcluster_api::{ConditionType, GuestCluster, GuestClusterStatus, Reason};
use guestcluster_planner::Action;
use guestcluster_planner::action::Kind;
use guestcluster_shell::error::{Class, Classify};
use guestcluster_shell::events::{Note, Severity};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::super::execute::Done;
use super::super::{Context, Round};
use crate::error::Error;

impl Context {
    /// Tells of actions, and of a failure, that a person would want to know of.
    pub(super) async fn publish_actions(&self, round: &Round<'_>, done: &Done<'_>) {
        let cluster = round.subject.cluster;
        let notes = done
            .actions
            .iter()
            .filter_map(|action| note(action, &round.subject.key.namespace))
            .chain(done.outcome.as_ref().err().and_then(failure));
        let published = notes.map(|note| self.events.publish(cluster, note));
        futures::future::join_all(published).await;
    }

    /// Tells of conditions that changed.
    pub(super) async fn publish_edges(&self, cluster: &GuestCluster, after: &GuestClusterStatus) {
        let before = cluster
            .status
            .as_ref()
            .map_or(&[][..], |status| &status.conditions);
        let notes = after
            .conditions
            .iter()
            .filter_map(|condition| edge(before, condition));
        let published = notes.map(|note| self.events.publish(cluster, note));
        futures::future::join_all(published).await;
    }
}

/// What a failure is worth saying: that a person is needed. What time alone heals is not told of.
fn failure(error: &Error) -> Option<Note> {
    let lasts = matches!(error.class(), Class::Denied | Class::Rejected | Class::Bug);
    lasts.then(|| Note {
        severity: Severity::Warning,
        reason: "ActionFailed",
        action: "Reconcile",
        text: error.explain(),
        about: None,
    })
}

/// What an action is worth saying, if anything.
fn note(action: &Action, namespace: &str) -> Option<Note> {
    let (severity, reason, about) = news(action)?;
    let text = match action {
        Action::Delete { object, why } => format!("deleted {}: {why}", object.name),
        Action::RecordDeparture { machine, why } => {
            format!("{machine} leaves, because {}", why.words())
        }
        other => format!("{}: {}", other.kind(), other.subject()),
    };
    let about = about.map(|(kind, name)| ObjectReference {
        api_version: Some(kind.api_version().to_owned()),
        kind: Some(kind.name().to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name),
        ..ObjectReference::default()
    });
    Some(Note {
        severity,
        reason,
        action: action.kind(),
        text,
        about,
    })
}

/// How much something matters, in one word, and which object it is about.
type News = (Severity, &'static str, Option<(Kind, String)>);

/// What of an action is news, if anything.
fn news(action: &Action) -> Option<News> {
    let about = |kind: Kind, name: &String| Some((kind, name.clone()));
    Some(match action {
        Action::Create(object) => (
            Severity::Normal,
            created(object.kind)?,
            about(object.kind, &object.name),
        ),
        Action::Delete { object, .. } => (
            Severity::Normal,
            deleted(object.kind)?,
            about(object.kind, &object.name),
        ),
        Action::RemoveEtcdMember { machine, .. } => (
            Severity::Warning,
            "EtcdMemberRemoved",
            about(Kind::VirtualMachine, machine),
        ),
        Action::RecordDeparture { machine, .. } => (
            Severity::Normal,
            "MachineLeaves",
            about(Kind::VirtualMachine, machine),
        ),
        Action::RetainDisk { object, .. } => (
            Severity::Normal,
            "DiskRetained",
            about(Kind::Claim, &object.name),
        ),
        Action::MintKubeconfig { .. } => (Severity::Normal, "KubeconfigCreated", None),
        Action::ApplyCni { .. } => (Severity::Normal, "PodNetworkApplied", None),
        Action::MoveEndpoint { .. } => (Severity::Normal, "EndpointMoved", None),
        Action::UpgradeAddons { .. } => (Severity::Normal, "AddonsUpgraded", None),
        Action::AddFinalizer
        | Action::RemoveFinalizer
        | Action::RecordOrdinals(_)
        | Action::MintAuthority { .. }
        | Action::Apply(_)
        | Action::WriteUserData(_)
        | Action::ScrubUserData { .. }
        | Action::ExtendToken { .. }
        | Action::DeleteToken { .. }
        | Action::LabelNode { .. }
        | Action::WriteConfiguration { .. }
        | Action::SetServing { .. }
        | Action::RuleOutMigration { .. }
        | Action::MoveLeader { .. }
        | Action::SetDrain { .. }
        | Action::Evict { .. }
        | Action::DeleteNode { .. } => return None,
    })
}

/// What is told of an object that was made.
const fn created(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::VirtualMachine => Some("MachineCreated"),
        Kind::Migration => Some("MigrationBegun"),
        _ => None,
    }
}

/// What is told of one that was deleted.
const fn deleted(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::VirtualMachine => Some("MachineDeleted"),
        Kind::Instance => Some("MachineMoved"),
        Kind::Migration => Some("MigrationCalledOff"),
        _ => None,
    }
}

/// What the change of a condition is worth saying. The first verdict is none: until then nothing
/// was promised.
fn edge(before: &[Condition], after: &Condition) -> Option<Note> {
    let former = before
        .iter()
        .find(|condition| condition.type_ == after.type_)?;
    let was = &*former.status;
    let type_ = ConditionType::ALL
        .into_iter()
        .find(|type_| type_.as_str() == after.type_)?;
    let reason = Reason::ALL
        .iter()
        .find(|reason| reason.as_str() == after.reason)?;
    let severity = match type_ {
        // What these two tell, the others tell better.
        ConditionType::Reconciling | ConditionType::Stalled => return None,
        ConditionType::Remediating if after.status == "True" => Severity::Warning,
        // Disks lie where they lie from the day on which they are made: there is no better time before.
        ConditionType::StorageSpread => match (was, &*after.status) {
            (_, "False") => Severity::Warning,
            ("False", "True") => Severity::Normal,
            _ => return None,
        },
        ConditionType::Remediating
        | ConditionType::UpToDate
        | ConditionType::LiveMigratable
        | ConditionType::Paused
        | ConditionType::Deleting => Severity::Normal,
        ConditionType::Ready
        | ConditionType::Accepted
        | ConditionType::CapacityAvailable
        | ConditionType::PlacementHealthy
        | ConditionType::CertificatesReady
        | ConditionType::EndpointReady
        | ConditionType::ControlPlaneAvailable
        | ConditionType::EtcdHealthy
        | ConditionType::WorkersAvailable => match (was, &*after.status) {
            ("True", "False") => Severity::Warning,
            (_, "True") => Severity::Normal,
            // Refused from the start, or for another reason than before.
            ("Unknown", "False") if type_ == ConditionType::Accepted => Severity::Warning,
            _ => return None,
        },
    };
    let text = format!("{} is {}: {}", after.type_, after.status, after.message);
    let note = Note {
        severity,
        reason: reason.as_str(),
        action: type_.as_str(),
        text,
        about: None,
    };
    (was != after.status).then_some(note)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use rstest::rstest;

    use super::*;

    fn condition(type_: &str, status: &str) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: "Degraded".to_owned(),
            message: "words".to_owned(),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            observed_generation: None,
        }
    }

    #[rstest]
    #[case::worse("Ready", "True", "False", Some(Severity::Warning))]
    #[case::better("Ready", "False", "True", Some(Severity::Normal))]
    #[case::no_change("Ready", "False", "False", None)]
    #[case::not_known_any_more("Ready", "True", "Unknown", None)]
    #[case::paused("Paused", "False", "True", Some(Severity::Normal))]
    #[case::work("Reconciling", "False", "True", None)]
    #[case::disks_on_one_host("StorageSpread", "Unknown", "False", Some(Severity::Warning))]
    #[case::disks_told_apart("StorageSpread", "Unknown", "True", None)]
    #[case::disks_moved_apart("StorageSpread", "False", "True", Some(Severity::Normal))]
    #[case::disks_still_on_one_host("StorageSpread", "False", "False", None)]
    fn an_event_tells_of_an_edge(
        #[case] type_: &str,
        #[case] before: &str,
        #[case] after: &str,
        #[case] severity: Option<Severity>,
    ) {
        let note = edge(&[condition(type_, before)], &condition(type_, after));
        assert_eq!(note.map(|note| note.severity), severity);
    }

    #[test]
    fn no_event_tells_of_the_first_verdict() {
        assert!(edge(&[], &condition("Ready", "False")).is_none());
    }

    #[test]
    fn a_failure_is_told_of_if_a_person_is_needed() {
        assert!(failure(&Error::NotLeading).is_none());
        assert!(failure(&Error::Gone("the Node".to_owned())).is_none());
        let told = failure(&Error::Malformed("a name is missing".to_owned()));
        assert!(told.is_some_and(|note| note.text.contains("a name is missing")));
    }
}
