//! One snapshot of a guest cluster and what surrounds it: from the stores, and from what is asked
//! of the guest.

mod authorities;
mod certificates;
mod consoles;
mod convert;
mod probes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guestcluster_api::{GuestCluster, labels};
use guestcluster_foreign::core::{ClaimRef, LauncherPod, SlimVolume};
use guestcluster_foreign::kubevirt::VirtualMachineInstance;
use guestcluster_planner::observed::{Disk, Holding, Host, Infra, Meta, Observed, Usage, Volume};
use guestcluster_planner::wanted::Settings;
use guestcluster_planner::{Wanted, render};
use guestcluster_planner::{chain, maintenance};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::clock::monotonic;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};

use super::Context;
use crate::memory::Memory;
use crate::stores::{Stores, of_cluster, policies_of};

pub(super) use probes::{endpoint_door, member_doors};

/// What one reconcile looks at.
pub(super) struct Subject<'a> {
    pub(super) key: &'a NamespacedName,
    pub(super) cluster: &'a GuestCluster,
    pub(super) wanted: &'a Wanted,
}

impl Context {
    /// Looks at a cluster. Never fails: what cannot be asked is unknown, which is a value.
    pub(super) async fn observe(&self, subject: &Subject<'_>, memory: &mut Memory) -> Observed {
        let mut seen = from_stores(&self.stores, subject);
        seen.infra = infra(&self.stores, &self.settings, subject);
        seen.fleet = self.forecast.view(subject.key);
        seen.taken = memory.taken(monotonic());
        seen.damaged_secrets = self.check_authorities(subject, &seen, memory).await;
        Box::pin(self.probe(subject, &mut seen, memory)).await;
        seen.consoles = self.read_consoles(subject, &seen, memory).await;
        seen
    }
}

/// What the stores hold of a cluster.
fn from_stores(stores: &Stores, subject: &Subject<'_>) -> Observed {
    let (key, uid) = (subject.key, &*subject.wanted.identity.uid);
    let launchers = launchers(stores, key, uid);
    let instance = |instance: &VirtualMachineInstance| {
        let pods = launchers.get(&instance.name_any());
        convert::instance(instance, pods.and_then(|pods| launcher_of(instance, pods)))
    };
    let golden = NamespacedName::new(&key.namespace, &render::golden_name(subject.wanted));
    let mut disks = convert::by_name(&of_cluster(&stores.disks, key, uid), convert::disk);
    if let Some(image) = stores.disks.get(&golden) {
        disks.insert(image.name_any(), convert::disk(&image));
    }
    let slices = of_cluster(&stores.slices, key, uid);
    // Kubernetes makes slices of its own for the endpoint Service, and gives them its labels.
    let (own, endpoint): (Vec<_>, Vec<_>) = slices
        .into_iter()
        .partition(|slice| slice.labels().contains_key(labels::MACHINE));
    let serving = endpoint
        .iter()
        .flat_map(|slice| convert::ready_addresses(slice));
    Observed {
        secrets: convert::by_name(&of_cluster(&stores.secrets, key, uid), convert::secret),
        services: convert::by_name(&of_cluster(&stores.services, key, uid), convert::service),
        slices: convert::by_name(&own, convert::slice),
        serving: serving.collect(),
        claims: convert::by_name(&of_cluster(&stores.claims, key, uid), convert::meta),
        volumes: volumes(stores, key, &disks),
        vms: convert::by_name(&of_cluster(&stores.vms, key, uid), convert::vm),
        instances: convert::by_name(&of_cluster(&stores.instances, key, uid), instance),
        migrations: convert::by_name(
            &of_cluster(&stores.migrations, key, uid),
            convert::migration,
        ),
        migration_policies: stores.migration_policies.is_ready().then(|| {
            let policies = policies_of(&stores.migration_policies, key, uid);
            convert::by_name(&policies, convert::migration_policy)
        }),
        image_shared: subject.wanted.identity.deleting && image_shared(stores, subject),
        stale_images: stale_images(stores, &key.namespace),
        disks,
        ..Observed::default()
    }
}

