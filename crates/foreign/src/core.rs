//! Slim views of Kubernetes' own kinds, for stores that hold every host and Pod.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod, Service, Taint, VolumeNodeAffinity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A host: what placement needs of a Node.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[resource(inherit = Node)]
pub struct HostNode {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Taints, schedulability, pod ranges.
    #[serde(default)]
    pub spec: HostNodeSpec,
    /// Allocatable and readiness.
    #[serde(default)]
    pub status: HostNodeStatus,
}

/// Part of a Node's spec.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HostNodeSpec {
    /// Taints.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// Cordoned.
    #[serde(default)]
    pub unschedulable: bool,
    /// Ranges of the pods on this host.
    #[serde(default, rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
}

/// Part of a Node's status.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HostNodeStatus {
    /// What Pods may request.
    #[serde(default)]
    pub allocatable: BTreeMap<String, Quantity>,
    /// Conditions, of which `Ready` matters.
    #[serde(default)]
    pub conditions: Vec<HostCondition>,
}

/// A Node's condition.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct HostCondition {
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

impl HostNode {
    /// Whether the kubelet says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.status
            .conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
    }
}

/// A launcher Pod: where it runs and why it may not.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[resource(inherit = Pod)]
pub struct LauncherPod {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The host.
    #[serde(default)]
    pub spec: LauncherPodSpec,
    /// Phase and conditions.
    #[serde(default)]
    pub status: LauncherPodStatus,
}

/// Part of a Pod's spec.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LauncherPodSpec {
    /// The host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// Part of a Pod's status.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LauncherPodStatus {
    /// Phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Address.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "podIP")]
    pub pod_ip: Option<String>,
    /// Conditions, of which `PodScheduled` carries the scheduler's reason.
    #[serde(default)]
    pub conditions: Vec<PodCondition>,
}

/// A Pod's condition.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct PodCondition {
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A Service: its address.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[resource(inherit = Service)]
pub struct SlimService {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Addresses and ports.
    #[serde(default)]
    pub spec: SlimServiceSpec,
    /// Load balancer addresses.
    #[serde(default)]
    pub status: SlimServiceStatus,
}

/// Part of a Service's spec.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SlimServiceSpec {
    /// `ClusterIP`, `NodePort` or `LoadBalancer`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    pub type_: Option<String>,
    /// Labels of the Pods behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<BTreeMap<String, String>>,
    /// Address inside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    /// Ports.
    #[serde(default)]
    pub ports: Vec<SlimServicePort>,
}

/// A Service's port.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SlimServicePort {
    /// Port.
    pub port: i32,
    /// Port on every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<i32>,
}

/// Part of a Service's status.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SlimServiceStatus {
    /// What the load balancer said.
    #[serde(default)]
    pub load_balancer: SlimLoadBalancer,
}

/// A load balancer's addresses.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct SlimLoadBalancer {
    /// Addresses.
    #[serde(default)]
    pub ingress: Vec<SlimIngress>,
}

/// An address of a load balancer.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct SlimIngress {
    /// Address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// A volume: whose it is, and from where it can be reached.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[resource(inherit = PersistentVolume)]
pub struct SlimVolume {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Claim and hosts.
    #[serde(default)]
    pub spec: SlimVolumeSpec,
}

/// Part of a volume's spec.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SlimVolumeSpec {
    /// The claim that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ClaimRef>,
    /// Hosts that can reach it; absent if the driver says nothing of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_affinity: Option<VolumeNodeAffinity>,
}

/// The claim that a volume is for.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ClaimRef {
    /// Namespace.
    #[serde(default)]
    pub namespace: String,
    /// Name.
    #[serde(default)]
    pub name: String,
}
