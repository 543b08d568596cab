//! What is watched for Clusters of Cluster API, and whom a change wakes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use guestcluster_api::labels;
use guestcluster_bridge::capi as names;
use guestcluster_foreign::capi::{Cluster, Machine};
use guestcluster_foreign::capk::{KubevirtCluster, KubevirtMachine, KubevirtMachineTemplate};
use guestcluster_foreign::core::{HostNode, LauncherPod, SlimService};
use guestcluster_foreign::kubevirt::{VirtualMachine, VirtualMachineInstance};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::freshness::Ledger;
use guestcluster_shell::queue::Queue;
use guestcluster_shell::store::{Store, Watch};
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::stores::first;
use crate::wiring::Gate;

/// The stores. Objects of Clusters are indexed by the Cluster's name, and told apart by namespace.
#[derive(Clone, Debug)]
pub struct Stores {
    /// Clusters.
    pub clusters: Store<Cluster>,
    /// Machines.
    pub machines: Store<Machine>,
    /// Their infrastructure.
    pub infra_clusters: Store<KubevirtCluster>,
    /// The infrastructure of their machines.
    pub infra_machines: Store<KubevirtMachine>,
    /// What machines are made from.
    pub templates: Store<KubevirtMachineTemplate>,
    /// Virtual machines.
    pub vms: Store<VirtualMachine>,
    /// Their instances.
    pub instances: Store<VirtualMachineInstance>,
    /// Launcher Pods.
    pub launchers: Store<LauncherPod>,
    /// Endpoints.
    pub services: Store<SlimService>,
    /// Secrets, never with their content.
    pub secrets: Store<PartialObjectMeta<Secret>>,
    /// Hosts, which the operator knows anyway.
    pub hosts: Store<HostNode>,
}

/// What is to be visited.
#[derive(Clone, Debug)]
pub struct Queues {
    /// Clusters.
    pub clusters: Queue<NamespacedName>,
    /// Templates of machines.
    pub templates: Queue<NamespacedName>,
}

impl Stores {
    /// An object of a Cluster of this name that our types cannot read, with the reason. What is only
    /// half seen would be taken for lost.
    pub fn unreadable(&self, name: &str) -> Option<String> {
        first(&self.machines, name)
            .or_else(|| first(&self.infra_clusters, name))
            .or_else(|| first(&self.infra_machines, name))
            .or_else(|| first(&self.vms, name))
            .or_else(|| first(&self.instances, name))
            .or_else(|| first(&self.launchers, name))
            .or_else(|| first(&self.services, name))
    }

    /// A ledger that waits for our own writes to show in these stores.
    pub fn ledger(&self) -> Ledger {
        Ledger::new()
            .with(&self.infra_clusters)
            .with(&self.infra_machines)
            .with(&self.vms)
            .with(&self.instances)
            .with(&self.services)
            .with(&self.secrets)
    }
}

/// Watches as they are put up.
pub struct Watches {
    client: Client,
    queues: Queues,
    /// They must be driven.
    pub feeds: Vec<BoxFuture<'static, ()>>,
    /// They must be full before anything is planned.
    pub gates: Vec<Gate>,
}

impl Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches")
            .field("feeds", &self.feeds.len())
            .finish_non_exhaustive()
    }
}

/// All watches through `client`, waking what is in `queues`.
pub fn put_up(client: &Client, queues: &Queues, hosts: Store<HostNode>) -> (Stores, Watches) {
    let mut watches = Watches {
        client: client.clone(),
        queues: queues.clone(),
        feeds: Vec::new(),
        gates: Vec::new(),
    };
    let stores = Stores {
        clusters: watches.add(Watch::new, |q, c: &Cluster| {
            q.clusters.add(NamespacedName::of(c));
        }),
        machines: watches.owned(|w| w),
        infra_clusters: watches.owned(|w| w),
        infra_machines: watches.owned(|w| w),
        templates: watches.add(Watch::new, |q, t: &KubevirtMachineTemplate| {
            q.templates.add(NamespacedName::of(t));
        }),
        vms: watches.owned(|w| w.labels(names::MACHINE_NAME)),
        instances: watches.owned(|w| w.labels(names::MACHINE_NAME)),
        launchers: watches.owned(|w| w.labels(names::MACHINE_NAME)),
        services: watches.owned(|w| w.labels(names::CLUSTER_NAME)),
        secrets: watches.owned(|w| w.labels(names::CLUSTER_NAME)),
        hosts,
    };
    (stores, watches)
}

impl Watches {
    /// A kind of which Clusters own objects.
    fn owned<K>(&mut self, narrowed: fn(Watch<K>) -> Watch<K>) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let watch = move |api| narrowed(Watch::new(api)).indexed_by(names::CLUSTER_NAME);
        self.add(watch, |queues, object: &K| {
            if let Some(cluster) = cluster_of(object) {
                queues.clusters.add(cluster);
            }
        })
    }

    fn add<K>(&mut self, watch: impl FnOnce(Api<K>) -> Watch<K>, wake: fn(&Queues, &K)) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (store, feed) = watch(Api::all(self.client.clone())).split();
        self.gates.push(Gate {
            kind: K::kind(&()).into_owned(),
            store: Arc::new(store.clone()),
        });
        let queues = self.queues.clone();
        self.feeds
            .push(feed.run(move |object: &K| wake(&queues, object)).boxed());
        store
    }
}

/// The Cluster of an object: labels say its name, and its namespace where that is not the object's.
pub fn cluster_of<K: Resource>(object: &K) -> Option<NamespacedName> {
    let all = object.labels();
    let elsewhere = all
        .get(names::MACHINE_NAMESPACE)
        .or_else(|| all.get(labels::NAMESPACE));
    let namespace = elsewhere.or(object.meta().namespace.as_ref())?;
    let name = all.get(names::CLUSTER_NAME).map(String::as_str);
    let name = name.or_else(|| owner(object, "Cluster"))?;
    Some(NamespacedName::new(namespace, name))
}

/// Name of the owner of a kind of Cluster API's.
pub fn owner<'a, K: Resource>(object: &'a K, kind: &str) -> Option<&'a str> {
    let mut owners = object.owner_references().iter();
    let group = format!("{}/", names::CORE);
    let owner = owners.find(|o| o.kind == kind && o.api_version.starts_with(&group));
    owner.map(|owner| owner.name.as_str())
}

/// Objects of a Cluster, by name.
pub fn of_cluster<K: Resource>(
    store: &Store<K>,
    cluster: &NamespacedName,
) -> BTreeMap<(String, String), Arc<K>> {
    let mut all = store.labelled(&cluster.name);
    all.retain(|object| cluster_of(object.as_ref()).as_ref() == Some(cluster));
    let keyed = all.into_iter().map(|object| {
        let namespace = object.meta().namespace.clone().unwrap_or_default();
        ((namespace, object.name_any()), object)
    });
    keyed.collect()
}