/// Volumes under disks of a cluster, by claim, which has the name of its disk. A volume names its claim,
/// whereas the claim need not have our labels.
fn volumes(
    stores: &Stores,
    key: &NamespacedName,
    disks: &BTreeMap<String, Disk>,
) -> Option<BTreeMap<String, Volume>> {
    let under = |mut found: BTreeMap<String, Volume>, volume: &Arc<SlimVolume>| {
        let claim = volume.spec.claim_ref.as_ref();
        let ours = |claim: &&ClaimRef| {
            *claim.namespace == *key.namespace && disks.contains_key(&claim.name)
        };
        if let Some(claim) = claim.filter(ours) {
            let (name, reach) = (volume.name_any(), convert::reach(volume));
            found.insert(claim.name.clone(), Volume { name, reach });
        }
        found
    };
    let is_listed = stores.volumes.is_ready();
    is_listed.then(|| stores.volumes.fold(BTreeMap::new(), under))
}

fn launcher_of<'a>(
    instance: &VirtualMachineInstance,
    pods: &'a [Arc<LauncherPod>],
) -> Option<&'a LauncherPod> {
    let status = instance.status.as_ref();
    let host = status.and_then(|status| status.node_name.as_deref());
    let pods: Vec<_> = pods.iter().map(AsRef::as_ref).collect();
    chain::launcher(&pods, host)
}

/// Launcher Pods by machine, in the order in which they were made.
fn launchers(
    stores: &Stores,
    key: &NamespacedName,
    uid: &str,
) -> BTreeMap<String, Vec<Arc<LauncherPod>>> {
    let mut launchers = of_cluster(&stores.launchers, key, uid);
    launchers.sort_by_key(|pod| pod.meta().creation_timestamp.as_ref().map(|time| time.0));
    let mut by_machine: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for pod in launchers {
        if let Some(machine) = convert::meta(pod.as_ref()).machine {
            by_machine.entry(machine).or_default().push(pod);
        }
    }
    by_machine
}

/// Whether another cluster of the namespace, which stays, uses the same golden image.
fn image_shared(stores: &Stores, subject: &Subject<'_>) -> bool {
    let golden = render::golden_name(subject.wanted);
    stores.clusters.fold(false, |shared, other| {
        let meta = other.meta();
        let neighbour = meta.namespace.as_deref() == Some(&*subject.key.namespace)
            && meta.uid != subject.cluster.metadata.uid
            && meta.deletion_timestamp.is_none();
        shared
            || neighbour
                && Wanted::parse(other, &Settings::default())
                    .is_ok_and(|other| render::golden_name(&other) == golden)
    })
}

/// What Pods hold on each host. Costs as much as there are Pods, for each look at a cluster: a
/// millisecond for 10,000 Pods on 200 hosts.
pub(crate) fn usage(stores: &Stores) -> Usage {
    stores.host_pods.fold(Usage::default(), |mut usage, pod| {
        usage.hold(&pod.host, &pod.requests);
        usage
    })
}

/// All hosts.
pub(crate) fn hosts(stores: &Stores) -> Vec<Host> {
    let hosts = stores.hosts.all();
    hosts.iter().map(|host| convert::host(host)).collect()
}

/// What machines of a cluster hold on hosts.
pub(crate) fn holdings(stores: &Stores, key: &NamespacedName, uid: &str) -> Vec<Holding> {
    let pods = of_cluster(&stores.host_pods, key, uid);
    pods.iter()
        .filter_map(|pod| convert::holding(pod))
        .collect()
}

