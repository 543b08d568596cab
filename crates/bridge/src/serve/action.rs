//! What a plan asks for.

use std::collections::BTreeMap;

use guestcluster_foreign::capk::{Endpoint, KubevirtClusterStatus, KubevirtMachineStatus};
use guestcluster_planner::observed::GuestPod;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::Value;

/// One of the provider's two kinds that carry a finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The KubevirtCluster.
    Cluster,
    /// The KubevirtMachine of this name.
    Machine(String),
}

/// An object that a delete means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID: another object of that name is left alone.
    pub uid: String,
    /// Resource version: an object that has changed since is looked at again.
    pub resource_version: String,
}

impl Target {
    /// The object as it was seen.
    pub(super) fn of<K: Resource>(object: &K) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
        }
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Puts our finalizer on an object.
    AddFinalizer(Owner),
    /// Takes it off, which lets the object go.
    RemoveFinalizer(Owner),
    /// States the endpoint's Service.
    ApplyService(Value),
    /// Deletes it.
    DeleteService(Target),
    /// Tells in the KubevirtCluster where the guest's API is.
    SetEndpoint(Endpoint),
    /// Makes the Secret that a machine boots from out of its bootstrap Secret.
    WriteUserData {
        /// The machine.
        machine: String,
        /// Namespace of the virtual machine.
        namespace: String,
        /// Name of the bootstrap Secret, in the namespace of the Cluster.
        bootstrap: String,
        /// Name of the Secret, in the namespace of the Cluster, whose public key may log in.
        ssh_keys: Option<String>,
    },
    /// Takes keys and tokens out of it.
    ScrubUserData {
        /// The machine.
        machine: String,
        /// The Secret.
        secret: Target,
    },
    /// Deletes it.
    DeleteUserData {
        /// The machine.
        machine: String,
        /// The Secret.
        secret: Target,
    },
    /// Makes a virtual machine.
    CreateVm {
        /// The machine.
        machine: String,
        /// The object.
        body: Value,
    },
    /// Deletes a virtual machine, with what hangs on it.
    DeleteVm(Target),
    /// Deletes an instance, so that its machine starts anew, on another host.
    DeleteInstance(Target),
    /// Tells in the KubevirtMachine which Node is its own.
    SetProviderId {
        /// The machine.
        machine: String,
        /// The id.
        id: String,
    },
    /// Tells in the guest's Node which machine is its own.
    SetNodeProviderId {
        /// The Node.
        node: String,
        /// Its UID.
        uid: String,
        /// The id.
        id: String,
    },
    /// Cordons a Node of the guest and notes since when, or undoes both.
    SetDrain {
        /// The Node.
        node: String,
        /// Its UID.
        uid: String,
        /// When the drain began; none ends it.
        since: Option<Timestamp>,
    },
    /// Asks for the eviction of Pods of the guest.
    Evict {
        /// The Node that they leave.
        node: String,
        /// The Pods.
        pods: Vec<GuestPod>,
    },
}

impl Action {
    /// The machine that it is for, which is its Node as well; none if it is for the Cluster.
    pub fn machine(&self) -> Option<&str> {
        match self {
            Self::AddFinalizer(Owner::Machine(name))
            | Self::RemoveFinalizer(Owner::Machine(name)) => Some(name),
            Self::WriteUserData { machine, .. }
            | Self::ScrubUserData { machine, .. }
            | Self::DeleteUserData { machine, .. }
            | Self::CreateVm { machine, .. }
            | Self::SetProviderId { machine, .. } => Some(machine),
            Self::SetNodeProviderId { node, .. }
            | Self::SetDrain { node, .. }
            | Self::Evict { node, .. } => Some(node),
            // It goes by the name of its machine.
            Self::DeleteVm(target) | Self::DeleteInstance(target) => Some(&target.name),
            Self::AddFinalizer(Owner::Cluster)
            | Self::RemoveFinalizer(Owner::Cluster)
            | Self::ApplyService(_)
            | Self::DeleteService(_)
            | Self::SetEndpoint(_) => None,
        }
    }

    /// The kind of action, one word.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::AddFinalizer(_) => "AddFinalizer",
            Self::RemoveFinalizer(_) => "RemoveFinalizer",
            Self::ApplyService(_) => "ApplyService",
            Self::DeleteService(_) => "DeleteService",
            Self::SetEndpoint(_) => "SetEndpoint",
            Self::WriteUserData { .. } => "WriteUserData",
            Self::ScrubUserData { .. } => "ScrubUserData",
            Self::DeleteUserData { .. } => "DeleteUserData",
            Self::CreateVm { .. } => "CreateVm",
            Self::DeleteVm(_) => "DeleteVm",
            Self::DeleteInstance(_) => "DeleteInstance",
            Self::SetProviderId { .. } => "SetProviderId",
            Self::SetNodeProviderId { .. } => "SetNodeProviderId",
            Self::SetDrain { .. } => "SetDrain",
            Self::Evict { .. } => "Evict",
        }
    }
}

/// What to do and what to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Writes, in order.
    pub actions: Vec<Action>,
    /// What to say of the cluster; none leaves its status alone.
    pub cluster: Option<KubevirtClusterStatus>,
    /// What to say of machines, by name; one that is not named is left alone.
    pub machines: BTreeMap<String, KubevirtMachineStatus>,
    /// When to look again if nothing changes before.
    pub look_again: Option<Timestamp>,
}

impl Plan {
    /// Looks again at this time, or earlier if somebody else asks for that.
    pub(super) fn look_again_at(&mut self, at: Timestamp) {
        self.look_again = Some(self.look_again.map_or(at, |other| other.min(at)));
    }
}
