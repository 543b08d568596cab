//! Emptying a host: what to do next for a `HostMaintenance`, and what to say about it.
//!
//! A maintenance moves no machine itself. It cordons its host and says that it is Draining; from then
//! on the plans of the guests see that the host is being emptied, and their coordinator of departures
//! (`decide/depart.rs`) moves one machine after another as it does for `kubectl drain`. A machine that
//! can migrate alive would be asked to there as well, before it is stopped.
//!
//! The MUSTs:
//! 1. Nothing of a host is touched before it is known that its machines find other hosts, unless the
//!    specification does not ask for that.
//! 2. What ends the maintenance uncordons only what it cordoned.
//! 3. A host is empty when no launcher Pod of a guest is left on it; that its VM runs elsewhere is not
//!    enough, since two launchers of one disk destroy it.
//! 4. Of several maintenances of one host the oldest has it.

mod machines;
mod report;

use std::collections::BTreeMap;

use guestcluster_api::host_maintenance::{
    CapacityPolicy, HostMaintenance, HostMaintenanceStatus, MaintenancePhase,
};
use guestcluster_api::labels;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::foresight::Foresight;
use crate::machines::recorded;

pub use machines::{Seat, Word, word};

/// How soon to look again at a host that is not empty yet, should nothing wake us before.
const DRAINING: SignedDuration = SignedDuration::from_secs(5);
/// How soon to ask again whether all machines would find another host.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// An answer that nobody has asked for yet is there after about so long.
const ANSWERED: SignedDuration = SignedDuration::from_secs(1);

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Name of the object.
    pub name: String,
    /// Generation of its specification.
    pub generation: i64,
    /// The host.
    pub host: String,
    /// Begin nothing further.
    pub paused: bool,
    /// What of machines that would find no other host.
    pub policy: CapacityPolicy,
    /// When the host should be empty.
    pub deadline: Option<Timestamp>,
    /// The object is being deleted.
    pub deleting: bool,
    /// It carries our finalizer.
    pub finalizer: bool,
}

impl From<&HostMaintenance> for Request {
    fn from(object: &HostMaintenance) -> Self {
        let (meta, spec) = (&object.metadata, &object.spec);
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        Self {
            name: meta.name.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            host: spec.node_name.clone(),
            paused: spec.paused,
            policy: spec.capacity_policy,
            deadline: spec.deadline.as_ref().map(|time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            finalizer: finalizers.iter().any(|one| one == labels::FINALIZER),
        }
    }
}

/// One snapshot of the host and of what concerns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// The host, if there is one of that name.
    pub node: Option<Node>,
    /// The maintenance that has the host before this one.
    pub before: Option<String>,
    /// Machines of guests that are on the host, or were according to status.
    pub machines: Vec<Seat>,
    /// Virtual machines on the host that belong to no guest cluster.
    pub foreign: usize,
    /// Whether all machines would find another host.
    pub foresight: Foresight,
}

/// The Node of the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// UID.
    pub uid: String,
    /// Cordoned.
    pub unschedulable: bool,
    /// The maintenance that cordoned it.
    pub cordoned_by: Option<String>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Put our finalizer on the maintenance.
    AddFinalizer,
    /// Take it off.
    RemoveFinalizer,
    /// Cordon the host in the name of the maintenance.
    Cordon {
        /// UID of the Node.
        uid: String,
    },
    /// Uncordon the host, if it is still cordoned in that name.
    Uncordon {
        /// UID of the Node.
        uid: String,
    },
}

impl Action {
    /// One word, for logs and metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::AddFinalizer => "AddFinalizer",
            Self::RemoveFinalizer => "RemoveFinalizer",
            Self::Cordon { .. } => "Cordon",
            Self::Uncordon { .. } => "Uncordon",
        }
    }
}

/// What to do, what to say, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Actions, in order.
    pub actions: Vec<Action>,
    /// What to say once they have taken effect; nothing of an object that ends.
    pub status: Option<HostMaintenanceStatus>,
    /// When to look again at the latest.
    pub look_again: Option<Timestamp>,
}

/// Where the maintenance stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    NoHost,
    /// Another one has the host.
    Taken(String),
    Paused,
    /// It may not begin: machines would find no other host.
    Short(String),
    /// It is not known yet whether it may begin.
    Unknown,
    /// The host is being emptied, or is empty; with a warning that was given at the beginning.
    Emptying(Option<String>),
}

/// Hosts that are being emptied or kept empty now, of all maintenances, with what each says of machines that find
/// no other host.
pub fn emptied<'a>(
    all: impl Iterator<Item = &'a HostMaintenance>,
) -> BTreeMap<String, CapacityPolicy> {
    let drains = |one: &&HostMaintenance| {
        let phase = one.status.as_ref().and_then(|status| status.phase);
        let goes_on = one.metadata.deletion_timestamp.is_none() && !one.spec.paused;
        let wants = [MaintenancePhase::Draining, MaintenancePhase::Done].map(Some);
        goes_on && wants.contains(&phase)
    };
    all.filter(drains)
        .map(|one| (one.spec.node_name.clone(), one.spec.capacity_policy))
        .collect()
}

