//! All that a plan may look at: owned values, taken once.
//!
//! Objects of the infrastructure cluster come from watches. What is asked over the network is a
//! [`Probe`]: unknown is a value, absence is another.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::host_maintenance::CapacityPolicy;
use guestcluster_api::{labels, names};
pub use guestcluster_capacity::{Holding, Host, Quantity, Usage};
pub use guestcluster_placement::{Demand, Property, Reach, Test};
use k8s_openapi::jiff::Timestamp;

use crate::cidr::Cidr;
use crate::foresight::FleetView;

/// An answer that may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Probe<T> {
    /// It answered.
    Known(T),
    /// It was asked and did not answer; the text says why.
    Unreachable(String),
    /// It was not asked.
    #[default]
    NotAsked,
}

impl<T> Probe<T> {
    /// The answer, if there is one.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unreachable(_) | Self::NotAsked => None,
        }
    }
}

/// One snapshot of a guest cluster and what surrounds it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The infrastructure cluster.
    pub infra: Infra,
    /// Secrets of this cluster, by name; never their content.
    pub secrets: BTreeMap<String, Secret>,
    /// What was found wrong in the authorities' Secrets when they were last read, by Secret name.
    pub damaged_secrets: BTreeMap<String, String>,
    /// Services of this cluster, by name.
    pub services: BTreeMap<String, Service>,
    /// EndpointSlices of this cluster, by name.
    pub slices: BTreeMap<String, Slice>,
    /// DataVolumes of this cluster, and the golden image, by name.
    pub disks: BTreeMap<String, Disk>,
    /// Claims of this cluster, by name.
    pub claims: BTreeMap<String, Meta>,
    /// Volumes under those claims that have one, by claim; none as long as volumes have not been
    /// listed, which may be for ever where nobody lets us.
    pub volumes: Option<BTreeMap<String, Volume>>,
    /// VirtualMachines of this cluster, by name.
    pub vms: BTreeMap<String, Vm>,
    /// Their instances, by name.
    pub instances: BTreeMap<String, Instance>,
    /// Migrations that the operator asked for, by name.
    pub migrations: BTreeMap<String, Migration>,
    /// Migration policies of this cluster, by name; `None` where KubeVirt has no such kind.
    pub migration_policies: Option<BTreeMap<String, MigrationPolicy>>,
    /// Names that our next objects need and that others hold, with what holds them.
    pub taken: BTreeMap<String, String>,
    /// Other clusters of the namespace use the golden image too.
    pub image_shared: bool,
    /// Golden images of the namespace that no cluster's specification names any more.
    pub stale_images: BTreeMap<String, Meta>,
    /// `kubeadm init` has not come to its end: what it applies last, the add-on kube-proxy, is not
    /// in the guest. Asked only until the cluster is initialised.
    pub init_unfinished: bool,
    /// The guest, asked through its API.
    pub guest: Probe<Guest>,
    /// The guest's etcd.
    pub etcd: Probe<Etcd>,
    /// A connection to the endpoint, at the address that users and workers dial.
    pub endpoint: Probe<()>,
    /// The certificate of each control-plane machine's API server, as far as it was asked.
    pub certificates: BTreeMap<String, Certificate>,
    /// Addresses to which the endpoint Service leads now.
    pub serving: BTreeSet<String>,
    /// Members of etcd answer for themselves, and none knows a leader.
    pub quorum_lost: bool,
    /// All guests together; none as long as it has not been worked out.
    pub fleet: Option<FleetView>,
    /// Last lines of the consoles of machines whose first boot is not over, by machine.
    pub consoles: BTreeMap<String, Vec<String>>,
}

impl Observed {
    /// Nobody gets through at the endpoint: not we, and no worker is heard of either. Where workers are,
    /// it is our own way there that is cut.
    pub fn is_endpoint_dark(&self) -> bool {
        let is_worker = |node: &GuestNode| {
            let pool = node.labels.get(labels::NODE_POOL);
            pool.is_some_and(|pool| pool != names::CONTROL_PLANE_POOL)
        };
        let nodes = self.guest.known().map(|guest| guest.nodes.values());
        let heard = nodes.is_some_and(|mut all| all.any(|node| node.ready && is_worker(node)));
        matches!(self.endpoint, Probe::Unreachable(_)) && !heard
    }

