//! Cluster API Provider KubeVirt: `infrastructure.cluster.x-k8s.io/v1alpha1`.
//!
//! Two schemas go by that version: the one of release 0.11 and the one of the main branch. They
//! differ in the shape of conditions and failure domains, which are kept as JSON here.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A KubevirtCluster: the endpoint of a guest.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "KubevirtCluster",
    plural = "kubevirtclusters",
    namespaced,
    status = "KubevirtClusterStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct KubevirtClusterSpec {
    /// Where the guest's API is; empty until it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// What the endpoint's Service is like.
    #[serde(default)]
    pub control_plane_service_template: ServiceTemplate,
    /// Keys for logging in to machines.
    #[serde(default)]
    pub ssh_keys: SshKeys,
    /// Kubeconfig of another infrastructure cluster that runs the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_cluster_secret_ref: Option<SecretReference>,
}

/// Where an API is.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name or address.
    #[serde(default)]
    pub host: String,
    /// Port.
    #[serde(default)]
    pub port: i32,
}

/// What the endpoint's Service is like.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ServiceTemplate {
    /// Labels, annotations and namespace.
    #[serde(default)]
    pub metadata: TemplateMeta,
    /// Its type.
    #[serde(default)]
    pub spec: ServiceTemplateSpec,
}

/// The part of a Service that a template says.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceTemplateSpec {
    /// `ClusterIP`, `NodePort` or `LoadBalancer`; absent means `ClusterIP`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
}

/// What a template says of an object's metadata.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateMeta {
    /// Namespace, if it is not that of the infrastructure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// Keys for logging in to machines.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SshKeys {
    /// Name of the Secret with `pub` and `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
}

/// A Secret, with its namespace.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretReference {
    /// Namespace.
    #[serde(default)]
    pub namespace: String,
    /// Name.
    #[serde(default)]
    pub name: String,
}

/// What a provider reports of a KubevirtCluster.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct KubevirtClusterStatus {
    /// The endpoint is there.
    #[serde(default)]
    pub ready: bool,
    /// The same, where the schema has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Zones of hosts: a map, or a list, by schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domains: Option<Value>,
    /// Conditions of the schema's shape.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Value>,
}

/// Whether an object has been there once.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Initialization {
    /// It has.
    #[serde(default)]
    pub provisioned: bool,
}

/// A KubevirtMachine: one virtual machine of a guest.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "KubevirtMachine",
    plural = "kubevirtmachines",
    namespaced,
    status = "KubevirtMachineStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct KubevirtMachineSpec {
    /// The machine as its user wrote it.
    #[serde(default)]
    pub virtual_machine_template: VirtualMachineTemplate,
    /// The Node's `spec.providerID`, once it is known.
    #[serde(
        default,
        rename = "providerID",
        skip_serializing_if = "Option::is_none"
    )]
    pub provider_id: Option<String>,
    /// How the end of the first boot is found out.
    #[serde(default)]
    pub virtual_machine_bootstrap_check: BootstrapCheck,
    /// Kubeconfig of another infrastructure cluster that runs the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra_cluster_secret_ref: Option<SecretReference>,
}

/// A virtual machine as its user wrote it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct VirtualMachineTemplate {
    /// Labels, annotations and namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMeta>,
    /// KubeVirt's VirtualMachineSpec, verbatim.
    #[serde(default)]
    pub spec: Value,
}

/// How the end of the first boot is found out.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapCheck {
    /// `ssh` or `none`; absent means `ssh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_strategy: Option<String>,
}

/// What a provider reports of a KubevirtMachine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct KubevirtMachineStatus {
    /// The machine runs and has booted.
    #[serde(default)]
    pub ready: bool,
    /// It has done so once, where the schema has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Host name and addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Conditions of the schema's shape.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Value>,
    /// The Node carries the provider's id. The schema spells it so.
    #[serde(default)]
    pub nodeupdated: bool,
    /// One word, if the machine is beyond help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why it is beyond help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
}

/// A name or address of a machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineAddress {
    /// `Hostname`, `InternalIP`, `ExternalIP` or `InternalDNS`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The name or address.
    pub address: String,
}

/// A KubevirtMachineTemplate: what the machines of a pool are made from.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "KubevirtMachineTemplate",
    plural = "kubevirtmachinetemplates",
    namespaced,
    status = "KubevirtMachineTemplateStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
pub struct KubevirtMachineTemplateSpec {
    /// The machine.
    #[serde(default)]
    pub template: KubevirtMachineTemplateResource,
}

/// The machine of a template.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct KubevirtMachineTemplateResource {
    /// What a KubevirtMachine made from it says.
    #[serde(default)]
    pub spec: KubevirtMachineSpec,
}

/// What a provider reports of a template.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct KubevirtMachineTemplateStatus {
    /// What a machine made from it offers, for an autoscaler that begins at none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, String>,
}
