//! The status: what a user reads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator last saw and did.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GuestClusterStatus {
    /// Generation of the specification that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions, one per type.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_string()]))]
    pub conditions: Vec<Condition>,
    /// `host:port` of the guest's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Lowest Kubernetes version that a control-plane machine runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Set once the first control-plane machine has answered; never unset.
    #[serde(default)]
    pub initialised: bool,
    /// The control plane.
    #[serde(default)]
    pub control_plane: ControlPlaneStatus,
    /// The worker pools.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_string()]))]
    pub workers: Vec<PoolStatus>,
    /// Whether the guest survives the loss of a host, and of a zone.
    #[serde(default, skip_serializing_if = "CapacityStatus::is_empty")]
    pub capacity: CapacityStatus,
    /// `ready/wanted` over all pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_summary: Option<String>,
}

/// Whether the guest survives the loss of a host.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CapacityStatus {
    /// Whichever host dies, every machine of the guest finds another one; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survives_host_loss: Option<bool>,
    /// The host whose loss would leave most of its machines without a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_host: Option<String>,
    /// Whichever zone is lost, every machine of the guest finds a host in another one; absent if not
    /// known, or not asked by `spec.capacityScope`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survives_zone_loss: Option<bool>,
    /// The zone whose loss would leave most of its machines without a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_zone: Option<String>,
}

impl CapacityStatus {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// State of the control plane.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneStatus {
    /// Machines that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Machines whose API server answers and whose Node is Ready.
    #[serde(default)]
    pub ready: i32,
    /// `ready/wanted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Highest ordinal ever given; written before a machine's first object.
    #[serde(default)]
    pub last_ordinal: u32,
    /// Machines that were replaced because they failed, since the last hour without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repairs: u32,
    /// When the last of them was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_repair: Option<Time>,
    /// When the first of its machines' certificates ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates_expire: Option<Time>,
    /// How many of etcd's disks are lost together with one storage host or zone, as the condition
    /// `StorageSpread` says; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks_sharing_storage: Option<i32>,
    /// The machines.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_string()]))]
    pub machines: Vec<MachineStatus>,
}

/// State of a worker pool.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Name of the pool.
    pub name: String,
    /// Machines that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Machines whose Node is Ready.
    #[serde(default)]
    pub ready: i32,
    /// Highest ordinal ever given; written before a machine's first object.
    #[serde(default)]
    pub last_ordinal: u32,
    /// Machines that were replaced because they failed, since the last hour without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repairs: u32,
    /// When the last of them was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_repair: Option<Time>,
    /// The machines.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_string()]))]
    pub machines: Vec<MachineStatus>,
}

/// State of one machine.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Name of the machine, its VM and its Node.
    pub name: String,
    /// Host that it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Kubernetes version of its kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its etcd member, in hexadecimal as etcdctl prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_member: Option<String>,
    /// UID of the instance in which it first booted. A machine that runs as another instance before
    /// it joined was restarted in the middle of its first boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_instance: Option<String>,
    /// Where it is in its life: Wanted (its name is reserved), Creating, Booting, Joined, Ready,
    /// Unhealthy, Stopped, Failed or Leaving.
    pub phase: String,
    /// Why it is being taken away, from the decision until it is gone: Lost, Unhealthy, Outdated or
    /// Surplus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<String>,
    /// Since when it has been Unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_since: Option<Time>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}
