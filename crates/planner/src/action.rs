//! What a plan consists of. Actions are data: the operator carries them out, tests read them.

mod words;

use guestcluster_api::Reason;
use guestcluster_api::labels::Role;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use std::collections::BTreeMap;

use crate::departure::Departure;
use crate::observed::{GuestPod, Launcher};

/// What to do now, what holds back more, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In this order; the first failure ends the round.
    pub actions: Vec<Action>,
    /// Why nothing more is done.
    pub holds: Vec<Hold>,
    /// When to look again if nothing changes.
    pub requeue: Requeue,
    /// How many machines each pool is to have now, as far as the plan came to that question.
    pub sizes: BTreeMap<String, u32>,
    /// Machines that leave for good, with why; `None` if the plan did not come to that question.
    pub departures: Option<BTreeMap<String, Departure>>,
}

/// When to look again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Requeue {
    /// When a watch says so.
    #[default]
    OnChange,
    /// At a time, and who asked for it.
    At(Timestamp, &'static str),
}

impl Requeue {
    /// The earlier of the two.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::OnChange, _) => other,
            (_, Self::OnChange) => self,
            (Self::At(a, _), Self::At(b, _)) => {
                if a <= b {
                    self
                } else {
                    other
                }
            }
        }
    }
}

/// Why nothing more is done; a hold is a success, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// For conditions and metrics.
    pub reason: Reason,
    /// For people: names the object and what to do.
    pub message: String,
    /// Only a person can end it.
    pub needs_person: bool,
}

/// Kinds that we make and delete in the infrastructure cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `kubevirt.io/v1` VirtualMachine.
    VirtualMachine,
    /// `kubevirt.io/v1` VirtualMachineInstance, which we only delete: its VM makes another.
    Instance,
    /// `kubevirt.io/v1` VirtualMachineInstanceMigration.
    Migration,
    /// `migrations.kubevirt.io/v1alpha1` MigrationPolicy, the one kind that is in no namespace.
    MigrationPolicy,
    /// `cdi.kubevirt.io/v1beta1` DataVolume.
    DataVolume,
    /// PersistentVolumeClaim.
    Claim,
    /// Service.
    Service,
    /// EndpointSlice.
    EndpointSlice,
    /// Secret.
    Secret,
}

impl Kind {
    /// `apiVersion` of the kind.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::VirtualMachine | Self::Instance | Self::Migration => "kubevirt.io/v1",
            Self::MigrationPolicy => "migrations.kubevirt.io/v1alpha1",
            Self::DataVolume => "cdi.kubevirt.io/v1beta1",
            Self::EndpointSlice => "discovery.k8s.io/v1",
            Self::Claim | Self::Service | Self::Secret => "v1",
        }
    }

    /// `kind` of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::VirtualMachine => "VirtualMachine",
            Self::Instance => "VirtualMachineInstance",
            Self::Migration => "VirtualMachineInstanceMigration",
            Self::MigrationPolicy => "MigrationPolicy",
            Self::DataVolume => "DataVolume",
            Self::Claim => "PersistentVolumeClaim",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Secret => "Secret",
        }
    }
}

/// A whole object in the GuestCluster's namespace, or of its own in none, as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Kind.
    pub kind: Kind,
    /// Name.
    pub name: String,
    /// The object.
    pub body: Value,
}

/// An object to delete: exactly the one that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Kind.
    pub kind: Kind,
    /// Name.
    pub name: String,
    /// UID precondition.
    pub uid: String,
    /// Resource-version precondition.
    pub resource_version: String,
}

/// Which authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    /// The guest's API.
    Kubernetes,
    /// etcd.
    Etcd,
    /// The front proxy.
    FrontProxy,
    /// Service-account token signing keys.
    ServiceAccount,
}

impl Authority {
    /// All four.
    pub const ALL: [Self; 4] = [
        Self::Kubernetes,
        Self::Etcd,
        Self::FrontProxy,
        Self::ServiceAccount,
    ];

    /// Name of its Secret.
    pub fn secret(self, cluster: &str) -> String {
        use guestcluster_api::names::secrets;
        match self {
            Self::Kubernetes => secrets::ca(cluster),
            Self::Etcd => secrets::etcd(cluster),
            Self::FrontProxy => secrets::proxy(cluster),
            Self::ServiceAccount => secrets::service_account(cluster),
        }
    }
}

/// How a machine comes into the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBoot {
    /// `kubeadm init`: the one machine that starts the control plane.
    Init,
    /// `kubeadm join --control-plane`.
    JoinControlPlane,
    /// `kubeadm join`.
    JoinWorker,
}