    /// Pods of the guest that stand in the way of drains.
    pub fn guest_pods_mut(&mut self) -> impl Iterator<Item = &mut GuestPod> {
        let guest = match &mut self.guest {
            Probe::Known(guest) => Some(guest),
            Probe::Unreachable(_) | Probe::NotAsked => None,
        };
        guest
            .into_iter()
            .flat_map(|guest| guest.pods.values_mut().flatten())
    }
}

/// The certificate that a machine's API server shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Certificate {
    /// When it ends.
    pub ends: Timestamp,
    /// Names and addresses that it vouches for.
    pub names: BTreeSet<String>,
}

/// What matters of the infrastructure cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Infra {
    /// The namespace carries the label that gives it to guests.
    pub namespace_for_guests: bool,
    /// Pod ranges; empty if not known.
    pub pod_ranges: Vec<Cidr>,
    /// Service ranges; empty if not known.
    pub service_ranges: Vec<Cidr>,
    /// Installed KubeVirt release; `None` if there is none.
    pub kubevirt: Option<String>,
    /// StorageClasses by name.
    pub storage_classes: BTreeSet<String>,
    /// The default StorageClass.
    pub default_storage_class: Option<String>,
    /// All hosts.
    pub hosts: Vec<Host>,
    /// What all Pods hold on them, whosever they are.
    pub usage: Usage,
    /// What machines of this cluster hold on them, part of `usage`; two for one machine while it
    /// migrates, none while it is off.
    pub holdings: Vec<Holding>,
    /// Hosts that a HostMaintenance empties or keeps empty now, with what it says of machines that find no other host.
    pub emptied: BTreeMap<String, CapacityPolicy>,
}

/// Identity of an object: what a delete needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// UID.
    pub uid: String,
    /// Resource version of the copy that was seen.
    pub resource_version: String,
    /// Being deleted already.
    pub deleting: bool,
    /// Made at.
    pub created: Option<Timestamp>,
    /// Value of the machine label, on objects of one machine.
    pub machine: Option<String>,
    /// Value of the pool label, on objects of one machine.
    pub pool: Option<String>,
}

/// A Secret of ours, without its content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Secret {
    /// Identity.
    pub meta: Meta,
    /// Id of the bootstrap token that it carries.
    pub token_id: Option<String>,
    /// Keys and tokens have been taken out.
    pub scrubbed: bool,
    /// When it is to be made anew.
    pub renew_at: Option<Timestamp>,
    /// `host:port` of the guest's API that it names.
    pub server: Option<String>,
}

/// A Service of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// Identity.
    pub meta: Meta,
    /// Address inside the infrastructure cluster.
    pub cluster_ip: Option<String>,
    /// Port on every node, for the first port.
    pub node_port: Option<u16>,
    /// Address or name that the load balancer gave.
    pub load_balancer: Option<String>,
    /// Digest of the render that was last applied.
    pub render: Option<String>,
}

/// An EndpointSlice of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slice {
    /// Identity.
    pub meta: Meta,
    /// Addresses of all endpoints.
    pub addresses: Vec<String>,
}

/// A DataVolume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disk {
    /// Identity.
    pub meta: Meta,
    /// `Succeeded` when the claim holds its data.
    pub phase: Option<String>,
    /// What the importer complains of.
    pub message: Option<String>,
    /// Digest of the template that its machine was made from.
    pub template_hash: Option<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Name.
    pub name: String,
    /// From which hosts it can be reached; `None` if it does not say.
    pub reach: Option<Reach>,
}

/// A VirtualMachine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vm {
    /// Identity.
    pub meta: Meta,
    /// Value of the template-hash label.
    pub template_hash: Option<String>,
    /// `Always`, `Halted`, …
    pub run_strategy: Option<String>,
    /// One word for people.
    pub printable_status: Option<String>,
    /// Its readiness probe answers (control plane: `/readyz`).
    pub ready: bool,
    /// Why it does not start, if KubeVirt says so.
    pub failure: Option<String>,
    /// A person has taken the machine out of the operator's hands.
    pub unmanaged: bool,
}

