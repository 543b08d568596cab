//! Names that Cluster API and its KubeVirt provider (CAPK) give to groups, labels and annotations.

/// The API group of Cluster, Machine, MachineSet, MachineDeployment and MachineHealthCheck.
pub const CORE: &str = "cluster.x-k8s.io";
/// The API group of KubevirtCluster, KubevirtMachine and their templates.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// The API group of KubeadmConfig and KubeadmConfigTemplate.
pub const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
/// The API group of KubeadmControlPlane.
pub const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";

/// The label that names an object's Cluster.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
