//! A guest's own API server: what is asked of it, and the little that is written into it.
//!
//! # Guarantees
//! - A question is answered as a whole or not at all: a guest that answers in part is unreachable.
//! - Only bootstrap tokens of ours are told of; a token that a person made is nobody's business.
//! - Every call ends within the writer's timeout.

mod configuration;
mod drain;
mod endpoint;
mod slim;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use guestcluster_api::labels;
use guestcluster_pki::{BOOTSTRAP_TOKEN_NAMESPACE, BOOTSTRAP_TOKEN_SECRET_TYPE, BootstrapToken};
use guestcluster_planner::observed::{Guest, GuestNode, GuestPod, Probe};
use guestcluster_planner::render;
use guestcluster_shell::apply::Writer;
use http::Request;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::doors::{Door, Doors};
use crate::error::Error;
use crate::secret_body::secret_body;
use slim::{SlimNode, SlimToken, TOKEN_PREFIX, guest_node, node_patch, own_token};

/// Namespace and name of the pod network's DaemonSet, whose annotation tells what was applied.
const POD_NETWORK: (&str, &str) = ("kube-flannel", "kube-flannel");

/// Namespace and name of the add-on that `kubeadm init` applies last.
const LAST_OF_INIT: (&str, &str) = ("kube-system", "kube-proxy");

/// Asks and changes one guest.
#[derive(Debug)]
pub struct GuestApi<'a> {
    /// The way in.
    pub way: Way<'a>,
    /// Bounds each call.
    pub calls: &'a Writer,
}

/// How soon an eviction that was refused is asked for again, as kubectl does.
pub const EVICTION_RETRY: Duration = Duration::from_secs(5);

/// The way into a guest.
pub enum Way<'a> {
    /// Where a guest of ours is, by the authorities that we keep for it.
    Door(&'a Doors, &'a Door),
    /// A client that somebody has set up.
    Client(Client),
}

impl std::fmt::Debug for Way<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Door(_, door) => door.fmt(f),
            Self::Client(_) => f.write_str("Client"),
        }
    }
}

/// Nodes of a guest by name, and of each that we drain the Pods that must be evicted.
pub type NodesAndPods = (BTreeMap<String, GuestNode>, BTreeMap<String, Vec<GuestPod>>);

