//! Everything that is watched in the infrastructure cluster, as stores.

use std::sync::Arc;
use std::time::Duration;

use guestcluster_api::{GuestCluster, HostMaintenance, labels};
use guestcluster_foreign::cdi::DataVolume;
use guestcluster_foreign::core::{HostNode, LauncherPod, SlimService, SlimVolume};
use guestcluster_foreign::kubevirt::{
    KubeVirt, MigrationPolicy, VirtualMachine, VirtualMachineInstance,
    VirtualMachineInstanceMigration,
};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::clock::monotonic;
use guestcluster_shell::freshness::Ledger;
use guestcluster_shell::store::Store;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use tracing::warn;

use crate::host_pod::HostPod;
use crate::views::{ServiceRange, SlimSlice};

/// The stores. Objects of clusters are indexed by the cluster's UID, so that two clusters of one
/// name never meet.
#[derive(Clone, Debug)]
pub struct Stores {
    /// Guest clusters.
    pub clusters: Store<GuestCluster>,
    /// Hosts that are to be emptied.
    pub maintenances: Store<HostMaintenance>,
    /// Machines.
    pub vms: Store<VirtualMachine>,
    /// Their instances.
    pub instances: Store<VirtualMachineInstance>,
    /// Their moves that we asked for.
    pub migrations: Store<VirtualMachineInstanceMigration>,
    /// Limits of their moves; not ready as long as KubeVirt has no such kind.
    pub migration_policies: Store<MigrationPolicy>,
    /// Disks, and golden images, which belong to no cluster.
    pub disks: Store<DataVolume>,
    /// Claims of disks.
    pub claims: Store<PartialObjectMeta<PersistentVolumeClaim>>,
    /// All volumes, whosever they are; empty where nobody lets us list them.
    pub volumes: Store<SlimVolume>,
    /// Secrets, never with their content.
    pub secrets: Store<PartialObjectMeta<Secret>>,
    /// Endpoints of guests and addresses of machines.
    pub services: Store<SlimService>,
    /// Where addresses of machines lead.
    pub slices: Store<SlimSlice>,
    /// Launcher Pods, those too that have no host yet or are over.
    pub launchers: Store<LauncherPod>,
    /// All Pods that hold something on a host, whosever they are.
    pub host_pods: Store<HostPod>,
    /// Hosts.
    pub hosts: Store<HostNode>,
    /// Storage classes.
    pub storage_classes: Store<PartialObjectMeta<StorageClass>>,
    /// Ranges of Services; the kind exists since Kubernetes 1.33.
    pub service_ranges: Store<ServiceRange>,
    /// Namespaces.
    pub namespaces: Store<PartialObjectMeta<Namespace>>,
    /// The KubeVirt installation.
    pub kubevirts: Store<KubeVirt>,
}

impl Stores {
    /// A ledger that waits for our own writes to show in these stores.
    pub fn ledger(&self) -> Ledger {
        Ledger::new()
            .with(&self.clusters)
            .with(&self.vms)
            .with(&self.instances)
            .with(&self.migrations)
            .with(&self.migration_policies)
            .with(&self.launchers)
            .with(&self.disks)
            .with(&self.claims)
            .with(&self.secrets)
            .with(&self.services)
            .with(&self.slices)
    }

    /// The same for the writes of a maintenance.
    pub fn maintenance_ledger(&self) -> Ledger {
        Ledger::new().with(&self.maintenances).with(&self.hosts)
    }

    /// Objects of this cluster that our types cannot read, with the reason. Nothing may be
    /// planned on what is only half seen.
    pub fn unreadable(&self, uid: &str) -> Option<String> {
        first(&self.vms, uid)
            .or_else(|| first(&self.instances, uid))
            .or_else(|| first(&self.migrations, uid))
            .or_else(|| first(&self.migration_policies, uid))
            .or_else(|| first(&self.disks, uid))
            .or_else(|| first(&self.services, uid))
            .or_else(|| first(&self.slices, uid))
            .or_else(|| first(&self.launchers, uid))
            .or_else(|| first(&self.host_pods, uid))
    }
}

/// How long to wait for a store that does not show our own writes. Their arrival wakes us before.
pub const BEHIND: Duration = Duration::from_secs(1);

/// Whether the stores lack writes of ours for an object. One that has not shown for long is given up:
/// creates find what exists, deletes name the version they mean, and patches test what they change.
pub fn is_behind(ledger: &Ledger, key: &NamespacedName) -> bool {
    let behind = ledger.behind(key, monotonic());
    for lost in behind.iter().filter(|behind| behind.expired()) {
        warn!(kind = %lost.kind, object = %lost.name, age = ?lost.age, "own write not seen");
        ledger.settle(key, lost);
    }
    behind.iter().any(|behind| !behind.expired())
}

/// An object of this index value that our type cannot read, with the reason.
pub fn first<K: Resource<DynamicType = ()>>(store: &Store<K>, value: &str) -> Option<String> {
    let (name, why) = store.unreadable(value).into_iter().next()?;
    Some(format!("{} {name} cannot be read: {why}", K::kind(&())))
}

/// Objects of a cluster in its namespace, without those that it has let go. The label alone is no
/// proof: anybody may write it in another namespace.
pub fn of_cluster<K: Resource>(
    store: &Store<K>,
    cluster: &NamespacedName,
    uid: &str,
) -> Vec<Arc<K>> {
    let mut objects = store.labelled(uid);
    objects.retain(|object| {
        object.meta().namespace.as_deref() == Some(&*cluster.namespace)
            && !object.labels().contains_key(labels::RETAINED)
    });
    objects
}

/// The migration policies of a cluster, which are in no namespace: labels say whose they are.
pub fn policies_of(
    store: &Store<MigrationPolicy>,
    cluster: &NamespacedName,
    uid: &str,
) -> Vec<Arc<MigrationPolicy>> {
    let mut policies = store.labelled(uid);
    policies.retain(|policy| cluster_of(policy.as_ref()).as_ref() == Some(cluster));
    policies
}

/// The cluster that an object of ours belongs to, by its labels.
pub fn cluster_of<K: Resource>(object: &K) -> Option<NamespacedName> {
    let labels = object.labels();
    let namespace = object.meta().namespace.as_ref();
    let namespace = namespace.or_else(|| labels.get(labels::NAMESPACE))?;
    Some(NamespacedName::new(namespace, labels.get(labels::CLUSTER)?))
}

/// Keeps of an object's metadata what is ours and what a delete needs. Children are many.
pub fn slim<K: Resource>(object: &mut K) {
    let ours = |key: &String, _: &mut String| key.starts_with(labels::GROUP);
    let meta = object.meta_mut();
    meta.owner_references = None;
    meta.finalizers = None;
    meta.generate_name = None;
    for map in [&mut meta.labels, &mut meta.annotations]
        .into_iter()
        .flatten()
    {
        map.retain(ours);
    }
}

/// Keeps of a volume what tells where it lies. There are as many as all tenants of the infrastructure
/// cluster have disks.
pub fn slim_volume(volume: &mut SlimVolume) {
    slim(volume);
    let meta = &mut volume.metadata;
    meta.uid = None;
    meta.labels = None;
    meta.annotations = None;
    meta.creation_timestamp = None;
}
