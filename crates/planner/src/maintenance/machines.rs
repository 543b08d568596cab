//! How far each machine is on its way off the host.

use guestcluster_api::host_maintenance::{MaintenanceMachine, MaintenanceState};
use guestcluster_api::{ConditionType, GuestClusterStatus, Reason};

use crate::decide::WAITS;
use crate::departure::Departure;

/// A machine that is on the host, or was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Seat {
    /// Namespace of its guest.
    pub namespace: String,
    /// Name of its GuestCluster.
    pub guest: String,
    /// Name.
    pub name: String,
    /// `control-plane` or `worker`.
    pub role: String,
    /// A launcher Pod of it that is not over is on the host.
    pub launcher: bool,
    /// Its VM exists.
    pub exists: bool,
    /// The host of its instance.
    pub host: Option<String>,
    /// Its instance runs.
    pub running: bool,
    /// Its instance is being stopped.
    pub stopping: bool,
    /// Why the scheduler finds no host for it.
    pub unschedulable: Option<String>,
    /// What its guest says of it.
    pub word: Word,
}

/// What a guest's status says of a machine that is to leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Word {
    /// Nothing: its turn has not come.
    #[default]
    Nothing,
    /// It leaves.
    Leaves,
    /// It leaves, and waits for this.
    Waits(String),
    /// It stays, until somebody does something about this.
    Stays(String),
}

/// What a guest's status says of one of its machines.
pub fn word(status: &GuestClusterStatus, machine: &str) -> Word {
    let condition = |type_: ConditionType| {
        let mut all = status.conditions.iter();
        all.find(|condition| condition.type_ == type_.as_str())
    };
    let is = |type_: ConditionType, reason: Reason| {
        condition(type_).filter(|c| c.status == "True" && c.reason == reason.as_str())
    };
    let about = |message: &str| message.starts_with(&format!("{machine} "));
    if is(ConditionType::Paused, Reason::PausedByUser).is_some() {
        return Word::Stays("its GuestCluster is paused: set spec.paused to false".to_owned());
    }
    let trouble = is(ConditionType::Remediating, Reason::QuorumLost)
        .or_else(|| {
            is(ConditionType::Remediating, Reason::HandedOver).filter(|c| about(&c.message))
        })
        .or_else(|| {
            is(ConditionType::Reconciling, Reason::NoOtherHost).filter(|c| about(&c.message))
        });
    if let Some(trouble) = trouble {
        return Word::Stays(trouble.message.clone());
    }
    let leaves = is(ConditionType::Reconciling, Departure::Evicted.reason())
        .or_else(|| is(ConditionType::Reconciling, Reason::EvictionStuck));
    match leaves.filter(|c| about(&c.message)) {
        None => Word::Nothing,
        Some(condition) => match condition.message.split_once(WAITS) {
            Some((_, what)) => Word::Waits(what.to_owned()),
            None => Word::Leaves,
        },
    }
}

/// The state of each machine, by namespace and name.
pub(super) fn states(seats: &[Seat], host: &str) -> Vec<MaintenanceMachine> {
    let mut machines: Vec<_> = seats.iter().map(|seat| machine(seat, host)).collect();
    machines.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    machines
}

fn machine(seat: &Seat, host: &str) -> MaintenanceMachine {
    let (state, message) = state(seat, host);
    let elsewhere = seat.host.clone().filter(|there| there != host);
    MaintenanceMachine {
        namespace: seat.namespace.clone(),
        guest: seat.guest.clone(),
        name: seat.name.clone(),
        role: seat.role.clone(),
        state,
        to: elsewhere.filter(|_| state == MaintenanceState::Moved),
        message,
    }
}

fn state(seat: &Seat, host: &str) -> (MaintenanceState, Option<String>) {
    if seat.launcher && (seat.stopping || seat.host.as_deref() != Some(host)) {
        let message = format!("its launcher Pod on {host} is not gone yet");
        return (MaintenanceState::Leaving, Some(message));
    }
    if seat.launcher {
        return match &seat.word {
            Word::Nothing => (MaintenanceState::Waiting, None),
            Word::Leaves => (MaintenanceState::Leaving, None),
            Word::Waits(what) => (MaintenanceState::Leaving, Some(what.clone())),
            Word::Stays(why) => (MaintenanceState::Stuck, Some(why.clone())),
        };
    }
    if !seat.exists {
        return (MaintenanceState::Gone, None);
    }
    match (&seat.host, &seat.unschedulable) {
        (Some(there), _) if there != host && seat.running => (MaintenanceState::Moved, None),
        (None, Some(why)) => (MaintenanceState::NoHost, Some(why.clone())),
        _ => (MaintenanceState::Starting, None),
    }
}
