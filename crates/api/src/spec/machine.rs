//! Machines: size, disks, image and the hosts that may carry them.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Source of the root disks: exactly one of the three.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = Rule::new("[has(self.registry), has(self.pvc), has(self.http)].filter(x, x).size() == 1")
    .message("image needs exactly one source: write one of registry, pvc or http"))]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// A container disk in a registry, with tag or digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^[^@]+@sha256:[0-9a-f]{64}$') || self.matches('^[^@]*/[^/:@]+:[A-Za-z0-9_][A-Za-z0-9_.-]*$')")
        .message("image.registry needs a registry and a tag or digest, such as registry.example.com/guest/node:v1.36.3@sha256:<64 hexadecimal digits>"))]
    pub registry: Option<String>,
    /// A claim in this namespace that holds the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<ImagePvc>,
    /// A file served over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<ImageHttp>,
}

/// A claim that holds a disk image.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ImagePvc {
    /// Name of the PersistentVolumeClaim, in the GuestCluster's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A disk image served over HTTP.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ImageHttp {
    /// Where it is.
    #[schemars(length(min = 1, max = 1000))]
    #[x_kube(validation = Rule::new("self.startsWith('https://') || self.startsWith('http://')")
        .message("image.http.url must start with https:// or http://"))]
    pub url: String,
    /// Its digest, `sha256:<64 hexadecimal digits>`.
    #[schemars(length(max = 71))]
    #[x_kube(validation = Rule::new("self.matches('^sha256:[0-9a-f]{64}$')")
        .message("image.http.checksum must be sha256:<64 hexadecimal digits>"))]
    pub checksum: String,
}

/// Size and disks of one machine. CPUs are pinned and memory is reserved: what is written here is
/// what the machine has.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = Rule::new("!has(self.numa) || has(self.hugepages)")
    .message("numa needs hugepages as well: set hugepages to 2Mi or 1Gi"))]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Whole CPUs, each of its own.
    #[serde(default = "four")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 256")
        .message("cpu must be a whole number from 1 to 256: CPUs are pinned, so fractions and zero cannot be given"))]
    pub cpu: i32,
    /// Memory, such as `8Gi`.
    #[serde(default = "eight_gibibytes")]
    #[schemars(length(max = 20))]
    #[x_kube(validation = Rule::new("isQuantity(self) && quantity(self).compareTo(quantity('1Gi')) >= 0 && quantity(self).compareTo(quantity('4Ti')) <= 0")
        .message("memory must be a quantity from 1Gi to 4Ti, written like 8Gi"))]
    pub memory: String,
    /// The disk that the image is cloned to.
    #[serde(default)]
    pub root_disk: Disk,
    /// A disk of its own for etcd; default: on the root disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_disk: Option<Disk>,
    /// Back the memory with huge pages of this size: `2Mi` or `1Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 3))]
    #[x_kube(validation = Rule::new("self in ['2Mi', '1Gi']").message("hugepages must be 2Mi or 1Gi"))]
    pub hugepages: Option<String>,
    /// `Passthrough`: give the guest the host's NUMA topology; needs hugepages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<Numa>,
    /// One more pinned CPU for the hypervisor's own thread.
    #[serde(default)]
    pub isolate_emulator_thread: bool,
    /// PriorityClass of the machine's launcher Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            cpu: four(),
            memory: eight_gibibytes(),
            root_disk: Disk::default(),
            etcd_disk: None,
            hugepages: None,
            numa: None,
            isolate_emulator_thread: false,
            priority_class_name: None,
        }
    }
}

const fn four() -> i32 {
    4
}

fn eight_gibibytes() -> String {
    "8Gi".to_owned()
}

/// How a machine sees its host's memory nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// As the host has them.
    Passthrough,
}

/// A persistent disk.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Size, such as `20Gi`.
    #[serde(default = "twenty_gibibytes")]
    #[schemars(length(max = 20))]
    #[x_kube(validation = Rule::new("isQuantity(self) && quantity(self).compareTo(quantity('1Gi')) >= 0")
        .message("size must be a quantity of at least 1Gi, written like 20Gi"))]
    pub size: String,
    /// StorageClass; default: the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
    /// Who may have the disk attached at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
}

/// Who may have the disk attached at the same time: one host, or several (`ReadWriteMany`), which the
/// StorageClass must offer. Live migration needs `ReadWriteMany` on every disk of a machine, and
/// `network.machine.binding: Masquerade`. Default: what CDI's StorageProfile of the class says, which
/// most often is `ReadWriteOnce`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// One host.
    ReadWriteOnce,
    /// Several hosts, as a live migration needs for the moment at which the machine moves.
    ReadWriteMany,
}

impl AccessMode {
    /// As claims are told.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadWriteMany => "ReadWriteMany",
        }
    }
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            size: twenty_gibibytes(),
            storage_class_name: None,
            access_mode: None,
        }
    }
}

fn twenty_gibibytes() -> String {
    "20Gi".to_owned()
}

/// Which hosts may carry a machine.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Labels that a host must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of hosts that are tolerated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// A tolerated taint, as in a Pod.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// Key of the taint; empty with operator `Exists` tolerates all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `Exists` or `Equal` (default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// Value that must be equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Effect; empty means all effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// A taint of a guest Node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// Value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[schemars(length(max = 20))]
    #[x_kube(validation = Rule::new("self in ['NoSchedule', 'PreferNoSchedule', 'NoExecute']")
        .message("effect must be NoSchedule, PreferNoSchedule or NoExecute"))]
    pub effect: String,
}
