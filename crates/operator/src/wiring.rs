//! Every watch, its store and whom it wakes.
//!
//! | kind | kept | wakes |
//! |---|---|---|
//! | GuestCluster | whole | itself, and maintenances |
//! | HostMaintenance | whole | itself, other maintenances, and clusters that have machines on its host |
//! | VirtualMachine, VirtualMachineInstance | slim, of clusters | its cluster, which asks its guest anew, and maintenances |
//! | MigrationPolicy | slim, of clusters | its cluster |
//! | DataVolume | slim, disks of ours | its cluster; a golden image: clusters of its namespace |
//! | PersistentVolume | its claim and hosts alone, of everybody | the cluster of its claim |
//! | PersistentVolumeClaim, Secret | metadata, of clusters | its cluster |
//! | Service, EndpointSlice | slim, of clusters | its cluster |
//! | Pod | slim, of clusters | its cluster, and maintenances |
//! | Pod on a host | its requests alone, of everybody | the forecast, and whom it has news for |
//! | Node, StorageClass, ServiceCIDR, KubeVirt | slim | all clusters, those that wait for something first; a Node: maintenances too |
//! | Namespace | metadata | clusters in it |

mod triggers;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use guestcluster_api::{GuestCluster, HostMaintenance, labels};
use guestcluster_foreign::cdi::DataVolume;
use guestcluster_foreign::core::{HostNode, LauncherPod, SlimVolume};
use guestcluster_foreign::kubevirt::KubeVirt;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::error::is_absent;
use guestcluster_shell::queue::Queue;
use guestcluster_shell::store::{Readiness, Store, Watch};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::forecast::Forecast;
use crate::host_pod::{self, HostPod};
use crate::memory::Memories;
use crate::stores::{Stores, slim, slim_volume};
use triggers::{Triggers, Unchanged};

/// How long to wait before asking again which kinds there are.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Everything that is watched.
pub struct Wiring {
    /// What the watches fill.
    pub stores: Stores,
    /// The watches: each must be driven.
    pub feeds: Vec<BoxFuture<'static, ()>>,
    /// The stores that must be full before anything is planned.
    pub gates: Vec<Gate>,
}

impl Debug for Wiring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wiring")
            .field("feeds", &self.feeds.len())
            .finish_non_exhaustive()
    }
}

/// What is to be visited.
#[derive(Clone, Debug)]
pub struct Queues {
    /// Guest clusters.
    pub clusters: Queue<NamespacedName>,
    /// Maintenances.
    pub maintenances: Queue<NamespacedName>,
}

/// A store that must be full before anything is planned.
#[derive(Clone)]
pub struct Gate {
    /// What it holds.
    pub kind: String,
    /// Whether it is full.
    pub store: Arc<dyn Readiness>,
}

/// How often a store that is not full yet is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until all of these stores are full.
pub async fn filled(gates: &[Gate]) {
    while !gates.iter().all(|gate| gate.store.is_ready()) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Kinds that an infrastructure cluster may lack. Then there are no objects of them, and no first
/// list to wait for; the watch finds them if they come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Installed {
    /// Our own HostMaintenance: definitions may be installed apart from the operator.
    pub maintenance: bool,
    /// KubeVirt's.
    pub kubevirt: bool,
    /// KubeVirt's MigrationPolicy.
    pub migration_policies: bool,
    /// CDI's.
    pub cdi: bool,
    /// ServiceCIDR, which came with Kubernetes 1.33.
    pub service_ranges: bool,
}

impl Installed {
    /// Asks the API server until it has answered.
    pub async fn ask(client: &Client) -> Self {
        Self {
            maintenance: has(client, "guestcluster.dev/v1alpha1", "hostmaintenances").await,
            kubevirt: has(client, "kubevirt.io/v1", "virtualmachines").await,
            migration_policies: has(
                client,
                "migrations.kubevirt.io/v1alpha1",
                "migrationpolicies",
            )
            .await,
            cdi: has(client, "cdi.kubevirt.io/v1beta1", "datavolumes").await,
            service_ranges: has(client, "networking.k8s.io/v1", "servicecidrs").await,
        }
    }
}