impl GuestApi<'_> {
    /// The guest as its API shows it. `known_tokens` are the ids of tokens of ours that kubeadm
    /// made, which carry no label.
    pub async fn observe(&self, known_tokens: &BTreeSet<String>) -> Probe<Guest> {
        // Boxed: it holds all of the guest's answers at once.
        match Box::pin(self.ask(known_tokens)).await {
            Ok(guest) => Probe::Known(guest),
            Err(error) => Probe::Unreachable(error.explain()),
        }
    }

    /// The guest's Nodes, and Pods of those that we drain.
    pub async fn nodes_and_pods(&self) -> Result<NodesAndPods, Error> {
        let client = self.client().await?;
        let nodes = self.nodes(&client).await?;
        let pods = self.drained_pods(&client, &nodes).await?;
        Ok((nodes, pods))
    }

    /// Tells a Node which machine is its own. It can be told once.
    pub async fn set_provider_id(&self, name: &str, uid: &str, id: &str) -> Result<(), Error> {
        let api = Api::<SlimNode>::all(self.client().await?);
        let patch = json!([
            { "op": "test", "path": "/metadata/uid", "value": uid },
            { "op": "add", "path": "/spec/providerID", "value": id },
        ]);
        let patched = self.calls.patch(&api, name, patch).await;
        patched.map_err(Error::Guest).map(drop)
    }

    /// Whether `kubeadm init` has come to its end. A guest that does not say so has not told of it.
    pub async fn has_finished_init(&self) -> bool {
        let Ok(client) = self.client().await else {
            return false;
        };
        matches!(self.daemon_set(&client, LAST_OF_INIT).await, Ok(Some(_)))
    }

    async fn ask(&self, known_tokens: &BTreeSet<String>) -> Result<Guest, Error> {
        let client = self.client().await?;
        let ((), nodes, tokens, cni, (configuration, addons), server) = futures::try_join!(
            self.ready(&client),
            self.nodes(&client),
            self.tokens(&client, known_tokens),
            self.cni(&client),
            self.configuration(&client),
            self.server(&client),
        )?;
        let pods = self.drained_pods(&client, &nodes).await?;
        Ok(Guest {
            nodes,
            tokens,
            cni,
            configuration,
            server,
            addons,
            pods,
        })
    }

    async fn ready(&self, client: &Client) -> Result<(), Error> {
        let request = Request::get("/readyz")
            .body(Vec::new())
            .map_err(|error| Error::Malformed(error.to_string()))?;
        let answer = client.request_text(request);
        self.calls
            .within("ask /readyz".to_owned(), answer)
            .await
            .map_err(Error::Guest)
            .map(drop)
    }

    async fn nodes(&self, client: &Client) -> Result<BTreeMap<String, GuestNode>, Error> {
        let api = Api::<SlimNode>::all(client.clone());
        let params = ListParams::default();
        let nodes = self
            .calls
            .within("list Nodes".to_owned(), api.list(&params));
        let nodes = nodes.await.map_err(Error::Guest)?;
        Ok(nodes
            .into_iter()
            .map(|node| (node.name_any(), guest_node(node)))
            .collect())
    }

    async fn tokens(
        &self,
        client: &Client,
        known: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Option<Timestamp>>, Error> {
        let api = Api::<SlimToken>::namespaced(client.clone(), BOOTSTRAP_TOKEN_NAMESPACE);
        let params = ListParams::default().fields(&format!("type={BOOTSTRAP_TOKEN_SECRET_TYPE}"));
        let tokens = self
            .calls
            .within("list bootstrap tokens".to_owned(), api.list(&params));
        let tokens = tokens.await.map_err(Error::Guest)?;
        Ok(tokens
            .into_iter()
            .filter_map(|token| own_token(&token, known))
            .collect())
    }

    async fn cni(&self, client: &Client) -> Result<Option<String>, Error> {
        let daemon_set = self.daemon_set(client, POD_NETWORK).await?;
        Ok(daemon_set.and_then(|found| found.annotations().get(render::RENDER).cloned()))
    }

    async fn daemon_set(
        &self,
        client: &Client,
        (namespace, name): (&str, &str),
    ) -> Result<Option<PartialObjectMeta<DaemonSet>>, Error> {
        let api = Api::namespaced(client.clone(), namespace);
        self.calls.read(&api, name).await.map_err(Error::Guest)
    }

    /// Makes a token valid until `expires` (Unix seconds) for one machine.
    pub async fn create_token(
        &self,
        token: &BootstrapToken,
        machine: &str,
        expires: i64,
    ) -> Result<(), Error> {
        let name = token.secret_name();
        let description = format!("lets machine {machine} join");
        let data = token
            .to_secret(expires, &description)
            .map_err(Error::Minting)?;
        let metadata = json!({
            "name": name,
            "namespace": BOOTSTRAP_TOKEN_NAMESPACE,
            "labels": { labels::MACHINE: machine, labels::MANAGED_BY: labels::OPERATOR },
        });
        let body = secret_body(metadata, BOOTSTRAP_TOKEN_SECRET_TYPE, &data);
        self.calls
            .create(&self.token_api().await?, &body)
            .await
            .map_err(Error::Guest)
            .map(drop)
    }

    /// Makes a token valid until `expires` (Unix seconds).
    pub async fn extend_token(&self, id: &str, expires: i64) -> Result<(), Error> {
        let expiration = BootstrapToken::expiration(expires).map_err(Error::Minting)?;
        let expiration = json!(ByteString(expiration.into_bytes()));
        let patch = json!([{ "op": "replace", "path": "/data/expiration", "value": expiration }]);
        let api = self.token_api().await?;
        let name = format!("{TOKEN_PREFIX}{id}");
        let patched = self.calls.patch(&api, &name, patch).await;
        patched.map_err(Error::Guest).map(drop)
    }

    /// Takes a token back. One that is not there counts as taken back.
    pub async fn delete_token(&self, id: &str) -> Result<(), Error> {
        let name = format!("{TOKEN_PREFIX}{id}");
        let api = self.token_api().await?;
        // The name is drawn at random and never used twice, so that it needs no precondition.
        let params = DeleteParams::default();
        let deletion = api.delete(&name, &params);
        match self
            .calls
            .within(format!("delete Secret {name}"), deletion)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(Error::Guest(error)),
        }
    }

    /// Sets labels on a Node or takes them off, and the control plane's taint if asked for.
    pub async fn label_node(
        &self,
        name: &str,
        labels: &BTreeMap<String, Option<String>>,
        taint_control_plane: bool,
    ) -> Result<(), Error> {
        let api = Api::<SlimNode>::all(self.client().await?);
        let node = self.calls.read(&api, name).await.map_err(Error::Guest)?;
        let node = node.ok_or_else(|| Error::Gone(format!("the guest has no Node {name}")))?;
        let patch = node_patch(&node, labels, taint_control_plane);
        let patched = self.calls.patch(&api, name, patch).await;
        patched.map_err(Error::Guest).map(drop)
    }

    /// Applies objects of any kind, in order.
    pub async fn apply(&self, objects: &[Value]) -> Result<(), Error> {
        let client = self.client().await?;
        let params = PatchParams::apply(labels::managers::GUEST).force();
        for object in objects {
            let (api, name) = dynamic(&client, object)?;
            let call = format!("apply {name}");
            let patch = Patch::Apply(object);
            let applied = api.patch(&name, &params, &patch);
            self.calls
                .within(call, applied)
                .await
                .map_err(Error::Guest)?;
        }
        Ok(())
    }

    async fn token_api(&self) -> Result<Api<PartialObjectMeta<Secret>>, Error> {
        Ok(Api::namespaced(
            self.client().await?,
            BOOTSTRAP_TOKEN_NAMESPACE,
        ))
    }

    async fn client(&self) -> Result<Client, Error> {
        match &self.way {
            Way::Door(doors, door) => doors.open(door).await,
            Way::Client(client) => Ok(client.clone()),
        }
    }
}

/// The API of an object's kind, and its name.
fn dynamic(client: &Client, object: &Value) -> Result<(Api<DynamicObject>, String), Error> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let (Some(version), Some(kind), Some(name)) =
        (text("/apiVersion"), text("/kind"), text("/metadata/name"))
    else {
        return Err(Error::Malformed(
            "an object without apiVersion, kind or name".to_owned(),
        ));
    };
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Ok((api, name.to_owned()))
}
