//! `HostMaintenance`: one host, emptied of guests and kept empty.

#![allow(
    clippy::duplicated_attributes,
    reason = "columns of one type say it each"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Empties one host of guests and keeps it empty until the object is deleted.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "guestcluster.dev",
    version = "v1alpha1",
    kind = "HostMaintenance",
    plural = "hostmaintenances",
    shortname = "hm",
    category = "guestcluster",
    status = "HostMaintenanceStatus",
    derive = "PartialEq",
    doc = "Empties one host of guests and keeps it empty until the object is deleted.",
    printcolumn(name = "Host", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Progress", type_ = "string", json_path = ".status.summary"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Foreign",
        type_ = "integer",
        json_path = ".status.foreign",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct HostMaintenanceSpec {
    /// Name of the Node that is to be emptied.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("nodeName cannot be changed: delete this object, which ends the maintenance, and create another one for the other host"))]
    pub node_name: String,

    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,

    /// When the host should be empty. Afterwards the condition `Overdue` is True; nothing is forced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,

    /// Begin nothing further. A machine that has not left the host comes back into service; the host
    /// stays cordoned.
    #[serde(default)]
    pub paused: bool,

    /// Whether the host may be emptied when some machine would find no other one: `Enforce`, no;
    /// `Warn`, control-plane machines that etcd can spare wait for a host, all others stay;
    /// `Ignore`, every machine goes, and waits if need be until a host takes it.
    #[serde(default)]
    pub capacity_policy: CapacityPolicy,
}

/// Whether a host may be emptied when some machine would find no other one.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CapacityPolicy {
    /// No.
    #[default]
    Enforce,
    /// Only control-plane machines that etcd can spare may be without a host for a while.
    Warn,
    /// Any machine may be without a host for a while.
    Ignore,
}

/// What the operator last saw and did.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HostMaintenanceStatus {
    /// Generation of the specification that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How far it is: Pending (nothing has begun yet), Blocked (it cannot begin), Draining, Paused or
    /// Done (no guest's machine is on the host).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MaintenancePhase>,
    /// Conditions `Ready`, `Reconciling`, `Stalled` and `Overdue`.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_string()]))]
    pub conditions: Vec<Condition>,
    /// Such as `3/7 moved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Machines of guests that were on the host since the maintenance began.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["namespace".to_string(), "name".to_string()]))]
    pub machines: Vec<MaintenanceMachine>,
    /// Virtual machines on the host that belong to no guest cluster: they are not touched.
    #[serde(default)]
    pub foreign: i32,
}

/// How far a maintenance is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenancePhase {
    /// Nothing has begun yet.
    Pending,
    /// It cannot begin: a condition says why.
    Blocked,
    /// Machines leave the host.
    Draining,
    /// Nothing further is begun, because the specification says so.
    Paused,
    /// No guest's machine is on the host.
    Done,
}

/// One machine of the host.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceMachine {
    /// Namespace of its guest.
    pub namespace: String,
    /// Name of its GuestCluster.
    pub guest: String,
    /// Name.
    pub name: String,
    /// `control-plane` or `worker`.
    pub role: String,
    /// Where it is on its way: Waiting (for its turn), Leaving, Stuck (it stays: the message says what
    /// would help), Starting (off the host, not running yet), NoHost (off the host, and no other takes
    /// it now), Moved or Gone (it exists no more).
    pub state: MaintenanceState,
    /// The host that it runs on now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Where a machine is on its way off a host.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenanceState {
    /// On the host; others go first.
    Waiting,
    /// On the host, and being prepared to leave or stopping.
    Leaving,
    /// On the host, and stays there until somebody helps.
    Stuck,
    /// Off the host; it does not run yet.
    Starting,
    /// Off the host; no other takes it now.
    NoHost,
    /// It runs on another host, and nothing of it is left on this one.
    Moved,
    /// It exists no more.
    Gone,
}

