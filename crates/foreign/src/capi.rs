//! Cluster API: `cluster.x-k8s.io/v1beta2`, which its releases serve since 1.11.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// A Cluster: which objects together make a guest.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    plural = "clusters",
    namespaced,
    status = "ClusterStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// No controller is to change anything of the cluster.
    #[serde(default)]
    pub paused: bool,
    /// The infrastructure's object.
    #[serde(default)]
    pub infrastructure_ref: ContractReference,
}

/// A reference to an object of a provider in the same namespace.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ContractReference {
    /// Group, without a version.
    #[serde(default)]
    pub api_group: String,
    /// Kind.
    #[serde(default)]
    pub kind: String,
    /// Name.
    #[serde(default)]
    pub name: String,
}

/// What Cluster API reports of a Cluster.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// What has come about once and stays so.
    #[serde(default)]
    pub initialization: ClusterInitialization,
}

/// Milestones of a Cluster.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInitialization {
    /// The infrastructure has told that it is there.
    #[serde(default)]
    pub infrastructure_provisioned: bool,
    /// The control plane has answered for the first time.
    #[serde(default)]
    pub control_plane_initialized: bool,
}

/// A Machine: one node of a guest.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Machine",
    plural = "machines",
    namespaced,
    status = "MachineStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// Name of its Cluster.
    #[serde(default)]
    pub cluster_name: String,
    /// Where its first-boot document is.
    #[serde(default)]
    pub bootstrap: Bootstrap,
    /// The infrastructure's object.
    #[serde(default)]
    pub infrastructure_ref: ContractReference,
    /// Where it is to stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// How it goes.
    #[serde(default)]
    pub deletion: MachineDeletion,
}

/// The first-boot document of a Machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// Name of the Secret that holds it, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
}

/// How a Machine goes.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeletion {
    /// The longest that its Pods are waited for, in seconds; 0 or absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_drain_timeout_seconds: Option<i32>,
}

/// What Cluster API reports of a Machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Its Node, once the guest shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<NodeReference>,
}

/// A Node of the guest.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReference {
    /// Name.
    #[serde(default)]
    pub name: String,
}
