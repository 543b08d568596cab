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
/// The label by which Cluster API tells control-plane Machines.
pub const CONTROL_PLANE_MACHINE: &str = "cluster.x-k8s.io/control-plane";
/// The label with a machine's role, which CAPK puts on VMs and their Pods.
pub const ROLE: &str = "cluster.x-k8s.io/role";
/// The type of Secrets with authorities.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
/// Our annotation on an exported Cluster: what Cluster API has no place for, by path.
pub const KEPT: &str = "guestcluster.dev/kept-by-export";
