//! One Cluster as the stores and its guest show it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guestcluster_api::labels;
use guestcluster_bridge::capi as names;
use guestcluster_bridge::serve::{self, Guest, Machine, REFUSED, Refusal, Seen, UserData};
use guestcluster_foreign::capk::{KubevirtCluster, KubevirtMachine};
use guestcluster_foreign::core::LauncherPod;
use guestcluster_planner::observed::Probe;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::clock::monotonic;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};

use super::memory::Memory;
use super::stores::{cluster_of, of_cluster, owner};
use super::{Context, FRESH};
use crate::guest_api::{EVICTION_RETRY, GuestApi, Way};

/// Label of hosts that may take machines. KubeVirt sets it to `false` while a host is away.
const TAKES_MACHINES: &str = "kubevirt.io/schedulable";

impl Context {
    /// What is to be planned on; `None` if nothing of such a Cluster is ours.
    pub(super) async fn observe(&self, key: &NamespacedName, memory: &mut Memory) -> Option<Seen> {
        let cluster = self.stores.clusters.get(key);
        let infra = self.infra(key);
        let objects = of_cluster(&self.stores.infra_machines, key);
        if infra.is_none() && objects.is_empty() {
            return None;
        }
        let around = Around {
            pods: of_cluster(&self.stores.launchers, key),
            secrets: of_cluster(&self.stores.secrets, key),
        };
        let mut seen = Seen {
            dialect: self.dialect,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            cluster: cluster.map(|cluster| (*cluster).clone()),
            machines: objects
                .values()
                .map(|object| (object.name_any(), self.machine(object, &around, memory)))
                .collect(),
            zones: self.zones(),
            ..Seen::default()
        };
        if let Some(infra) = &infra {
            let namespace = serve::service_namespace(&key.namespace, infra);
            let name = NamespacedName::new(namespace, &names::endpoint_service(&key.name));
            seen.service = self
                .stores
                .services
                .get(&name)
                .map(|service| (*service).clone());
            seen.namesake = self.namesake(key, namespace);
        }
        seen.infra = infra;
        if serve::asks_guest(&seen) {
            seen.guest = self.guest(key, memory).await;
        }
        Some(seen)
    }

    /// The Cluster's infrastructure, if it is of our kind.
    fn infra(&self, key: &NamespacedName) -> Option<KubevirtCluster> {
        let store = &self.stores.infra_clusters;
        if let Some(cluster) = self.stores.clusters.get(key) {
            let reference = &cluster.spec.infrastructure_ref;
            let is_ours =
                reference.kind == "KubevirtCluster" && reference.api_group == names::INFRASTRUCTURE;
            let name = NamespacedName::new(&key.namespace, &reference.name);
            let found = store.get(&name).filter(|_| is_ours)?;
            // Before Cluster API has taken it over it may be anybody's.
            let is_owned = owner(found.as_ref(), "Cluster") == Some(&*key.name);
            return is_owned.then(|| (*found).clone());
        }
        let all = of_cluster(store, key);
        all.into_values().next().map(|found| (*found).clone())
    }

    fn machine(&self, object: &KubevirtMachine, around: &Around, memory: &Memory) -> Machine {
        let namespace = object.namespace().unwrap_or_default();
        let owner = owner(object, "Machine").map(|name| NamespacedName::new(&namespace, name));
        let owner = owner.and_then(|name| self.stores.machines.get(&name));
        let mut machine = Machine {
            object: object.clone(),
            owner: owner.map(|owner| (*owner).clone()),
            refused: refusal(memory, &object.name_any()),
            ..Machine::default()
        };
        let place = NamespacedName::new(machine.vm_namespace(), machine.name());
        machine.vm = self.stores.vms.get(&place).map(|vm| (*vm).clone());
        machine.instance = self.stores.instances.get(&place).map(|one| (*one).clone());
        machine.launcher = around.launcher(&place);
        machine.user_data = self.user_data(around, &machine);
        machine
    }

    /// The Secret that a machine boots from: by its label, or, made by CAPK, by its name.
    fn user_data(&self, around: &Around, machine: &Machine) -> Option<UserData> {
        let namespace = machine.vm_namespace();
        let mut labelled = Around::of_machine(&around.secrets, (namespace, machine.name()));
        let by_name = || {
            let bootstrap = machine
                .owner
                .as_ref()?
                .spec
                .bootstrap
                .data_secret_name
                .as_deref()?;
            let name = NamespacedName::new(namespace, &names::user_data_secret(bootstrap));
            self.stores.secrets.get(&name)
        };
        let secret = labelled.next().cloned().or_else(by_name)?;
        Some(user_data(&secret))
    }

