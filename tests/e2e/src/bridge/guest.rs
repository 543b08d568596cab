//! A guest of Cluster API, read as its user reads it.

use std::time::Duration;

use anyhow::Context as _;
use guestcluster_infra::node_image::NodeImage;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::manifests::Template;
use super::{Provider, STEP};
use crate::cluster::is_ready;
use crate::stage::Stage;
use crate::wait::until;

/// Everything that a guest may leave behind.
const KINDS: &str = "vm,vmi,dv,pvc,service,pod,clusters.cluster.x-k8s.io,machines.cluster.x-k8s.io,\
                     kubevirtclusters,kubevirtmachines,kubeadmconfigs,kubeadmcontrolplanes";

/// A guest by name, in a namespace of its own.
pub(super) struct Guest<'a> {
    stage: &'a Stage,
    namespace: &'a str,
    name: &'a str,
    provider: Provider,
}

impl<'a> Guest<'a> {
    pub(super) const fn new(
        (stage, provider): (&'a Stage, Provider),
        namespace: &'a str,
        name: &'a str,
    ) -> Self {
        Self {
            stage,
            namespace,
            name,
            provider,
        }
    }

    /// Applies it, with one control-plane machine and no worker.
    pub(super) async fn apply(&self) -> anyhow::Result<()> {
        let options = self.stage.infra()?.options();
        let (version, image) = of_image(options.image.as_ref())?;
        self.apply_all(self.template(&version, &image).objects()?)
            .await
    }

    /// Tells control plane and workers to go to the next minor, which it answers.
    pub(super) async fn upgrade(&self) -> anyhow::Result<String> {
        let options = self.stage.infra()?.options();
        let (version, image) = of_image(options.next_image.as_ref())?;
        let (templates, patches) = self.template(&version, &image).upgrade("next");
        self.apply_all(templates).await?;
        for (object, patch) in patches {
            let patch = patch.to_string();
            self.kubectl(&["patch", &object, "--type=merge", "-p", &patch])
                .await?;
        }
        Ok(version)
    }

    fn template<'t>(&'t self, version: &'t str, image: &'t str) -> Template<'t> {
        Template {
            namespace: self.namespace,
            name: self.name,
            version,
            image,
            // The operator does both for a template that says nothing of it.
            is_careful: self.provider == Provider::Capk,
        }
    }

    async fn apply_all(&self, objects: Vec<Value>) -> anyhow::Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let apply = ["apply", "--server-side", "-f", "-"];
        self.stage
            .kubectl_with(&apply, &list.to_string())
            .await
            .map(drop)
    }

    /// Names of machines by a label of theirs.
    pub(super) async fn machines(&self, selector: &str) -> anyhow::Result<Vec<String>> {
        let names = "jsonpath={.items[*].metadata.name}";
        let names = self
            .kubectl(&["get", "vm", "-l", selector, "-o", names])
            .await?;
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// Hosts of machines by a label of theirs, in the order of the machines' names.
    pub(super) async fn hosts(&self, selector: &str) -> anyhow::Result<Vec<String>> {
        let hosts = "jsonpath={.items[*].status.nodeName}";
        let hosts = self
            .kubectl(&["get", "vmi", "-l", selector, "-o", hosts])
            .await?;
        Ok(hosts.split_whitespace().map(str::to_owned).collect())
    }

    /// The host on which a machine runs; fails while it is on none.
    pub(super) async fn host_of(&self, machine: &str) -> anyhow::Result<String> {
        let instance = self.get(&format!("vmi/{machine}")).await?;
        let host = instance["status"]["nodeName"].as_str().unwrap_or_default();
        anyhow::ensure!(instance["status"]["phase"] == "Running", "it does not run");
        Ok(host.to_owned())
    }

    /// Versions of all kubelets.
    pub(super) async fn kubelets(&self) -> anyhow::Result<Vec<String>> {
        let nodes = self.nodes().await?.into_iter();
        let versions = nodes.filter_map(|node| Some(node.status?.node_info?.kubelet_version));
        Ok(versions.collect())
    }

    /// Nodes that take no Pods.
    pub(super) async fn cordoned(&self) -> anyhow::Result<Vec<String>> {
        let nodes = self.nodes().await?.into_iter();
        let cordoned = nodes
            .filter(|node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true));
        Ok(cordoned.filter_map(|node| node.metadata.name).collect())
    }

    /// Asks for these many machines.
    pub(super) async fn scale(&self, control_plane: u32, workers: u32) -> anyhow::Result<()> {
        let pools = [
            (format!("kubeadmcontrolplane/{}", self.name), control_plane),
            (format!("machinedeployment/{}-workers", self.name), workers),
        ];
        for (object, count) in pools {
            let replicas = format!("--replicas={count}");
            self.kubectl(&["scale", &object, &replicas]).await?;
        }
        Ok(())
    }

    /// Waits until Cluster API says that these many machines are there and available, and each is a Ready Node.
    pub(super) async fn has_machines(
        &self,
        control_plane: u32,
        workers: u32,
    ) -> anyhow::Result<()> {
        let what = format!("{control_plane} + {workers} machines");
        until(&what, STEP, || async {
            let object = format!("kubeadmcontrolplane/{}", self.name);
            let first = self.get(&object).await?;
            is_available_with(&first, control_plane)?;
            anyhow::ensure!(has_condition(&first, "Available"), "{}", told(&first));
            let object = format!("machinedeployment/{}-workers", self.name);
            is_available_with(&self.get(&object).await?, workers)?;
            let cluster = self.get(&format!("cluster/{}", self.name)).await?;
            anyhow::ensure!(has_condition(&cluster, "Available"), "{}", told(&cluster));
            let nodes = self.nodes().await?;
            let ready = nodes.iter().filter(|node| is_ready(node)).count();
            let wanted = usize::try_from(control_plane + workers)?;
            anyhow::ensure!(
                ready == wanted && nodes.len() == wanted,
                "{ready} of {} Nodes are Ready",
                nodes.len()
            );
            Ok(Some(()))
        })
        .await
    }

    /// Waits until nothing stands against an adoption, and lets the API server check the GuestCluster that it
    /// would become.
    pub(super) async fn can_be_adopted(&self) -> anyhow::Result<()> {
        let adopt = ["adopt", self.name, "--namespace", self.namespace];
        until("it can be adopted", Duration::from_secs(60), || async {
            self.stage.plugin(&adopt).await.map(Some)
        })
        .await?;
        let guest_cluster = [&adopt[..], &["--guest-cluster"]].concat();
        let guest_cluster = self.stage.plugin(&guest_cluster).await?;
        let check = ["create", "--dry-run=server", "-f", "-"];
        self.stage
            .kubectl_with(&check, &guest_cluster)
            .await
            .map(drop)
    }

    /// Deletes the Cluster and waits until it is gone.
    pub(super) async fn delete(&self) -> anyhow::Result<()> {
        let cluster = format!("clusters.cluster.x-k8s.io/{}", self.name);
        self.kubectl(&["delete", &cluster, "--timeout=240s"])
            .await
            .map(drop)
    }

    /// Fails if anything but what the user wrote is left; then that goes too.
    pub(super) async fn nothing_is_left(&self) -> anyhow::Result<()> {
        // The provider does not wait for its VMs.
        until("nothing is left", Duration::from_secs(60), || async {
            let mut left = self.kubectl(&["get", KINDS, "-o", "name"]).await?;
            left += &self.kubectl(&["get", "secret", "-o", "name"]).await?;
            let left: Vec<_> = left.lines().collect();
            anyhow::ensure!(left.is_empty(), "{} are left", left.join(" "));
            Ok(Some(()))
        })
        .await?;
        let arguments = ["delete", "namespace", self.namespace, "--timeout=120s"];
        self.stage.kubectl(&arguments).await.map(drop)
    }

    async fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        let nodes = Api::<Node>::all(self.client().await?);
        Ok(nodes.list(&ListParams::default()).await?.items)
    }

    /// The guest, as its administrator.
    async fn client(&self) -> anyhow::Result<Client> {
        let secrets = Api::<Secret>::namespaced(self.stage.client(), self.namespace);
        let secret = secrets.get(&format!("{}-kubeconfig", self.name)).await?;
        let value = secret.data.unwrap_or_default().remove("value");
        let text = String::from_utf8(value.context("no key value")?.0)?;
        let kubeconfig = Kubeconfig::from_yaml(&text)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        config.connect_timeout = Some(Duration::from_secs(3));
        config.read_timeout = Some(Duration::from_secs(10));
        Ok(Client::try_from(config)?)
    }

    pub(super) async fn get(&self, object: &str) -> anyhow::Result<Value> {
        let text = self.kubectl(&["get", object, "-o", "json"]).await?;
        Ok(serde_json::from_str(&text)?)
    }

    pub(super) async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let arguments = [&["--namespace", self.namespace], arguments].concat();
        self.stage.kubectl(&arguments).await
    }
}

