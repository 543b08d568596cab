//! What every stand-in of a host shares: clients, copies of objects, network, guests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::faults::{MigrationFault, Target};
use crate::guests::Guests;
use crate::identity::{Identity, Tokens};
use crate::informer::Informer;
use crate::kubelet::images::Images;
use crate::network::Network;
use crate::options::RunnerOptions;
use crate::pki::Authority;
use crate::run_dir::RunDir;

/// One client for each identity that a stand-in speaks as.
#[derive(Clone)]
pub struct Clients {
    /// The administrator.
    pub admin: Client,
    /// The hosts' kubelets.
    pub kubelet: Client,
    /// The hosts' virt-handlers.
    pub handler: Client,
    /// The provisioner and CDI.
    pub storage: Client,
    /// The load-balancer allocator.
    pub load_balancer: Client,
}

impl Clients {
    /// Clients with the run's tokens.
    pub fn new(tokens: &Tokens, authority: &Authority) -> anyhow::Result<Self> {
        let client = |identity| tokens.client(identity, authority.der());
        Ok(Self {
            admin: client(Identity::Admin)?,
            kubelet: client(Identity::Kubelet)?,
            handler: client(Identity::VirtHandler)?,
            storage: client(Identity::Storage)?,
            load_balancer: client(Identity::LoadBalancer)?,
        })
    }
}

/// The shared parts.
pub struct DataCentre {
    /// The run's folder.
    pub run: RunDir,
    /// What `up` asked for.
    pub options: RunnerOptions,
    /// Clients.
    pub clients: Clients,
    /// All Pods.
    pub pods: Informer<Pod>,
    /// All virtual machine instances.
    pub instances: Informer<DynamicObject>,
    /// All claims.
    pub claims: Informer<PersistentVolumeClaim>,
    /// All namespaces.
    pub namespaces: Informer<Namespace>,
    /// The network.
    pub network: Arc<Network>,
    /// The machines that run.
    pub guests: Guests,
    /// The images whose Pods are really run; changes are followed.
    pub images: watch::Sender<Images>,
    /// Namespaces (or `namespace/name` of a Service) that get no load-balancer address.
    pub muted: watch::Sender<BTreeSet<String>>,
    /// Machines whose live migrations go wrong, and how.
    pub migration_faults: watch::Sender<BTreeMap<Target, MigrationFault>>,
}

impl DataCentre {
    /// Puts the parts together and starts the watches.
    pub fn new(
        run: RunDir,
        options: RunnerOptions,
        clients: Clients,
        (network, guests): (Arc<Network>, Guests),
    ) -> Arc<Self> {
        let instances = Api::all_with(clients.handler.clone(), &instance_resource());
        let mut images = Images::default();
        if let Some(binary) = &options.operator_binary {
            images.set_operator(binary);
        }
        Arc::new(Self {
            pods: Informer::start(Api::all(clients.kubelet.clone())),
            instances: Informer::start(instances),
            claims: Informer::start(Api::all(clients.kubelet.clone())),
            namespaces: Informer::start(Api::all(clients.kubelet.clone())),
            images: watch::Sender::new(images),
            muted: watch::Sender::new(BTreeSet::new()),
            migration_faults: watch::Sender::new(BTreeMap::new()),
            run,
            options,
            clients,
            network,
            guests,
        })
    }

    /// Whether instances of `namespace` run on paper only.
    pub fn on_paper(&self, namespace: &str) -> bool {
        let label = self.paper_label(namespace);
        self.options.paper || matches!(label.as_deref(), Some("true" | ANSWERS))
    }

    /// Whether launchers of `namespace` are ready without being asked: nobody would answer.
    pub fn is_silent(&self, namespace: &str) -> bool {
        self.on_paper(namespace) && self.paper_label(namespace).as_deref() != Some(ANSWERS)
    }

    fn paper_label(&self, namespace: &str) -> Option<String> {
        let namespace = self.namespaces.find("", namespace)?;
        namespace
            .metadata
            .labels
            .as_ref()?
            .get(PAPER_LABEL)
            .cloned()
    }
}

/// The label of a namespace whose instances run without a machine: `true`, or [`ANSWERS`].
pub const PAPER_LABEL: &str = "guestcluster.dev/paper";

/// The value that says that somebody answers at the addresses of the instances, so that launchers
/// are probed as those of real machines.
pub const ANSWERS: &str = "answers";

/// The API of virtual machine instances, for objects of which most fields must stay as they are.
pub fn instance_resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance"),
        "virtualmachineinstances",
    )
}
