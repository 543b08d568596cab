//! What a document is rendered from. Everything but [`Secrets`] is public and may be compared,
//! logged and kept in a plan.

use std::{collections::BTreeMap, fmt, net::Ipv4Addr};

use guestcluster_pki::{BootstrapToken, Certificate, ClusterPki};
use serde::Serialize;

use crate::{Size, Version};

/// Port of the API server on a control-plane machine.
pub const API_SERVER_PORT: u16 = 6443;

/// One machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfig {
    /// The cluster it belongs to.
    pub cluster: ClusterConfig,
    /// Its name: host name, Node name, etcd member name and name of its VirtualMachine.
    pub name: String,
    /// Cluster address, in the infrastructure cluster, of the machine's own Service. Required
    /// for the control plane and with [`Binding::Masquerade`], otherwise none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_address: Option<Ipv4Addr>,
    /// Labels that the kubelet gives its Node when it registers.
    pub labels: BTreeMap<String, String>,
    /// Taints that the kubelet gives its Node when it registers: exactly these, so the usual
    /// [`Taint::control_plane`] must be among them where it is wanted.
    pub taints: Vec<Taint>,
    /// Its size, if it is a control-plane machine that carries workloads as well: then room is kept
    /// for the control plane (see [`Reservation`](crate::Reservation)), and kubeadm does not mark
    /// its Node, neither with a taint nor with labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converged: Option<Size>,
    /// What it is to become.
    pub role: Role,
}

/// What all machines of a guest share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfig {
    /// Name of the cluster.
    pub name: String,
    /// Version of Kubernetes, which the image must carry.
    pub version: Version,
    /// Where the guest's API is reached.
    pub endpoint: Endpoint,
    /// IPv4 range of Pods, such as `10.200.0.0/16`.
    pub pod_cidr: String,
    /// IPv4 range of Services, such as `10.201.0.0/16`.
    pub service_cidr: String,
    /// Domain of Services, such as `cluster.local`.
    pub dns_domain: String,
    /// How machines are attached to the infrastructure's pod network.
    pub binding: Binding,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// An IPv4 address or a host name.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How KubeVirt attaches a machine to the pod network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Binding {
    /// The machine has the address of its Pod. It changes at a restart, which only the control
    /// plane minds: there the Service address takes its place.
    Bridge,
    /// Every machine has the same private address and is reached through its Pod's. Then every
    /// machine, worker or not, must name itself by its Service address, or the API server would
    /// look for all kubelets on its own machine.
    Masquerade,
}

/// What a machine is to become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all_fields = "camelCase")]
pub enum Role {
    /// The first control-plane machine, once in the life of a guest.
    Init {
        /// Whether etcd has a disk of its own, attached with the serial `etcd`.
        etcd_disk: bool,
        /// Settings of the control plane; later machines take them from the guest.
        components: Components,
    },
    /// A further control-plane machine.
    JoinControlPlane {
        /// Whether etcd has a disk of its own, attached with the serial `etcd`.
        etcd_disk: bool,
    },
    /// A worker.
    JoinWorker,
}

impl Role {
    /// Whether the machine runs an API server and etcd.
    pub const fn is_control_plane(&self) -> bool {
        !matches!(self, Self::JoinWorker)
    }

    pub(crate) const fn has_etcd_disk(&self) -> bool {
        match self {
            Self::Init { etcd_disk, .. } | Self::JoinControlPlane { etcd_disk } => *etcd_disk,
            Self::JoinWorker => false,
        }
    }
}

/// Settings of the control plane: arguments by name, without leading dashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Components {
    /// Names and addresses of the API server's certificate besides those that kubeadm adds
    /// itself (machine, Service addresses, endpoint).
    pub cert_sans: Vec<String>,
    /// How long certificates live, as kubeadm reads durations; `None` is kubeadm's year.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_validity_period: Option<String>,
    /// Arguments of kube-apiserver.
    pub api_server: BTreeMap<String, String>,
    /// Arguments of kube-controller-manager.
    pub controller_manager: BTreeMap<String, String>,
    /// Arguments of kube-scheduler.
    pub scheduler: BTreeMap<String, String>,
    /// Arguments of etcd.
    pub etcd: BTreeMap<String, String>,
}

/// A taint of a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What it does.
    pub effect: TaintEffect,
}

impl Taint {
    /// The taint that keeps ordinary Pods off the control plane.
    pub fn control_plane() -> Self {
        Self {
            key: "node-role.kubernetes.io/control-plane".to_owned(),
            value: None,
            effect: TaintEffect::NoSchedule,
        }
    }
}

/// What a taint does to Pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TaintEffect {
    /// They are not placed here.
    NoSchedule,
    /// They are placed elsewhere if possible.
    PreferNoSchedule,
    /// They are evicted, too.
    NoExecute,
}

impl std::str::FromStr for TaintEffect {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "NoSchedule" => Ok(Self::NoSchedule),
            "PreferNoSchedule" => Ok(Self::PreferNoSchedule),
            "NoExecute" => Ok(Self::NoExecute),
            _ => Err(crate::Error::BadValue {
                what: "taint effect",
                value: text.to_owned(),
                expected: "NoSchedule, PreferNoSchedule or NoExecute",
            }),
        }
    }
}

/// What only the machine may see.
#[derive(Clone, Copy, Debug)]
pub enum Secrets<'a> {
    /// For [`Role::Init`] and [`Role::JoinControlPlane`].
    ControlPlane {
        /// All of the guest's key material.
        pki: &'a ClusterPki,
        /// For `Init` kubeadm makes it valid for a minute, since nobody uses it; for a join it must
        /// be valid already.
        token: &'a BootstrapToken,
    },
    /// For [`Role::JoinWorker`].
    Worker {
        /// The guest's Kubernetes authority (its certificate alone), which the worker must meet.
        authority: &'a Certificate,
        /// Must be valid already.
        token: &'a BootstrapToken,
    },
}