/// A VirtualMachineInstance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instance {
    /// Identity.
    pub meta: Meta,
    /// `Pending`, `Scheduling`, `Scheduled`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// Host.
    pub host: Option<String>,
    /// Address on the pod network.
    pub address: Option<String>,
    /// What the scheduler says, while it has no host.
    pub unschedulable: Option<String>,
    /// The host from which KubeVirt was asked to evict it.
    pub evicted_from: Option<String>,
    /// When KubeVirt told of that.
    pub evicted_since: Option<Timestamp>,
    /// Its launcher Pod.
    pub launcher: Option<Launcher>,
    /// Whether it can move to another host while it runs.
    pub migratable: Migratable,
}

/// Whether an instance can move to another host while it runs, as KubeVirt judges it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Migratable {
    /// It can.
    Yes,
    /// It cannot; the text says why.
    No(String),
    /// KubeVirt has not said yet.
    #[default]
    Unknown,
}

/// A VirtualMachineInstanceMigration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Migration {
    /// Name.
    pub name: String,
    /// Identity.
    pub meta: Meta,
    /// How far it is.
    pub progress: Progress,
}

/// A MigrationPolicy of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MigrationPolicy {
    /// Identity.
    pub meta: Meta,
    /// Digest of the render that was last applied.
    pub render: Option<String>,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// It has not ended.
    #[default]
    Moves,
    /// The machine runs at the target.
    Succeeded,
    /// The machine runs where it ran.
    Failed,
}

/// The Pod that an instance runs in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launcher {
    /// Name.
    pub name: String,
    /// Identity.
    pub meta: Meta,
    /// The endpoint Service may select it.
    pub serving: bool,
    /// When it was taken out of the endpoint.
    pub out_since: Option<Timestamp>,
    /// The machine is not moved out of it alive any more.
    pub migration_ruled_out: bool,
}

/// The guest as its API shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guest {
    /// Nodes by name.
    pub nodes: BTreeMap<String, GuestNode>,
    /// Ids of bootstrap tokens, with their expiry.
    pub tokens: BTreeMap<String, Option<Timestamp>>,
    /// Digest of the pod network's manifest as applied.
    pub cni: Option<String>,
    /// Digest of kubeadm's configuration as we wrote it; none as long as it is that of init.
    pub configuration: Option<String>,
    /// `host:port` under which joins and kube-proxy look for the guest's API.
    pub server: Option<String>,
    /// Version that the add-ons were last brought to.
    pub addons: Option<String>,
    /// Pods that a drain must evict, by Node; only of Nodes that we cordoned.
    pub pods: BTreeMap<String, Vec<GuestPod>>,
}

/// A Pod of the guest that stands in the way of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// It is going already.
    pub deleting: bool,
    /// Why its last eviction was refused.
    pub refused: Option<String>,
    /// Its eviction was not asked for within the last seconds.
    pub due: bool,
}

/// A Node of the guest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuestNode {
    /// UID.
    pub uid: String,
    /// The kubelet says that it is ready.
    pub ready: bool,
    /// The kubelet's version, such as `v1.36.3`.
    pub kubelet_version: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Keys of its taints.
    pub taints: BTreeSet<String>,
    /// No new Pods are placed on it.
    pub unschedulable: bool,
    /// When we began to drain it.
    pub drained_since: Option<Timestamp>,
    /// `spec.providerID`, by which Cluster API and cloud providers know its machine.
    pub provider_id: Option<String>,
}

/// The guest's etcd.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Etcd {
    /// Members; a member that was added and has not started has an empty name.
    pub members: Vec<EtcdMember>,
    /// ID of the leader.
    pub leader: Option<u64>,
}

/// A member of etcd.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EtcdMember {
    /// ID.
    pub id: u64,
    /// Name, that of its machine; empty if it has not started yet.
    pub name: String,
    /// Peer URLs, which hold the machine's Service address.
    pub peer_urls: Vec<String>,
    /// Not a voter yet.
    pub learner: bool,
    /// It answered when asked itself.
    pub healthy: bool,
}