/// Version of an image, and the URL that disks are imported from.
fn of_image(image: Option<&NodeImage>) -> anyhow::Result<(String, String)> {
    let image = image.context("the infrastructure boots no such machines")?;
    let (repository, _) = image
        .reference
        .rsplit_once(':')
        .context("the image has no tag")?;
    let repository = repository
        .split_once(':')
        .map_or(repository, |(repository, _)| repository);
    Ok((
        image.kubernetes.clone(),
        format!("docker://{repository}@{}", image.digest),
    ))
}

/// Whether an object that has replicas says of today's specification that all these are available.
fn is_available_with(object: &Value, count: u32) -> anyhow::Result<()> {
    let status = &object["status"];
    let number = |field: &str| status[field].as_u64().unwrap_or_default();
    let counts = ["replicas", "readyReplicas", "availableReplicas"].map(number);
    anyhow::ensure!(
        status["observedGeneration"] == object["metadata"]["generation"]
            && counts == [u64::from(count); 3],
        "{}: {counts:?} replicas, ready, available; {}",
        object["kind"],
        told(object)
    );
    Ok(())
}

pub(super) fn has_condition(object: &Value, kind: &str) -> bool {
    let mut conditions = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// What an object complains of.
fn told(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let told = conditions.into_iter().flatten().map(|condition| {
        let field = |name: &str| condition[name].as_str().unwrap_or_default();
        format!("{}={} {}", field("type"), field("status"), field("message"))
    });
    told.collect::<Vec<_>>().join("; ")
}
