//! The hosts: Node objects, and for each a kubelet and a virt-handler that can lose power.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::addresses::{self, KUBELET_PORT, POD_RANGE};
use crate::data_centre::DataCentre;
use crate::kubelet::server::ServerTls;
use crate::tools::KUBERNETES_VERSION;
use crate::{handler, kubelet};

/// A kubelet renews its lease this often, and states its conditions at the same time.
const LEASE_PERIOD: Duration = Duration::from_secs(10);
/// How long a lease holds: the default of kubelets.
const LEASE_SECONDS: u32 = 40;
/// Conditions are stated anew after this many renewals of the lease.
const RENEWALS_PER_STATUS: u64 = 6;
/// virt-handler's heartbeat; virt-controller takes it for dead after five minutes without.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(60);

/// One host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// `host-<n>`.
    pub name: String,
    /// The zone that it stands in.
    pub zone: &'static str,
    /// The address of its kubelet.
    pub address: Ipv4Addr,
}

impl Host {
    /// `count` hosts in two zones, the first half in `zone-a`.
    pub fn all(count: u8) -> Vec<Self> {
        (1..=count)
            .map(|number| Self {
                name: format!("host-{number}"),
                zone: if number <= count.div_ceil(2) {
                    "zone-a"
                } else {
                    "zone-b"
                },
                address: addresses::kubelet(number),
            })
            .collect()
    }

    /// The Node object that the host registers, with 32 CPUs and 128 GiB.
    pub fn node(&self) -> Value {
        let resources = json!({
            "cpu": "32", "memory": "128Gi", "ephemeral-storage": "500Gi", "pods": "110",
            "devices.kubevirt.io/kvm": "1k",
            "devices.kubevirt.io/tun": "1k",
            "devices.kubevirt.io/vhost-net": "1k",
        });
        // The labels under kubevirt.io are those that virt-handler finds out about a machine; the
        // CPU model makes virtual machines migratable.
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.name, "labels": {
                "kubernetes.io/hostname": self.name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": self.zone,
                "kubevirt.io/schedulable": "true",
                "kubevirt.io/cpumanager": "true",
                "cpumanager": "true",
                "machine-type.node.kubevirt.io/q35": "true",
                "cpu-vendor.node.kubevirt.io/Intel": "true",
                "host-model-cpu.node.kubevirt.io/Skylake-Server": "true",
                "cpu-model-migration.node.kubevirt.io/Skylake-Server": "true",
            }},
            "spec": {"podCIDR": POD_RANGE, "podCIDRs": [POD_RANGE]},
            "status": {"capacity": resources, "allocatable": resources},
        })
    }
}

struct Slot {
    host: Arc<Host>,
    agent: Option<JoinHandle<()>>,
}

/// All hosts. Clones share them.
#[derive(Clone)]
pub struct Hosts {
    centre: Arc<DataCentre>,
    tls: ServerTls,
    slots: Arc<Mutex<BTreeMap<String, Slot>>>,
}

impl Hosts {
    /// Switches `hosts` on; their Node objects must be there.
    pub fn start(centre: Arc<DataCentre>, tls: ServerTls, hosts: Vec<Host>) -> Self {
        let started = Self {
            centre,
            tls,
            slots: Arc::default(),
        };
        for host in hosts {
            let host = Arc::new(host);
            let agent = Some(started.boot(host.clone()));
            started
                .lock()
                .insert(host.name.clone(), Slot { host, agent });
        }
        started
    }

    /// The host loses power: its machines stop, its kubelet and its handler fall silent.
    pub async fn kill(&self, name: &str) -> anyhow::Result<()> {
        let agent = self.slot(name, |slot| slot.agent.take())?;
        let agent = agent.with_context(|| format!("{name} has no power already"))?;
        agent.abort();
        // It ends as aborted: waiting makes sure that it writes nothing any more.
        let _ = agent.await;
        self.centre.guests.power_loss(name).await;
        Ok(())
    }

    /// The host is switched on again.
    pub fn revive(&self, name: &str) -> anyhow::Result<()> {
        let host = self.slot(name, |slot| slot.agent.is_none().then(|| slot.host.clone()))?;
        let host = host.with_context(|| format!("{name} has power"))?;
        let agent = self.boot(host);
        self.slot(name, |slot| slot.agent = Some(agent))
    }

    /// Each host with whether it has power.
    pub fn rows(&self) -> Vec<(Arc<Host>, bool)> {
        self.lock()
            .values()
            .map(|slot| (slot.host.clone(), slot.agent.is_some()))
            .collect()
    }

