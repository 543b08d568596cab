//! A guest cluster under test: applied with kubectl, read as a user reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use guestcluster_api::{GuestCluster, labels, names};
use guestcluster_foreign::kubevirt::{VirtualMachine, VirtualMachineInstance};
use guestcluster_infra::faults::Target;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::stage::Stage;
use crate::wait::until;

/// Longest time from an apply to Ready; a 3 + 3 guest takes less than a minute on two idle cores.
pub const READY: Duration = Duration::from_secs(300);

/// Longest time until status tells what has happened. A host is given up by Kubernetes after a minute.
const TOLD: Duration = Duration::from_secs(100);

/// A GuestCluster by name.
pub struct Cluster<'a> {
    /// Where.
    pub stage: &'a Stage,
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
}

impl<'a> Cluster<'a> {
    /// The cluster of that name.
    pub const fn new(stage: &'a Stage, namespace: &'a str, name: &'a str) -> Self {
        Self {
            stage,
            namespace,
            name,
        }
    }

    /// Makes the namespace and gives it to guests.
    pub async fn namespace(&self) -> anyhow::Result<()> {
        let document = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": self.namespace,
                "labels": { labels::GUESTS_NAMESPACE: "true" },
            },
        });
        self.stage
            .kubectl_with(&["apply", "-f", "-"], &document.to_string())
            .await?;
        Ok(())
    }

    /// The specification as a document: ten lines and what is added to them.
    pub fn document(&self, workers: u32, extra: &serde_json::Value) -> anyhow::Result<String> {
        let mut spec = serde_json::json!({
            "version": "v1.36.3",
            "image": { "registry": self.stage.image()? },
            "workers": [{ "name": "general", "replicas": workers }],
        });
        merge(&mut spec, extra);
        let document = serde_json::json!({
            "apiVersion": "guestcluster.dev/v1alpha1",
            "kind": "GuestCluster",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": spec,
        });
        Ok(document.to_string())
    }

    /// Applies it.
    pub async fn apply(&self, workers: u32, extra: &serde_json::Value) -> anyhow::Result<()> {
        self.namespace().await?;
        let document = self.document(workers, extra)?;
        self.stage
            .kubectl_with(&["apply", "-f", "-"], &document)
            .await?;
        Ok(())
    }

    /// The object.
    pub async fn get(&self) -> anyhow::Result<GuestCluster> {
        let api = Api::<GuestCluster>::namespaced(self.stage.client(), self.namespace);
        api.get(self.name)
            .await
            .with_context(|| format!("no GuestCluster {}", self.name))
    }

    /// Waits for Ready as a user does.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let timeout = format!("--timeout={}s", READY.as_secs());
        let object = format!("gc/{}", self.name);
        let arguments = [
            "-n",
            self.namespace,
            "wait",
            "--for=condition=Ready",
            &object,
            &timeout,
        ];
        self.stage.kubectl(&arguments).await.map(drop)
    }

    /// Fails unless status speaks of today's specification and says that nothing is left to do.
    pub async fn has_settled(&self) -> anyhow::Result<()> {
        let cluster = self.get().await?;
        let status = cluster.status.unwrap_or_default();
        anyhow::ensure!(
            status.observed_generation == cluster.metadata.generation,
            "status is of an earlier specification"
        );
        for (type_, wanted) in [
            ("Ready", "True"),
            ("Reconciling", "False"),
            ("UpToDate", "True"),
        ] {
            let found = status.conditions.iter().find(|c| c.type_ == type_);
            anyhow::ensure!(
                found.is_some_and(|c| c.status == wanted),
                "{type_} is {:?}",
                found.map(|c| (&c.status, &c.reason, &c.message))
            );
        }
        Ok(())
    }

    /// Waits until a condition has a status and reason.
    pub async fn condition(&self, type_: &str, status: &str, reason: &str) -> anyhow::Result<()> {
        self.condition_says(type_, status, reason, &[""]).await
    }

    /// Waits until a condition has a status and reason and its message all of these words.
    pub async fn condition_says(
        &self,
        type_: &str,
        status: &str,
        reason: &str,
        words: &[&str],
    ) -> anyhow::Result<()> {
        let what = format!("{type_}={status} {reason} saying {words:?}");
        until(&what, TOLD, || async {
            let cluster = self.get().await?;
            let conditions = cluster.status.unwrap_or_default().conditions;
            let found = conditions
                .iter()
                .find(|c| c.type_ == type_)
                .context("no such condition")?;
            let says = words.iter().all(|word| found.message.contains(word));
            if found.status == status && found.reason == reason && says {
                return Ok(Some(()));
            }
            anyhow::bail!("it is {} {}: {}", found.status, found.reason, found.message)
        })
        .await
    }

    fn selector(&self) -> ListParams {
        ListParams::default().labels(&format!("{}={}", labels::CLUSTER, self.name))
    }

    /// Its VMs by name.
    pub async fn vms(&self) -> anyhow::Result<BTreeMap<String, VirtualMachine>> {
        let api = Api::<VirtualMachine>::namespaced(self.stage.client(), self.namespace);
        Ok(by_name(api.list(&self.selector()).await?.items))
    }

    /// Its instances by name.
    pub async fn instances(&self) -> anyhow::Result<BTreeMap<String, VirtualMachineInstance>> {
        let api = Api::<VirtualMachineInstance>::namespaced(self.stage.client(), self.namespace);
        Ok(by_name(api.list(&self.selector()).await?.items))
    }

    /// Its launcher Pods that are not finished, by machine.
    pub async fn launchers(&self) -> anyhow::Result<BTreeMap<String, Pod>> {
        let api = Api::<Pod>::namespaced(self.stage.client(), self.namespace);
        let pods = api.list(&self.selector()).await?.items.into_iter();
        let alive = pods.filter(|pod| {
            let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        });
        Ok(alive
            .filter_map(|pod| {
                let machine = pod.metadata.labels.as_ref()?.get(labels::MACHINE)?.clone();
                Some((machine, pod))
            })
            .collect())
    }

    /// Names of its control-plane machines.
    pub async fn control_plane(&self) -> anyhow::Result<Vec<String>> {
        let prefix = format!("{}-{}-", self.name, names::CONTROL_PLANE_POOL);
        Ok(self
            .vms()
            .await?
            .into_keys()
            .filter(|name| name.starts_with(&prefix))
            .collect())
    }

    /// Hosts of its control-plane machines.
    pub async fn control_plane_hosts(&self) -> anyhow::Result<BTreeSet<String>> {
        let machines = self.control_plane().await?;
        let instances = self.instances().await?;
        let host = |name: &String| instances.get(name)?.status.as_ref()?.node_name.clone();
        Ok(machines.iter().filter_map(host).collect())
    }

    /// The host that a machine runs on.
    pub async fn host_of(&self, machine: &str) -> anyhow::Result<String> {
        let instances = self.instances().await?;
        let host = instances
            .get(machine)
            .and_then(|i| i.status.as_ref()?.node_name.clone());
        host.with_context(|| format!("{machine} has no host"))
    }

    /// One of its machines, for faults.
    pub fn target(&self, machine: &str) -> Target {
        Target::new(self.namespace, machine)
    }

    /// The kubeconfig that the operator made.
    pub async fn kubeconfig(&self) -> anyhow::Result<Kubeconfig> {
        let api = Api::<Secret>::namespaced(self.stage.client(), self.namespace);
        let secret = api.get(&names::secrets::kubeconfig(self.name)).await?;
        let value = secret
            .data
            .unwrap_or_default()
            .remove("value")
            .context("no key value")?;
        Ok(Kubeconfig::from_yaml(&String::from_utf8(value.0)?)?)
    }

    /// How the guest is reached with it.
    pub async fn guest_config(&self) -> anyhow::Result<Config> {
        let kubeconfig = self.kubeconfig().await?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        config.connect_timeout = Some(Duration::from_secs(3));
        config.read_timeout = Some(Duration::from_secs(10));
        Ok(config)
    }

    /// The guest, as its administrator.
    pub async fn guest(&self) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.guest_config().await?)?)
    }

    /// The guest's Nodes by name.
    pub async fn nodes(&self) -> anyhow::Result<BTreeMap<String, Node>> {
        let api = Api::<Node>::all(self.guest().await?);
        Ok(by_name(api.list(&ListParams::default()).await?.items))
    }

    /// Waits until exactly these many Nodes are Ready and every machine runs.
    pub async fn nodes_ready(&self, count: usize) -> anyhow::Result<()> {
        until(&format!("{count} Nodes are Ready"), READY, || async {
            let nodes = self.nodes().await?;
            let ready = nodes.values().filter(|node| is_ready(node)).count();
            anyhow::ensure!(ready == count, "{ready} of {} are", nodes.len());
            Ok(Some(()))
        })
        .await
    }
}

/// Whether a Node is Ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .filter_map(|status| status.conditions.as_ref())
        .flatten();
    conditions
        .into_iter()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}

fn by_name<K: kube::ResourceExt>(items: Vec<K>) -> BTreeMap<String, K> {
    items
        .into_iter()
        .map(|item| (item.name_any(), item))
        .collect()
}

/// Lays `extra` over `base`, member by member.
pub fn merge(base: &mut serde_json::Value, extra: &serde_json::Value) {
    match (base, extra) {
        (serde_json::Value::Object(base), serde_json::Value::Object(extra)) => {
            for (key, value) in extra {
                merge(
                    base.entry(key.clone()).or_insert(serde_json::Value::Null),
                    value,
                );
            }
        }
        (base, extra) => *base = extra.clone(),
    }
}
