//! All that a plan may look at: one Cluster with everything that belongs to it.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_foreign::capi;
use guestcluster_foreign::capk::{KubevirtCluster, KubevirtMachine};
use guestcluster_foreign::core::{LauncherPod, SlimService};
use guestcluster_foreign::kubevirt::{VirtualMachine, VirtualMachineInstance};
use guestcluster_planner::observed::{GuestNode, GuestPod, Probe};

use crate::capi::CONTROL_PLANE_MACHINE;

/// The schema that the cluster's API server has for the provider's kinds. Both are called v1alpha1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Release 0.11: Cluster API's contract v1beta1.
    #[default]
    V1Beta1,
    /// The main branch: contract v1beta2.
    V1Beta2,
}

/// One Cluster as seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The schema of what is reported.
    pub dialect: Dialect,
    /// Namespace of the Cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub name: String,
    /// The Cluster itself; absent once it is gone.
    pub cluster: Option<capi::Cluster>,
    /// Its infrastructure; absent if there is none or another provider's.
    pub infra: Option<KubevirtCluster>,
    /// Its machines, by name of the KubevirtMachine.
    pub machines: BTreeMap<String, Machine>,
    /// Services by the name of the endpoint's, in the namespace that it is to be in.
    pub service: Option<SlimService>,
    /// Another Cluster, as `namespace/name`, whose machines would stand behind the same Service.
    pub namesake: Option<String>,
    /// Zones that have a host which may take machines.
    pub zones: BTreeSet<String>,
    /// What the guest says.
    pub guest: Probe<Guest>,
}

/// A machine as seen.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The provider's object.
    pub object: KubevirtMachine,
    /// The Machine that owns it; absent if none does, or it is gone.
    pub owner: Option<capi::Machine>,
    /// The virtual machine of that name, whosever it is.
    pub vm: Option<VirtualMachine>,
    /// Its instance.
    pub instance: Option<VirtualMachineInstance>,
    /// The Pod of the instance.
    pub launcher: Option<LauncherPod>,
    /// The Secret that it boots from.
    pub user_data: Option<UserData>,
    /// What the API server or the webhooks of KubeVirt last said against making it.
    pub refused: Option<Refusal>,
}

/// Why a virtual machine could not be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// In the words of who refused it.
    pub why: String,
    /// It is time to try again.
    pub is_due: bool,
}

/// The Secret that a machine boots from; never its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserData {
    /// Name, in the namespace of the virtual machine.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// Keys and tokens have been taken out of it.
    pub is_scrubbed: bool,
}

/// What a guest says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guest {
    /// Its Nodes, by name.
    pub nodes: BTreeMap<String, GuestNode>,
    /// Pods that a drain must evict, of each Node that we drain.
    pub pods: BTreeMap<String, Vec<GuestPod>>,
}

impl Seen {
    /// Whether the Cluster and all that belongs to it is to be left as it is.
    pub fn is_paused(&self) -> bool {
        self.cluster.as_ref().is_some_and(|c| c.spec.paused)
    }
}

impl Machine {
    /// Its name, which is that of its virtual machine, its Node and its member of etcd as well.
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether it runs the guest's API server.
    pub fn is_control_plane(&self) -> bool {
        let has = |labels: &Option<BTreeMap<String, String>>| {
            labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(CONTROL_PLANE_MACHINE))
        };
        let owner = self.owner.as_ref().map(|owner| &owner.metadata.labels);
        has(&self.object.metadata.labels) || owner.is_some_and(has)
    }

    /// Namespace of the virtual machine: what its user wrote, or its own.
    pub fn vm_namespace(&self) -> &str {
        let template = self.object.spec.virtual_machine_template.metadata.as_ref();
        let written = template.and_then(|meta| meta.namespace.as_deref());
        let own = self.object.metadata.namespace.as_deref();
        written.or(own).unwrap_or_default()
    }

    /// Whether it is to go.
    pub fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }
}