/// Recipe of a first-boot document. Keys and tokens are not part of a plan: the operator reads or
/// draws them when it carries the action out.
#[derive(Clone, Debug, PartialEq)]
pub struct UserData {
    /// Name of the machine.
    pub machine: String,
    /// Its pool.
    pub pool: String,
    /// How it comes in.
    pub boot: FirstBoot,
    /// `host:port` of the guest's API.
    pub endpoint: (String, u16),
    /// The machine's Service address (control plane).
    pub address: Option<String>,
    /// Metadata of the Secret: labels and owner.
    pub metadata: Value,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Put our finalizer on the GuestCluster.
    AddFinalizer,
    /// Take it off: everything is gone.
    RemoveFinalizer,
    /// Write the highest ordinal of each pool into status, before any object of the name is made.
    RecordOrdinals(BTreeMap<String, u32>),
    /// Make an authority's Secret; one that exists is never written again.
    MintAuthority {
        /// Which.
        authority: Authority,
        /// Metadata of the Secret.
        metadata: Value,
    },
    /// Make the administrator's kubeconfig, or make it anew before its certificate ends.
    MintKubeconfig {
        /// The Secret that it replaces.
        former: Option<Victim>,
        /// `host:port` of the guest's API.
        endpoint: (String, u16),
        /// Metadata of the Secret.
        metadata: Value,
    },
    /// Make an object that must not exist yet.
    Create(Object),
    /// Apply an object server-side.
    Apply(Object),
    /// Make a machine's first-boot Secret, and for joins its token in the guest.
    WriteUserData(Box<UserData>),
    /// Take keys and tokens out of a machine's first-boot Secret.
    ScrubUserData {
        /// Name of the machine.
        machine: String,
        /// Role, since a control plane keeps its address unit.
        role: Role,
        /// The Secret that was seen.
        secret: Victim,
    },
    /// Make a machine's token live longer: it has not joined yet.
    ExtendToken {
        /// Id of the token.
        token: String,
    },
    /// Delete a token in the guest.
    DeleteToken {
        /// Id of the token.
        token: String,
    },
    /// Set labels on a guest Node, and take off those that are true no longer.
    LabelNode {
        /// Name of the Node.
        node: String,
        /// Labels to set; `None` takes one off.
        labels: BTreeMap<String, Option<String>>,
        /// The control-plane taint is missing: a join was cut short after its kubelet registered.
        taint_control_plane: bool,
    },
    /// Apply the pod network into the guest.
    ApplyCni {
        /// Digest that the applied manifest carries.
        digest: String,
        /// Objects in order.
        objects: Vec<Value>,
    },
    /// Write into status which machine leaves for good and why, before anything is taken from it.
    RecordDeparture {
        /// Name of the machine.
        machine: String,
        /// Why.
        why: Departure,
    },
    /// Take a machine out of the endpoint, or put it back, by the label of its launcher Pod.
    SetServing {
        /// Name of the machine.
        machine: String,
        /// The Pod that was seen.
        pod: Launcher,
        /// `None` puts it back; otherwise the time to note on the Pod.
        out_since: Option<Timestamp>,
    },
    /// Note on a launcher Pod that its machine is not moved out of it alive: it took too long.
    RuleOutMigration {
        /// Name of the machine.
        machine: String,
        /// The Pod that was seen.
        pod: Launcher,
    },
    /// Hand over the leadership of etcd before its holder goes off.
    MoveLeader {
        /// Machine whose member leads.
        from: String,
        /// ID of the member that is to lead.
        to: u64,
    },
    /// Cordon a guest Node and note when its drain began, or undo both.
    SetDrain {
        /// Name of the Node.
        node: String,
        /// Its UID.
        uid: String,
        /// `None` ends the drain.
        since: Option<Timestamp>,
    },
    /// Ask the guest to evict Pods from a Node that is being drained.
    Evict {
        /// Name of the Node.
        node: String,
        /// The Pods that were seen there.
        pods: Vec<GuestPod>,
    },
    /// Delete the guest Node of a machine that is gone.
    DeleteNode {
        /// Name of the Node.
        node: String,
        /// Its UID.
        uid: String,
    },
    /// Write kubeadm's configuration into the guest, from which control-plane machines join.
    WriteConfiguration {
        /// Digest that it carries.
        digest: String,
        /// `host:port` of the guest's API.
        endpoint: (String, u16),
        /// Names and addresses for the certificates of API servers.
        names: Vec<String>,
    },
    /// Have joins and kube-proxy look for the guest's API elsewhere.
    MoveEndpoint {
        /// `host:port` of the guest's API.
        server: String,
    },
    /// Bring kube-proxy and CoreDNS to the version of the control plane.
    UpgradeAddons {
        /// Version of Kubernetes.
        version: String,
    },
    /// Remove an etcd member whose machine is given up before it is deleted.
    RemoveEtcdMember {
        /// ID of the member.
        id: u64,
        /// Machine that it belonged to.
        machine: String,
    },
    /// Delete an object.
    Delete {
        /// What.
        object: Victim,
        /// Why, for people.
        why: String,
    },
    /// Keep a disk when its cluster goes: take off the owner and label the claim.
    RetainDisk {
        /// The DataVolume, or the claim itself.
        object: Victim,
        /// Labels that tell later what it was.
        labels: BTreeMap<String, String>,
    },
}