async fn has(client: &Client, group_version: &str, plural: &str) -> bool {
    loop {
        match client.list_api_group_resources(group_version).await {
            Ok(list) => {
                return list
                    .resources
                    .iter()
                    .any(|resource| resource.name == plural);
            }
            Err(error) if is_absent(&error) => return false,
            Err(error) => warn!(%error, group_version, "kinds not known yet"),
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

impl Wiring {
    /// All watches through `client`, waking clusters and maintenances in `queues`.
    pub fn new(
        client: &Client,
        queues: &Queues,
        (memories, forecast): (&Memories, &Forecast),
        installed: Installed,
    ) -> Self {
        let clusters = Watch::new(Api::<GuestCluster>::all(client.clone()));
        let (clusters, clusters_feed) = clusters.split();
        let maintenances = Watch::new(Api::<HostMaintenance>::all(client.clone()));
        let (maintenances, maintenances_feed) = maintenances.split();
        let triggers = Triggers {
            queues: queues.clone(),
            maintenances: maintenances.clone(),
            memories: memories.clone(),
            forecast: forecast.clone(),
            clusters: clusters.clone(),
        };
        let mut line = Line {
            client,
            triggers: triggers.clone(),
            feeds: Vec::new(),
            gates: Vec::new(),
        };
        line.gate("GuestCluster", &clusters);
        line.feeds.push(
            clusters_feed
                .run(move |c: &GuestCluster| triggers.cluster(c))
                .boxed(),
        );
        if installed.maintenance {
            line.gate("HostMaintenance", &maintenances);
        }
        let woken = line.triggers.clone();
        line.feeds.push(
            maintenances_feed
                .run(move |m: &HostMaintenance| woken.maintenance(m))
                .boxed(),
        );
        let stores = line.stores((clusters, maintenances), installed);
        Self {
            stores,
            feeds: line.feeds,
            gates: line.gates,
        }
    }
}

/// Watches as they are put up.
struct Line<'a> {
    client: &'a Client,
    triggers: Triggers,
    feeds: Vec<BoxFuture<'static, ()>>,
    gates: Vec<Gate>,
}

impl Line<'_> {
    fn stores(
        &mut self,
        (clusters, maintenances): (Store<GuestCluster>, Store<HostMaintenance>),
        installed: Installed,
    ) -> Stores {
        let disks = self.disks(installed.cdi);
        Stores {
            clusters,
            maintenances,
            vms: self.owned(Triggers::machine, installed.kubevirt),
            instances: self.owned(Triggers::machine, installed.kubevirt),
            migrations: self.owned(Triggers::child, installed.kubevirt),
            migration_policies: self.owned(Triggers::child, installed.migration_policies),
            volumes: self.volumes(&disks),
            disks,
            claims: self.owned(Triggers::child, true),
            secrets: self.owned(Triggers::child, true),
            services: self.owned(Triggers::child, true),
            slices: self.owned(Triggers::child, true),
            launchers: self.owned::<LauncherPod>(Triggers::launcher, true),
            host_pods: self.host_pods(),
            hosts: self.hosts(),
            storage_classes: self.surroundings(true),
            service_ranges: self.surroundings(installed.service_ranges),
            namespaces: self.put_up(Watch::new(self.all()), true, |triggers, namespace| {
                triggers.namespace(namespace);
            }),
            kubevirts: self.surroundings::<KubeVirt>(installed.kubevirt),
        }
    }

    /// A kind of which clusters own objects.
    fn owned<K>(&mut self, wake: fn(&Triggers, &K), gates: bool) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let watch = Watch::new(self.all())
            .labels(labels::CLUSTER)
            .indexed_by(labels::CLUSTER_UID)
            .slim(slim);
        self.put_up(watch, gates, wake)
    }

    /// Disks, and golden images, which belong to no cluster.
    fn disks(&mut self, gates: bool) -> Store<DataVolume> {
        let watch = Watch::new(self.all())
            .labels(labels::DISK)
            .indexed_by(labels::CLUSTER_UID)
            .slim(slim);
        self.put_up(watch, gates, Triggers::disk)
    }

    /// Volumes. Nothing waits for their first list: a cluster lives without it being known where its
    /// disks lie, and whoever runs the operator may have forbidden it to see.
    fn volumes(&mut self, disks: &Store<DataVolume>) -> Store<SlimVolume> {
        let watch = Watch::new(self.all::<SlimVolume>()).slim(slim_volume);
        let (store, feed) = watch.split();
        let (triggers, disks) = (self.triggers.clone(), disks.clone());
        // A disk that has not come yet wakes its cluster when it does.
        let wake = move |volume: &SlimVolume| {
            let claim = volume.spec.claim_ref.as_ref();
            let claim = claim.map(|claim| NamespacedName::new(&claim.namespace, &claim.name));
            if let Some(disk) = claim.and_then(|claim| disks.get(&claim)) {
                triggers.disk(&disk);
            }
        };
        self.feeds.push(feed.run(wake).boxed());
        store
    }

    /// A kind that matters to all clusters.
    fn surroundings<K>(&mut self, gates: bool) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.put_up(Watch::new(self.all()), gates, |triggers, _: &K| {
            triggers.everyone();
        })
    }

    /// Hosts. Their kubelets write every few minutes even if nothing has changed.
    fn hosts(&mut self) -> Store<HostNode> {
        let (store, feed) = Watch::new(self.all::<HostNode>()).split();
        self.gate("Node", &store);
        let (triggers, kept, mut unchanged) =
            (self.triggers.clone(), store.clone(), Unchanged::default());
        let wake = move |host: &HostNode| {
            let is_gone = kept.get(&NamespacedName::of(host)).is_none();
            if unchanged.has_changed(host, is_gone) {
                triggers.all_maintenances();
                triggers.forecast.stir();
                triggers.everyone();
            }
        };
        self.feeds.push(feed.run(wake).boxed());
        store
    }

    /// What all Pods hold on hosts. They change all the time, and a cluster that waits for room looks
    /// again by itself: nobody is woken but the forecast.
    ///
    /// Launcher Pods are watched twice. The other watch has those too that have no host or are over,
    /// which this one leaves to the server; to watch everything once would bring every job that ever
    /// ran.
    fn host_pods(&mut self) -> Store<HostPod> {
        let watch = Watch::new(self.all())
            .fields(host_pod::HOLDS)
            .indexed_by(labels::CLUSTER_UID)
            .slim(host_pod::slim_pod);
        self.put_up(watch, true, |triggers, _: &HostPod| {
            triggers.forecast.stir();
        })
    }

    fn put_up<K>(&mut self, watch: Watch<K>, gates: bool, wake: fn(&Triggers, &K)) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (store, feed) = watch.split();
        if gates {
            self.gate(&K::kind(&()), &store);
        }
        let triggers = self.triggers.clone();
        self.feeds
            .push(feed.run(move |object: &K| wake(&triggers, object)).boxed());
        store
    }

    fn gate<K: Send + Sync + 'static>(&mut self, kind: &str, store: &Store<K>) {
        self.gates.push(Gate {
            kind: kind.to_owned(),
            store: Arc::new(store.clone()),
        });
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }
}
