//! Whom a change wakes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use guestcluster_api::{GuestCluster, HostMaintenance};
use guestcluster_foreign::cdi::DataVolume;
use guestcluster_foreign::core::{HostNode, LauncherPod};
use guestcluster_planner::maintenance;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::store::Store;
use kube::{Resource, ResourceExt};

use super::Queues;
use crate::forecast::Forecast;
use crate::memory::Memories;
use crate::stores::cluster_of;

/// Changes of what surrounds all clusters come in bursts.
const GATHER: Duration = Duration::from_millis(500);
/// Over how long clusters in which nothing is on its way are spread when all are woken.
const SPREAD: Duration = Duration::from_secs(30);

/// Wakes clusters and maintenances.
#[derive(Clone, Debug)]
pub(super) struct Triggers {
    pub(super) queues: Queues,
    pub(super) memories: Memories,
    pub(super) forecast: Forecast,
    pub(super) clusters: Store<GuestCluster>,
    pub(super) maintenances: Store<HostMaintenance>,
}

impl Triggers {
    pub(super) fn cluster(&self, cluster: &GuestCluster) {
        self.forecast.stir();
        self.all_maintenances();
        self.queues.clusters.add(NamespacedName::of(cluster));
    }

    /// All maintenances of the host, of which there may be several, and the clusters that have machines
    /// there or had some: for them the host is being emptied now, or is not any more.
    pub(super) fn maintenance(&self, changed: &HostMaintenance) {
        self.queues.maintenances.add(NamespacedName::of(changed));
        self.all_maintenances();
        let concerned = |cluster: &GuestCluster| {
            let meta = &cluster.metadata;
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            let guest = (
                meta.name.as_deref().unwrap_or_default(),
                cluster.status.as_ref(),
            );
            maintenance::concerns(changed, namespace, guest)
        };
        for cluster in self.keys(concerned) {
            self.memories.invalidate(&cluster);
            self.queues.clusters.add(cluster);
        }
    }

    /// Maintenances are few: whatever happens to machines and hosts, they all look.
    pub(super) fn all_maintenances(&self) {
        self.maintenances.fold((), |(), one| {
            let key = NamespacedName::of(one.as_ref());
            self.queues.maintenances.add_after(key, GATHER);
        });
    }

    pub(super) fn launcher(&self, pod: &LauncherPod) {
        self.all_maintenances();
        self.child(pod);
    }

    /// The cluster of an object.
    pub(super) fn child<K: Resource>(&self, object: &K) {
        if let Some(cluster) = cluster_of(object) {
            self.queues.clusters.add(cluster);
        }
    }

    /// The cluster of a machine, whose guest may say something else now.
    pub(super) fn machine<K: Resource>(&self, object: &K) {
        self.all_maintenances();
        if let Some(cluster) = cluster_of(object) {
            self.memories.invalidate(&cluster);
            self.queues.clusters.add(cluster);
        }
    }

    /// The cluster of a disk; or, if it is a golden image, those that may wait for it.
    pub(super) fn disk(&self, disk: &DataVolume) {
        match cluster_of(disk) {
            Some(cluster) => self.queues.clusters.add(cluster),
            None => self.of_namespace(disk.metadata.namespace.as_deref().unwrap_or_default()),
        }
    }

    pub(super) fn namespace<K: Resource>(&self, namespace: &K) {
        self.of_namespace(&namespace.name_any());
    }

    /// All clusters: those that wait for something soon, the others one by one.
    pub(super) fn everyone(&self) {
        for cluster in self.keys(|_| true) {
            let wait = if self.memories.is_settled(&cluster) {
                GATHER + SPREAD.mul_f64(fraction(&cluster))
            } else {
                GATHER
            };
            self.queues.clusters.add_after(cluster, wait);
        }
    }

    fn of_namespace(&self, namespace: &str) {
        for cluster in self.keys(|cluster| cluster.metadata.namespace.as_deref() == Some(namespace))
        {
            self.queues.clusters.add(cluster);
        }
    }

    fn keys(&self, wanted: impl Fn(&GuestCluster) -> bool) -> Vec<NamespacedName> {
        self.clusters.fold(Vec::new(), |mut keys, cluster| {
            if wanted(cluster) {
                keys.push(NamespacedName::of(cluster.as_ref()));
            }
            keys
        })
    }
}

/// A fraction that differs from cluster to cluster and stays the same.
fn fraction(cluster: &NamespacedName) -> f64 {
    let mut hasher = DefaultHasher::new();
    cluster.hash(&mut hasher);
    let upper = u32::try_from(hasher.finish() >> 32).unwrap_or_default();
    f64::from(upper) / (f64::from(u32::MAX) + 1.0)
}

/// Tells updates of hosts that change something from those that do not.
#[derive(Debug, Default)]
pub(super) struct Unchanged(BTreeMap<String, u64>);

impl Unchanged {
    pub(super) fn has_changed(&mut self, host: &HostNode, is_gone: bool) -> bool {
        if is_gone {
            self.0.remove(&host.name_any());
            return true;
        }
        let digest = digest(host);
        self.0.insert(host.name_any(), digest) != Some(digest)
    }
}

fn digest(host: &HostNode) -> u64 {
    let mut hasher = DefaultHasher::new();
    host.labels().hash(&mut hasher);
    host.is_ready().hash(&mut hasher);
    // JSON of a type of ours, whose maps are sorted, is the same for the same content.
    serde_json::to_string(&(&host.spec, &host.status.allocatable))
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn host(version: &str, cordoned: bool) -> HostNode {
        serde_json::from_value(json!({
            "metadata": { "name": "host-1", "resourceVersion": version },
            "spec": { "unschedulable": cordoned },
            "status": { "allocatable": { "cpu": "32" } },
        }))
        .unwrap()
    }

    #[test]
    fn a_kubelet_that_says_the_same_again_wakes_nobody() {
        let mut unchanged = Unchanged::default();
        assert!(unchanged.has_changed(&host("1", false), false), "it is new");
        assert!(!unchanged.has_changed(&host("2", false), false));
        assert!(
            unchanged.has_changed(&host("3", true), false),
            "it was cordoned"
        );
        assert!(unchanged.has_changed(&host("3", true), true), "it went");
        assert!(
            unchanged.has_changed(&host("4", true), false),
            "it came back"
        );
    }
}
