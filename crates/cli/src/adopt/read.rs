//! Reads all that an adoption is decided from. Nothing is written, and a refusal is told.

use anyhow::{Context as _, anyhow};
use guestcluster_bridge::adopt::{Guest, Kind, Secret, Seen};
use guestcluster_bridge::capi;
use guestcluster_planner::observed::Probe;
use guestcluster_shell::error::is_absent;
use guestcluster_shell::kubeconfig;
use k8s_openapi::api::core::v1::{self, ConfigMap, Namespace, Node, Pod};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::connection::{impatient, is_forbidden, list};

/// kubeadm's namespace in a guest, and what it calls its configuration.
const KUBE_SYSTEM: &str = "kube-system";
const CONFIGURATION: &str = "kubeadm-config";
/// What kubeadm labels the Pods of etcd with.
const ETCD: &str = "component=etcd,tier=control-plane";

/// One reading. What the caller may not read is told in it.
///
/// # Errors
/// If the infrastructure's API server does not answer.
pub async fn seen(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Seen> {
    let mut seen = Seen {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Seen::default()
    };
    for kind in Kind::ALL {
        let read = probe(objects(client, namespace, kind).await)
            .with_context(|| format!("cannot list {}s", kind.as_str()))?;
        seen.objects.insert(kind, read);
    }
    if seen.cluster().is_none() {
        return Ok(seen);
    }
    let secrets = list(Api::<Secret>::namespaced(client.clone(), namespace), None).await;
    seen.secrets = probe(secrets).context("cannot list Secrets")?;
    let namespaces = Api::<Namespace>::all(client.clone());
    let labels = namespaces.get_metadata(namespace).await;
    let labels = labels.map(|found| found.metadata.labels.unwrap_or_default());
    seen.namespace_labels = probe(labels).context("cannot get the namespace")?;
    seen.guest = match guest(client, namespace, name).await {
        Ok(guest) => Probe::Known(guest),
        Err(why) => Probe::Unreachable(format!("{why:#}")),
    };
    Ok(seen)
}

/// Whether the API server serves the version of a kind that is read.
pub async fn serves(client: &Client, kind: Kind) -> bool {
    let (group, version) = kind.group_version();
    let served = format!("{group}/{version}");
    client.list_api_group_resources(&served).await.is_ok()
}

/// A refusal is not known, and what the API server does not know is not there.
fn probe<T: Default>(read: Result<T, kube::Error>) -> anyhow::Result<Probe<T>> {
    match read {
        Ok(read) => Ok(Probe::Known(read)),
        Err(error) if is_absent(&error) => Ok(Probe::Known(T::default())),
        Err(error) if is_forbidden(&error) => {
            Ok(Probe::Unreachable("you may not read them".to_owned()))
        }
        Err(error) => Err(anyhow!(error)),
    }
}

async fn objects(client: &Client, namespace: &str, kind: Kind) -> Result<Vec<Value>, kube::Error> {
    let (group, version) = kind.group_version();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind.as_str()));
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let found = list(api, None).await?;
    let documents = found.into_iter().map(|object| {
        // What is in a list does not say what it is.
        let mut document = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        document["apiVersion"] = json!(resource.api_version);
        document["kind"] = json!(resource.kind);
        Ok(document)
    });
    documents.collect()
}

/// The guest, with the kubeconfig that its control plane publishes.
async fn guest(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Guest> {
    let secret = capi::kubeconfig_secret(name);
    let secrets = Api::<v1::Secret>::namespaced(client.clone(), namespace);
    let found = secrets.get(&secret).await.map_err(|error| {
        if is_forbidden(&error) {
            anyhow!("you may not get Secret {secret}")
        } else {
            anyhow!("Secret {secret} cannot be read: {error}")
        }
    })?;
    let value = found.data.unwrap_or_default().remove(capi::KUBECONFIG_KEY);
    let text = value.and_then(|value| String::from_utf8(value.0).ok());
    let text = text.with_context(|| {
        let key = capi::KUBECONFIG_KEY;
        format!("Secret {secret} has no text under {key}")
    })?;
    let config = kubeconfig::config(&text).await;
    let config = config.map_err(|why| anyhow!("Secret {secret} cannot be used: {why}"))?;
    let host = config.cluster_url.host().unwrap_or_default();
    let port = config.cluster_url.port_u16().unwrap_or(443);
    let server = format!("{host}:{port}");
    let unheard = format!("the guest does not answer at {server}");
    let guest = impatient(config).with_context(|| unheard.clone())?;
    let pods = Api::<Pod>::namespaced(guest.clone(), KUBE_SYSTEM);
    let configurations = Api::<ConfigMap>::namespaced(guest.clone(), KUBE_SYSTEM);
    let (nodes, pods, configuration) = tokio::try_join!(
        list(Api::<Node>::all(guest.clone()), None),
        list(pods, Some(ETCD)),
        configurations.get_opt(CONFIGURATION),
    )
    .context(unheard)?;
    Guest::read(server, &nodes, &pods, configuration.as_ref()).map_err(|why| anyhow!(why))
}