impl MaintenanceState {
    /// It is on the host still.
    pub const fn is_on_host(self) -> bool {
        matches!(self, Self::Waiting | Self::Leaving | Self::Stuck)
    }
}

/// Types of conditions on a HostMaintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenanceCondition {
    /// No guest's machine is on the host.
    Ready,
    /// The host is being emptied (kstatus: abnormal when True).
    Reconciling,
    /// Nothing will change without a person (kstatus: abnormal when True).
    Stalled,
    /// The deadline has passed and the host is not empty (abnormal when True).
    Overdue,
}

impl MaintenanceCondition {
    /// All types, in the order in which status lists them.
    pub const ALL: [Self; 4] = [Self::Ready, Self::Reconciling, Self::Stalled, Self::Overdue];

    /// The value of `type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::Overdue => "Overdue",
        }
    }

    /// One sentence for the reference page.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ready => "No guest's machine is on the host.",
            Self::Reconciling => "The host is being emptied, or will be.",
            Self::Stalled => "Nothing will change without a person.",
            Self::Overdue => "The deadline has passed and the host is not empty.",
        }
    }
}

/// Why a condition of a HostMaintenance has its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaintenanceReason {
    /// The host carries no guest's machine.
    Emptied,
    /// The host carries no guest's machine, and some that left it have no other host yet.
    EmptiedWithoutHome,
    /// Machines leave the host.
    Draining,
    /// Every machine that is left stays until somebody helps.
    MachinesStuck,
    /// There is no Node of that name.
    HostNotFound,
    /// An older HostMaintenance has the host.
    HostTaken,
    /// Some machine would find no other host.
    CapacityShort,
    /// It is not known yet whether all machines would find another host.
    CapacityUnknown,
    /// The specification says so.
    PausedByUser,
    /// Nothing is left to do.
    Settled,
    /// No deadline was given, or it is still to come, or it was met.
    InTime,
    /// The deadline has passed.
    DeadlinePassed,
}

impl MaintenanceReason {
    /// All reasons, in the order of the reference page.
    pub const ALL: [Self; 12] = [
        Self::Emptied,
        Self::EmptiedWithoutHome,
        Self::Draining,
        Self::MachinesStuck,
        Self::HostNotFound,
        Self::HostTaken,
        Self::CapacityShort,
        Self::CapacityUnknown,
        Self::PausedByUser,
        Self::Settled,
        Self::InTime,
        Self::DeadlinePassed,
    ];

    /// The value of `reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Emptied => "Emptied",
            Self::EmptiedWithoutHome => "EmptiedWithoutHome",
            Self::Draining => "Draining",
            Self::MachinesStuck => "MachinesStuck",
            Self::HostNotFound => "HostNotFound",
            Self::HostTaken => "HostTaken",
            Self::CapacityShort => "CapacityShort",
            Self::CapacityUnknown => "CapacityUnknown",
            Self::PausedByUser => "PausedByUser",
            Self::Settled => "Settled",
            Self::InTime => "InTime",
            Self::DeadlinePassed => "DeadlinePassed",
        }
    }

    /// Its explanation for the reference page.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Emptied => "The host carries no guest's machine.",
            Self::EmptiedWithoutHome => {
                "The host carries no guest's machine, and some that left it have no other host yet."
            }
            Self::Draining => "Machines leave the host.",
            Self::MachinesStuck => "Every machine that is left stays until somebody helps.",
            Self::HostNotFound => "There is no Node of that name.",
            Self::HostTaken => "An older HostMaintenance has the host.",
            Self::CapacityShort => "Some machine would find no other host.",
            Self::CapacityUnknown => {
                "It is not known yet whether all machines would find another host."
            }
            Self::PausedByUser => "The specification says so.",
            Self::Settled => "Nothing is left to do.",
            Self::InTime => "No deadline was given, or it is still to come, or it was met.",
            Self::DeadlinePassed => "The deadline has passed.",
        }
    }
}
