//! The specification: what a user writes.
//!
//! Whatever a schema or a CEL rule can refuse is refused at admission, with a sentence that says what
//! to write instead. Defaults stand in the schema, so that a stored object says what it means and a
//! newer operator with other defaults changes nothing for clusters that exist.

mod capacity;
mod device;
mod machine;
mod maintenance;
mod network;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use capacity::{CapacityPolicy, CapacityScope, CoLocation, Repair};
pub use device::{Device, DeviceKind};
pub use machine::{
    AccessMode, Disk, Image, ImageHttp, ImagePvc, Machine, Numa, Placement, Taint, Toleration,
};
pub use maintenance::{Maintenance, Migration};
pub use network::{Binding, Cni, Endpoint, EndpointType, GuestNetwork, MachineNetwork};

/// A Kubernetes cluster made of KubeVirt virtual machines.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "guestcluster.dev",
    version = "v1alpha1",
    kind = "GuestCluster",
    plural = "guestclusters",
    shortname = "gc",
    category = "guestcluster",
    namespaced,
    status = "crate::status::GuestClusterStatus",
    derive = "PartialEq",
    doc = "A Kubernetes cluster made of KubeVirt virtual machines.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Control Plane", type_ = "string", json_path = ".status.controlPlane.summary"),
    printcolumn(name = "Workers", type_ = "string", json_path = ".status.workersSummary"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.size() <= 30 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("the name becomes part of host names: use at most 30 lower-case letters, digits and '-', without dots, starting with a letter"),
)]
#[x_kube(validation = Rule::new("self.workers.all(w, self.workers.exists_one(o, o.name == w.name))")
    .message("each worker pool needs a name of its own"))]
#[x_kube(validation = Rule::new("self.topology != 'Converged' || self.workers.size() == 0")
    .message("topology Converged has no worker pools, since every control-plane machine is a worker too: remove workers, or write topology: Dedicated"))]
#[x_kube(validation = Rule::new("self.profile != 'Lab' || self.controlPlane.replicas == 1")
    .message("profile Lab has one control-plane machine: write controlPlane.replicas: 1, or profile: Production"))]
#[serde(rename_all = "camelCase")]
pub struct GuestClusterSpec {
    /// Label value, quota and policy key of the owner. Default: the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("tenant becomes a label value: use lower-case letters, digits and '-'"))]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("tenant cannot be changed: it is a label of every machine"))]
    pub tenant: Option<String>,

    /// Kubernetes version of the guest, such as `v1.36.3`; v1.34 to v1.37 are supported.
    #[schemars(length(max = 20))]
    #[x_kube(validation = Rule::new("self.matches('^v1[.](34|35|36|37)[.](0|[1-9][0-9]*)$')")
        .message("version must be a supported Kubernetes release, written like v1.36.3; supported are v1.34, v1.35, v1.36 and v1.37"))]
    pub version: String,

    /// Where the machines' root disks come from; imported once per namespace and cloned per machine.
    pub image: Image,

    /// Where workloads run: `Dedicated`, on worker machines apart from the control plane; or
    /// `Converged`, on the control-plane machines, each of which keeps room for its API server and
    /// etcd.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("topology cannot be changed: a machine is what it first booted as; create a new cluster"))]
    pub topology: Topology,

    /// What the guest is for: `Production`, with control-plane machines on hosts of their own; or
    /// `Lab`, with one control-plane machine, which may share its host with any other and whose
    /// loss the guest does not survive. A change replaces the control-plane machines.
    #[serde(default)]
    pub profile: Profile,

    /// The machines that run the guest's API servers and etcd.
    #[serde(default)]
    pub control_plane: ControlPlane,

    /// Worker pools.
    #[serde(default)]
    #[schemars(length(max = 50))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_string()]))]
    pub workers: Vec<WorkerPool>,

    /// Ranges and the machines' network.
    #[serde(default)]
    pub network: GuestNetwork,

    /// What is applied into the guest and kept there.
    #[serde(default)]
    pub addons: Addons,

    /// What deletion may do.
    #[serde(default)]
    pub deletion: Deletion,

    /// What follows if the loss of a host would leave machines without a host: `Enforce`, no machine
    /// is added that would make it so; `Warn`, it is added and the condition `CapacityAvailable`
    /// tells; or `Ignore`. Machines that exist are never touched because of it.
    #[serde(default)]
    pub capacity_policy: CapacityPolicy,

    /// Whose loss `capacityPolicy` is about: `Host`, that of any one host; or `Zone`, that of all hosts
    /// with one value of the label `topology.kubernetes.io/zone` as well.
    #[serde(default)]
    pub capacity_scope: CapacityScope,

    /// What the operator may mend by itself.
    #[serde(default)]
    pub repair: Repair,

    /// How machines are moved off their hosts.
    #[serde(default)]
    pub maintenance: Maintenance,

    /// Stop all writes of the operator for this cluster; the guest keeps running.
    #[serde(default)]
    pub paused: bool,
}

/// Where workloads run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// On worker machines; a taint keeps them off the control plane.
    #[default]
    Dedicated,
    /// On the control-plane machines.
    Converged,
}

/// What a guest is for.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Serving: no two of its control-plane machines share a host.
    #[default]
    Production,
    /// Trying out, on one host if need be.
    Lab,
}