/// Whether a guest has, or had, a machine that the maintenance concerns.
pub fn concerns(
    maintenance: &HostMaintenance,
    namespace: &str,
    guest: (&str, Option<&guestcluster_api::GuestClusterStatus>),
) -> bool {
    let (name, status) = guest;
    let told = maintenance.status.iter().flat_map(|s| &s.machines);
    let mut told = told.filter(|m| m.namespace == namespace && m.guest == name);
    let host = Some(&maintenance.spec.node_name);
    let mut machines = status.into_iter().flat_map(recorded);
    told.next().is_some() || machines.any(|machine| machine.host.as_ref() == host)
}

/// The next step of a maintenance.
pub fn plan(
    request: &Request,
    seen: &Seen,
    previous: &HostMaintenanceStatus,
    now: Timestamp,
) -> Plan {
    if request.deleting {
        return end(request, seen);
    }
    if !request.finalizer {
        return Plan {
            actions: vec![Action::AddFinalizer],
            status: None,
            look_again: None,
        };
    }
    let stage = stage(request, seen, previous);
    let listed = match stage {
        Stage::Emptying(_) => true,
        Stage::Paused => has_begun(request, seen, previous),
        Stage::NoHost | Stage::Taken(_) | Stage::Short(_) | Stage::Unknown => false,
    };
    let machines = if listed {
        machines::states(&seen.machines, &request.host)
    } else {
        Vec::new()
    };
    let facts = report::Facts {
        request,
        seen,
        stage: &stage,
        machines: &machines,
        now,
    };
    let status = report::status(&facts, previous);
    let pause = match (&stage, status.phase) {
        (Stage::Unknown, _) if seen.foresight == Foresight::NotAsked => Some(now + ANSWERED),
        (Stage::Short(_) | Stage::Unknown, _) => Some(now + ASK_AGAIN),
        (Stage::Emptying(_), Some(MaintenancePhase::Draining)) => Some(now + DRAINING),
        _ => None,
    };
    let deadline = request.deadline.filter(|deadline| *deadline > now);
    Plan {
        actions: cordon(request, seen, &stage).into_iter().collect(),
        status: Some(status),
        look_again: pause.into_iter().chain(deadline).min(),
    }
}

/// The host goes back as it was found; machines that had begun to leave come back into service, since
/// their guests see that the host is not being emptied any more.
fn end(request: &Request, seen: &Seen) -> Plan {
    let ours = |node: &&Node| node.cordoned_by.as_ref() == Some(&request.name);
    let uncordon = seen
        .node
        .as_ref()
        .filter(ours)
        .map(|node| Action::Uncordon {
            uid: node.uid.clone(),
        });
    let finalizer = request.finalizer.then_some(Action::RemoveFinalizer);
    Plan {
        actions: uncordon.into_iter().chain(finalizer).collect(),
        status: None,
        look_again: None,
    }
}

fn stage(request: &Request, seen: &Seen, previous: &HostMaintenanceStatus) -> Stage {
    if seen.node.is_none() {
        return Stage::NoHost;
    }
    if let Some(other) = &seen.before {
        return Stage::Taken(other.clone());
    }
    if request.paused {
        return Stage::Paused;
    }
    // What has begun goes on: whether a machine may still leave is asked for each of them.
    if has_begun(request, seen, previous) {
        return Stage::Emptying(None);
    }
    match (request.policy, &seen.foresight) {
        (CapacityPolicy::Ignore, _)
        | (_, Foresight::Fits)
        | (CapacityPolicy::Warn, Foresight::NotKnown) => Stage::Emptying(None),
        (CapacityPolicy::Warn, short @ Foresight::Short { .. }) => {
            Stage::Emptying(report::shortage(short))
        }
        (CapacityPolicy::Enforce, short @ Foresight::Short { .. }) => {
            Stage::Short(report::shortage(short).unwrap_or_default())
        }
        (CapacityPolicy::Enforce, Foresight::NotKnown)
        | (CapacityPolicy::Enforce | CapacityPolicy::Warn, Foresight::NotAsked) => Stage::Unknown,
    }
}

/// The host was found fit to be emptied before: status says so, or the host itself.
fn has_begun(request: &Request, seen: &Seen, previous: &HostMaintenanceStatus) -> bool {
    let told = matches!(
        previous.phase,
        Some(MaintenancePhase::Draining | MaintenancePhase::Done)
    );
    let cordoned_by = seen.node.as_ref().and_then(|n| n.cordoned_by.as_ref());
    told || !previous.machines.is_empty() || cordoned_by == Some(&request.name)
}

/// The host is kept cordoned for as long as it is wanted empty. One that a person cordoned is left as
/// it is; one whose cordon names another maintenance, which has ended, is taken over.
fn cordon(request: &Request, seen: &Seen, stage: &Stage) -> Option<Action> {
    let node = seen.node.as_ref()?;
    let named = node.cordoned_by.as_ref();
    let right = node.unschedulable && named.is_none_or(|name| *name == request.name);
    let wanted = matches!(stage, Stage::Emptying(_));
    (wanted && !right).then(|| Action::Cordon {
        uid: node.uid.clone(),
    })
}