    fn boot(&self, host: Arc<Host>) -> JoinHandle<()> {
        tokio::spawn(live(host, self.centre.clone(), self.tls.clone()))
    }

    fn slot<T>(&self, name: &str, change: impl FnOnce(&mut Slot) -> T) -> anyhow::Result<T> {
        let mut slots = self.lock();
        let known = slots.keys().cloned().collect::<Vec<_>>().join(", ");
        let slot = slots.get_mut(name);
        Ok(change(slot.with_context(|| {
            format!("no host {name}; there are {known}")
        })?))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that runs on a host; dropping it is a power loss.
async fn live(host: Arc<Host>, centre: Arc<DataCentre>, tls: ServerTls) {
    tokio::join!(
        kubelet_heartbeat(&host, &centre.clients.kubelet),
        handler_heartbeat(&host, &centre.clients.handler),
        kubelet::server::serve(host.clone(), centre.clone(), tls),
        kubelet::run(host.clone(), centre.clone()),
        handler::run(host.clone(), centre.clone()),
    );
}

async fn kubelet_heartbeat(host: &Host, client: &Client) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let nodes: Api<Node> = Api::all(client.clone());
    let booted = Timestamp::now();
    let mut ticks = tokio::time::interval(LEASE_PERIOD);
    let mut renewals = 0_u64;
    loop {
        ticks.tick().await;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": host.name},
            "spec": {
                "holderIdentity": host.name,
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": micro_time(Timestamp::now()),
            },
        });
        let apply = PatchParams::apply("kubelet").force();
        let renewed = leases
            .patch(&host.name, &apply, &Patch::Apply(lease))
            .await
            .map(drop);
        let stated = if renewals.is_multiple_of(RENEWALS_PER_STATUS) {
            let status = node_status(host, booted);
            let patch = Patch::Strategic(status);
            nodes
                .patch_status(&host.name, &PatchParams::default(), &patch)
                .await
                .map(drop)
        } else {
            Ok(())
        };
        match renewed.and(stated) {
            Ok(()) => renewals += 1,
            Err(error) => {
                tracing::debug!(host = host.name, %error, "heartbeat");
                // Conditions are stated with the next success.
                renewals = 0;
                ticks.reset_after(Duration::from_secs(1));
            }
        }
    }
}

fn node_status(host: &Host, booted: Timestamp) -> Value {
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason,
            "message": reason,
            "lastHeartbeatTime": seconds(Timestamp::now()),
            "lastTransitionTime": seconds(booted),
        })
    };
    json!({"status": {
        "addresses": [
            {"type": "InternalIP", "address": host.address.to_string()},
            {"type": "Hostname", "address": host.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "nodeInfo": {
            "kubeletVersion": KUBERNETES_VERSION, "operatingSystem": "linux", "architecture": "amd64",
            "osImage": "local infrastructure", "containerRuntimeVersion": "stand-in://1",
            "kernelVersion": "", "kubeProxyVersion": "",
            "machineID": host.name, "systemUUID": host.name, "bootID": booted.to_string(),
        },
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
    }})
}

async fn handler_heartbeat(host: &Host, client: &Client) {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut ticks = tokio::time::interval(HEARTBEAT_PERIOD);
    loop {
        ticks.tick().await;
        let patch = json!({"metadata": {
            "annotations": {"kubevirt.io/heartbeat": seconds(Timestamp::now())},
            "labels": {"kubevirt.io/schedulable": "true"},
        }});
        let beat = nodes
            .patch(&host.name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        if let Err(error) = beat {
            tracing::debug!(host = host.name, %error, "virt-handler heartbeat");
            ticks.reset_after(Duration::from_secs(1));
        }
    }
}

/// RFC 3339 to the second, as Kubernetes' Time.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// RFC 3339 to the microsecond, as Kubernetes' MicroTime.
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::{Host, micro_time, seconds};
    use k8s_openapi::jiff::Timestamp;

    #[test]
    fn four_hosts_stand_in_two_zones() {
        let zones: Vec<_> = Host::all(4)
            .into_iter()
            .map(|host| (host.name, host.zone))
            .collect();
        assert_eq!(zones[0], ("host-1".to_owned(), "zone-a"));
        assert_eq!(zones[1].1, "zone-a");
        assert_eq!(zones[2].1, "zone-b");
        assert_eq!(zones[3], ("host-4".to_owned(), "zone-b"));
    }

    #[test]
    fn times_are_written_as_the_api_wants_them() {
        let time = Timestamp::UNIX_EPOCH;
        assert_eq!(seconds(time), "1970-01-01T00:00:00Z");
        assert_eq!(micro_time(time), "1970-01-01T00:00:00.000000Z");
    }
}