/// The machines that run the guest's API servers and etcd.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlane {
    /// Number of control-plane machines: 1, 3 or 5, each on a host of its own.
    #[serde(default = "three")]
    #[x_kube(validation = Rule::new("self in [1, 3, 5]")
        .message("replicas must be 1, 3 or 5: etcd needs an odd number of members; write 3 to survive the loss of one host, 5 for two"))]
    pub replicas: i32,

    /// Size and disks of each machine.
    #[serde(default)]
    pub machine: Machine,

    /// Which hosts may carry them.
    #[serde(default)]
    pub placement: Placement,

    /// How the guest's API is reached.
    #[serde(default)]
    pub endpoint: Endpoint,

    /// How long the certificates of a machine live, in hours or minutes such as `8760h` (kubeadm's
    /// `certificateValidityPeriod`). A machine is replaced when a third of that is left.
    #[serde(default = "a_year")]
    #[schemars(length(max = 10))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]*[hm]$') && duration(self) >= duration('2m') && duration(self) <= duration('87600h')")
        .message("certificateValidityPeriod must be hours or minutes up to ten years, written like 8760h"))]
    pub certificate_validity_period: String,

    /// Extra arguments of kube-apiserver.
    #[serde(default)]
    pub api_server: Component,
    /// Extra arguments of kube-controller-manager.
    #[serde(default)]
    pub controller_manager: Component,
    /// Extra arguments of kube-scheduler.
    #[serde(default)]
    pub scheduler: Component,
    /// Extra arguments of etcd.
    #[serde(default)]
    #[x_kube(validation = Rule::new("!has(self.extraArgs) || !self.extraArgs.exists(k, k in ['listen-client-urls', 'listen-peer-urls', 'advertise-client-urls', 'initial-advertise-peer-urls', 'initial-cluster', 'initial-cluster-state', 'name', 'data-dir', 'peer-skip-client-san-verification'])")
        .message("the operator sets etcd's addresses, name and data folder so that members survive a restart: leave these arguments out"))]
    pub etcd: Component,

    /// How long the drain of a machine may wait for Pods to go, in seconds; 0 waits as long as their
    /// PodDisruptionBudgets ask.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_timeout_seconds: i32,
}

impl Default for ControlPlane {
    fn default() -> Self {
        Self {
            replicas: three(),
            machine: Machine::default(),
            placement: Placement::default(),
            endpoint: Endpoint::default(),
            certificate_validity_period: a_year(),
            api_server: Component::default(),
            controller_manager: Component::default(),
            scheduler: Component::default(),
            etcd: Component::default(),
            drain_timeout_seconds: 0,
        }
    }
}

/// A component of the control plane.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Arguments by name, without leading dashes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub extra_args: BTreeMap<String, String>,
}

/// A pool of worker machines.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkerPool {
    /// Name of the pool, part of its machines' names.
    #[schemars(length(min = 1, max = 20))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && self != 'cp'")
        .message("a pool's name becomes part of host names: use at most 20 lower-case letters, digits and '-', starting with a letter; 'cp' is the control plane"))]
    pub name: String,
    /// Number of machines.
    #[schemars(range(min = 0, max = 500))]
    pub replicas: i32,
    /// Size and disk of each machine.
    #[serde(default)]
    #[x_kube(validation = Rule::new("!has(self.etcdDisk)").message("workers have no etcd: remove etcdDisk"))]
    pub machine: Machine,
    /// Devices of its host that each machine holds. They are counted like CPUs and memory wherever
    /// room is. A machine that holds any never moves while it runs: where its host is emptied, it is
    /// shut down and starts on another host that has such devices free. A change replaces the
    /// machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["deviceName".to_string()]))]
    #[x_kube(validation = Rule::new("self.all(d, self.exists_one(o, o.deviceName == d.deviceName))")
        .message("each device stands once in a pool: write count for several of it"))]
    pub devices: Vec<Device>,
    /// How many machines of the tenant, of whatever guest and role, one host may carry; the lowest
    /// number that a pool of the tenant names holds for all. The scheduler knows no such limit: what
    /// is above it is told of, and foresight counts no host beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 500))]
    pub max_per_host: Option<i32>,
    /// Labels of its Nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: BTreeMap<String, String>,
    /// Taints of its Nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub taints: Vec<Taint>,
    /// Which hosts may carry them.
    #[serde(default)]
    pub placement: Placement,
    /// How far the pool may stray from its size while its machines are replaced.
    #[serde(default)]
    pub rollout: Rollout,
    /// How long the drain of a machine may wait for Pods to go, in seconds; 0 waits as long as their
    /// PodDisruptionBudgets ask.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_timeout_seconds: i32,
}

/// How far a pool may stray from its size while its machines are replaced.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[x_kube(validation = Rule::new("self.maxSurge + self.maxUnavailable >= 1")
    .message("a rollout that may neither add a machine nor miss one replaces none: write maxSurge: 1, or maxUnavailable: 1 where no host has room for one more"))]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Machines that there may be beyond `replicas`.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 500))]
    pub max_surge: i32,
    /// Machines that may be missing from `replicas`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 500))]
    pub max_unavailable: i32,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            max_surge: one(),
            max_unavailable: 0,
        }
    }
}

const fn one() -> i32 {
    1
}

/// What is applied into the guest and kept there.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Addons {
    /// The guest's pod network: `Flannel` (VXLAN), or `None` to bring your own.
    #[serde(default)]
    pub cni: Cni,
}

/// What deletion may do.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// Refuse deletion of the cluster until this is false again.
    #[serde(default)]
    pub protected: bool,
    /// What becomes of the machines' disks when the cluster is deleted.
    #[serde(default)]
    pub disks: DiskPolicy,
}

/// What becomes of disks.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskPolicy {
    /// They go with the cluster.
    #[default]
    Delete,
    /// Their claims stay, labelled, without an owner.
    Retain,
}

fn a_year() -> String {
    "8760h".to_owned()
}

const fn three() -> i32 {
    3
}