/// Golden images of a namespace that no specification there names any more.
fn stale_images(stores: &Stores, namespace: &str) -> BTreeMap<String, Meta> {
    let here = |meta: &ObjectMeta| meta.namespace.as_deref() == Some(namespace);
    let images = stores.disks.fold(BTreeMap::new(), |mut images, disk| {
        let purpose = disk.labels().get(labels::DISK);
        if here(disk.meta()) && purpose.is_some_and(|purpose| purpose == "golden") {
            images.insert(disk.name_any(), convert::meta(disk.as_ref()));
        }
        images
    });
    if images.len() < 2 {
        return BTreeMap::new();
    }
    stores.clusters.fold(images, |mut stale, cluster| {
        let wanted = Wanted::parse(cluster, &Settings::default());
        match wanted.map(|wanted| render::golden_name(&wanted)) {
            Ok(name) if here(cluster.meta()) => drop(stale.remove(&name)),
            // What cannot be read may name any of them.
            Err(_) if here(cluster.meta()) => stale.clear(),
            _ => {}
        }
        stale
    })
}

fn infra(stores: &Stores, settings: &Settings, subject: &Subject<'_>) -> Infra {
    let (key, uid) = (subject.key, &*subject.wanted.identity.uid);
    let ranges = |texts: &mut dyn Iterator<Item = &String>| {
        texts
            .filter_map(|text| text.parse().ok())
            .collect::<BTreeSet<_>>()
    };
    let hosts = stores.hosts.all();
    let mut pods = ranges(&mut hosts.iter().flat_map(|host| &host.spec.pod_cidrs));
    pods.extend(&settings.infra_pod_ranges);
    let mut services = stores
        .service_ranges
        .fold(BTreeSet::new(), |mut all, range| {
            all.extend(ranges(&mut range.spec.cidrs.iter()));
            all
        });
    services.extend(&settings.infra_service_ranges);
    let classes = stores.storage_classes.all();
    let is_default = |annotations: &BTreeMap<String, String>| {
        annotations
            .get("storageclass.kubernetes.io/is-default-class")
            .is_some_and(|v| v == "true")
    };
    let for_guests = stores
        .namespaces
        .get(&NamespacedName::new("", &key.namespace))
        .is_some_and(|namespace| {
            namespace
                .labels()
                .get(labels::GUESTS_NAMESPACE)
                .is_some_and(|v| v == "true")
        });
    Infra {
        namespace_for_guests: for_guests,
        pod_ranges: pods.into_iter().collect(),
        service_ranges: services.into_iter().collect(),
        kubevirt: stores.kubevirts.fold(None, |found, kubevirt| {
            found.or_else(|| kubevirt.status.as_ref()?.observed_kube_virt_version.clone())
        }),
        storage_classes: classes.iter().map(|class| class.name_any()).collect(),
        default_storage_class: classes
            .iter()
            .find(|class| is_default(class.annotations()))
            .map(|class| class.name_any()),
        hosts: self::hosts(stores),
        usage: usage(stores),
        emptied: maintenance::emptied(stores.maintenances.all().iter().map(AsRef::as_ref)),
        holdings: holdings(stores, key, uid),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn while_an_instance_moves_its_launcher_is_the_one_that_it_runs_in() {
        let pod = |name: &str, host: &str| -> Arc<LauncherPod> {
            let pod = json!({ "metadata": { "name": name }, "spec": { "nodeName": host } });
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let pods = [
            pod("first", "host-1"),
            pod("again", "host-1"),
            pod("target", "host-2"),
        ];
        let chosen = |host: Option<&str>| {
            let status = json!({ "nodeName": host });
            let instance = json!({ "metadata": {}, "spec": {}, "status": status });
            let instance = serde_json::from_value(instance).unwrap();
            launcher_of(&instance, &pods).unwrap().name_any()
        };
        assert_eq!(chosen(Some("host-1")), "again");
        assert_eq!(chosen(Some("host-2")), "target");
        assert_eq!(
            chosen(None),
            "target",
            "a Pod that waits for a host says why"
        );
    }
}
