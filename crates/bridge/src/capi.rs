//! Names that Cluster API and its KubeVirt provider (CAPK) give to groups, labels, annotations and
//! finalizers, and the names that follow from others.

pub use guestcluster_api::labels::{CAPI_CLUSTER as CLUSTER_NAME, CAPI_ROLE as ROLE};
pub use guestcluster_api::names::secrets::kubeconfig as kubeconfig_secret;

/// The API group of Cluster, Machine, MachineSet, MachineDeployment and MachineHealthCheck.
pub const CORE: &str = "cluster.x-k8s.io";
/// The API group of KubevirtCluster, KubevirtMachine and their templates.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// The API group of KubeadmConfig and KubeadmConfigTemplate.
pub const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
/// The API group of KubeadmControlPlane.
pub const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";

/// Label on the Machines of a control plane.
pub const CONTROL_PLANE_MACHINE: &str = "cluster.x-k8s.io/control-plane";
/// Label on a Machine or MachineSet: its MachineDeployment.
pub const DEPLOYMENT: &str = "cluster.x-k8s.io/deployment-name";
/// Annotation: no controller is to change the object.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
/// Annotation on an infrastructure's object: another than its provider takes care of it.
pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";
/// Annotation: clusterctl deletes the object here because it has made it elsewhere.
pub const MOVED: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";
/// Type of the Secrets of Cluster API and its providers.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";

/// Key of a guest's kubeconfig in its Secret.
pub const KUBECONFIG_KEY: &str = "value";

/// Our annotation on an exported Cluster: what Cluster API has no place for, by path.
pub const KEPT: &str = "guestcluster.dev/kept-by-export";

/// Label on a VirtualMachine and its Pods: name of the KubevirtMachine.
pub const MACHINE_NAME: &str = "capk.cluster.x-k8s.io/kubevirt-machine-name";
/// Label on a VirtualMachine and its Pods: namespace of the KubevirtMachine.
pub const MACHINE_NAMESPACE: &str = "capk.cluster.x-k8s.io/kubevirt-machine-namespace";
/// Label by which a person declares a VirtualMachine or its instance lost; its value says why.
pub const TERMINAL: &str = "capk.cluster.x-k8s.io/vm-is-terminal";
/// Finalizer on a KubevirtCluster.
pub const CLUSTER_FINALIZER: &str = "kubevirtcluster.infrastructure.cluster.x-k8s.io";
/// Finalizer on a KubevirtMachine.
pub const MACHINE_FINALIZER: &str = "kubevirtmachine.infrastructure.cluster.x-k8s.io";

/// Name of the Service before the API servers of a Cluster.
pub fn endpoint_service(cluster: &str) -> String {
    format!("{cluster}-lb")
}

/// Name of the Secret from which a machine boots, by that of its bootstrap Secret.
pub fn user_data_secret(bootstrap: &str) -> String {
    format!("{bootstrap}-userdata")
}

/// What a Node carries as `spec.providerID`, by the name of its KubevirtMachine.
pub fn provider_id(machine: &str) -> String {
    format!("kubevirt://{machine}")
}