    /// Zones of all hosts that KubeVirt has prepared: one that is away is still a zone.
    fn zones(&self) -> BTreeSet<String> {
        self.stores.hosts.fold(BTreeSet::new(), |mut zones, host| {
            if host.labels().contains_key(TAKES_MACHINES)
                && let Some(zone) = host.labels().get(labels::ZONE)
            {
                zones.insert(zone.clone());
            }
            zones
        })
    }

    /// Another Cluster of that name whose Service would be in the same namespace.
    fn namesake(&self, key: &NamespacedName, namespace: &str) -> Option<String> {
        let all = self.stores.infra_clusters.labelled(&key.name);
        all.iter().find_map(|infra| {
            let other = cluster_of(infra.as_ref())?;
            let place = serve::service_namespace(&other.namespace, infra);
            (other != *key && other.name == key.name && place == namespace)
                .then(|| other.to_string())
        })
    }

    /// The guest's Nodes and Pods that are to leave, asked no more often than it can matter.
    async fn guest(&self, key: &NamespacedName, memory: &mut Memory) -> Probe<Guest> {
        let name = names::kubeconfig_secret(&key.name);
        let Some(secret) = self
            .stores
            .secrets
            .get(&NamespacedName::new(&key.namespace, &name))
        else {
            return Probe::NotAsked;
        };
        let time = monotonic();
        if let Some((asked, answer)) = &memory.guest
            && time.saturating_duration_since(*asked) < FRESH
        {
            return answer.clone();
        }
        let version = secret.resource_version().unwrap_or_default();
        let answer = match self.guests.client(key, (&name, &version)).await {
            Ok(client) => {
                let guest = GuestApi {
                    way: Way::Client(client),
                    calls: &self.guest_calls,
                };
                guest.nodes_and_pods().await
            }
            Err(error) => Err(error),
        };
        let mut answer = match answer {
            Ok((nodes, pods)) => Probe::Known(Guest { nodes, pods }),
            Err(error) => Probe::Unreachable(error.explain()),
        };
        if let Probe::Known(guest) = &mut answer {
            for pod in guest.pods.values_mut().flatten() {
                let refusal = memory.refusals.get(&pod.uid);
                pod.refused = refusal.map(|(_, why)| why.clone());
                pod.due = refusal
                    .is_none_or(|(at, _)| time.saturating_duration_since(*at) >= EVICTION_RETRY);
            }
        }
        memory.guest = Some((time, answer.clone()));
        answer
    }
}

/// Objects of one Cluster among which those of its machines are looked for.
struct Around {
    pods: BTreeMap<(String, String), Arc<LauncherPod>>,
    secrets: BTreeMap<(String, String), Arc<PartialObjectMeta<Secret>>>,
}

impl Around {
    /// Those that say by a label that they are a machine's, in the namespace of its virtual machine.
    fn of_machine<'a, K: Resource>(
        all: &'a BTreeMap<(String, String), Arc<K>>,
        (namespace, machine): (&'a str, &'a str),
    ) -> impl Iterator<Item = &'a Arc<K>> {
        all.values().filter(move |object| {
            object.meta().namespace.as_deref() == Some(namespace)
                && object.labels().get(names::MACHINE_NAME).map(String::as_str) == Some(machine)
        })
    }

    /// The Pod of a machine, the newest if there are several.
    fn launcher(&self, place: &NamespacedName) -> Option<LauncherPod> {
        let pods = Self::of_machine(&self.pods, (&place.namespace, &place.name));
        let newest = pods.max_by_key(|pod| pod.metadata.creation_timestamp.clone());
        newest.map(|pod| (**pod).clone())
    }
}

fn refusal(memory: &Memory, machine: &str) -> Option<Refusal> {
    let (at, why) = memory.refused.get(machine)?;
    Some(Refusal {
        why: why.clone(),
        is_due: monotonic().saturating_duration_since(*at) >= REFUSED.unsigned_abs(),
    })
}

fn user_data(secret: &PartialObjectMeta<Secret>) -> UserData {
    UserData {
        name: secret.name_any(),
        uid: secret.uid().unwrap_or_default(),
        resource_version: secret.resource_version().unwrap_or_default(),
        is_scrubbed: secret.annotations().contains_key(labels::SCRUBBED),
    }
}
