//! A guest's own API server: what is asked of it, and the little that is written into it.
//!
//! # Guarantees
//! - A question is answered as a whole or not at all: a guest that answers in part is unreachable.
//! - Only bootstrap tokens of ours are told of; a token that a person made is nobody's business.
//! - Every call ends within the writer's timeout.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::labels;
use guestcluster_pki::{BOOTSTRAP_TOKEN_NAMESPACE, BOOTSTRAP_TOKEN_SECRET_TYPE, BootstrapToken};
use guestcluster_planner::observed::{Guest, GuestNode, Probe};
use guestcluster_planner::render;
use guestcluster_shell::apply::Writer;
use http::Request;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Secret, Taint};
use k8s_openapi::jiff::Timestamp;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch,
    PatchParams,
};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::doors::{Door, Doors};
use crate::error::Error;
use crate::secret_body::secret_body;

/// Namespace and name of the pod network's DaemonSet, whose annotation tells what was applied.
const POD_NETWORK: (&str, &str) = ("kube-flannel", "kube-flannel");

/// Key of the taint that keeps ordinary Pods off the control plane.
const CONTROL_PLANE_TAINT: &str = "node-role.kubernetes.io/control-plane";

/// What the name of a bootstrap token's Secret begins with.
const TOKEN_PREFIX: &str = "bootstrap-token-";

/// Asks and changes one guest.
#[derive(Debug)]
pub struct GuestApi<'a> {
    /// The way in.
    pub doors: &'a Doors,
    /// Bounds each call.
    pub calls: &'a Writer,
    /// Where the guest is.
    pub door: &'a Door,
}

/// A Node, as far as a plan asks.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default)]
#[resource(inherit = Node)]
struct SlimNode {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimNodeSpec,
    #[serde(default)]
    status: SlimNodeStatus,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
struct SlimNodeSpec {
    #[serde(default)]
    taints: Vec<Taint>,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
struct SlimNodeStatus {
    #[serde(default)]
    conditions: Vec<SlimCondition>,
    #[serde(default)]
    node_info: SlimNodeInfo,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
struct SlimCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
struct SlimNodeInfo {
    #[serde(default)]
    kubelet_version: String,
}

/// A bootstrap token's Secret without its secret half, which is not even decoded.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default)]
#[resource(inherit = Secret)]
struct SlimToken {
    metadata: ObjectMeta,
    #[serde(default)]
    data: SlimTokenData,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
struct SlimTokenData {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expiration: Option<ByteString>,
}

impl GuestApi<'_> {
    /// The guest as its API shows it. `known_tokens` are the ids of tokens of ours that kubeadm
    /// made, which carry no label.
    pub async fn observe(&self, known_tokens: &BTreeSet<String>) -> Probe<Guest> {
        match self.ask(known_tokens).await {
            Ok(guest) => Probe::Known(guest),
            Err(error) => Probe::Unreachable(error.explain()),
        }
    }

    async fn ask(&self, known_tokens: &BTreeSet<String>) -> Result<Guest, Error> {
        let client = self.client().await?;
        let ((), nodes, tokens, cni) = futures::try_join!(
            self.ready(&client),
            self.nodes(&client),
            self.tokens(&client, known_tokens),
            self.cni(&client),
        )?;
        Ok(Guest { nodes, tokens, cni })
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
        let (namespace, name) = POD_NETWORK;
        let api = Api::<PartialObjectMeta<DaemonSet>>::namespaced(client.clone(), namespace);
        let daemon_set = self.calls.read(&api, name).await.map_err(Error::Guest)?;
        Ok(daemon_set.and_then(|found| found.annotations().get(render::RENDER).cloned()))
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
        self.json_patch(&api, &format!("{TOKEN_PREFIX}{id}"), patch)
            .await
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

    /// Sets labels on a Node, and the control plane's taint if asked for.
    pub async fn label_node(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        taint_control_plane: bool,
    ) -> Result<(), Error> {
        let api = Api::<SlimNode>::all(self.client().await?);
        let node = self.calls.read(&api, name).await.map_err(Error::Guest)?;
        let node = node.ok_or_else(|| Error::Gone(format!("the guest has no Node {name}")))?;
        self.json_patch(&api, name, node_patch(&node, labels, taint_control_plane))
            .await
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

    async fn json_patch<K>(&self, api: &Api<K>, name: &str, steps: Value) -> Result<(), Error>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let patch = serde_json::from_value(steps)
            .map_err(|error| Error::Malformed(format!("patch of {name}: {error}")))?;
        let patch = Patch::Json::<()>(patch);
        let params = PatchParams {
            field_manager: Some(labels::managers::GUEST.to_owned()),
            ..PatchParams::default()
        };
        let patched = api.patch(name, &params, &patch);
        self.calls
            .within(format!("patch {name}"), patched)
            .await
            .map_err(Error::Guest)
            .map(drop)
    }

    async fn token_api(&self) -> Result<Api<PartialObjectMeta<Secret>>, Error> {
        Ok(Api::namespaced(
            self.client().await?,
            BOOTSTRAP_TOKEN_NAMESPACE,
        ))
    }

    async fn client(&self) -> Result<Client, Error> {
        self.doors.open(self.door).await
    }
}

fn guest_node(node: SlimNode) -> GuestNode {
    let ready =
        |condition: &SlimCondition| condition.type_ == "Ready" && condition.status == "True";
    GuestNode {
        uid: node.metadata.uid.unwrap_or_default(),
        ready: node.status.conditions.iter().any(ready),
        kubelet_version: node.status.node_info.kubelet_version,
        labels: node.metadata.labels.unwrap_or_default(),
        taints: node
            .spec
            .taints
            .into_iter()
            .map(|taint| taint.key)
            .collect(),
    }
}

fn own_token(token: &SlimToken, known: &BTreeSet<String>) -> Option<(String, Option<Timestamp>)> {
    let id = token
        .metadata
        .name
        .as_deref()?
        .strip_prefix(TOKEN_PREFIX)?
        .to_owned();
    let ours = token
        .labels()
        .get(labels::MANAGED_BY)
        .is_some_and(|by| by == labels::OPERATOR);
    let expires = || {
        std::str::from_utf8(&token.data.expiration.as_ref()?.0)
            .ok()?
            .parse()
            .ok()
    };
    (ours || known.contains(&id)).then(|| (id.clone(), expires()))
}

/// A Node's taints are one list for all who write them, so the whole list is tested; its labels
/// are a map, of which ours are set one by one.
fn node_patch(node: &SlimNode, labels: &BTreeMap<String, String>, taint: bool) -> Value {
    let mut steps =
        vec![json!({ "op": "test", "path": "/metadata/uid", "value": node.metadata.uid })];
    if node.metadata.labels.is_none() {
        steps.push(json!({ "op": "add", "path": "/metadata/labels", "value": {} }));
    }
    for (key, value) in labels {
        let path = format!(
            "/metadata/labels/{}",
            key.replace('~', "~0").replace('/', "~1")
        );
        steps.push(json!({ "op": "add", "path": path, "value": value }));
    }
    if taint
        && !node
            .spec
            .taints
            .iter()
            .any(|taint| taint.key == CONTROL_PLANE_TAINT)
    {
        let ours = json!({ "key": CONTROL_PLANE_TAINT, "effect": "NoSchedule" });
        if node.spec.taints.is_empty() {
            steps.push(json!({ "op": "test", "path": "/spec/taints", "value": null }));
            steps.push(json!({ "op": "add", "path": "/spec/taints", "value": [ours] }));
        } else {
            let path = "/spec/taints";
            steps.push(json!({ "op": "test", "path": path, "value": node.spec.taints }));
            steps.push(json!({ "op": "add", "path": "/spec/taints/-", "value": ours }));
        }
    }
    Value::Array(steps)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> SlimNode {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_node_is_read_as_the_plan_wants_it() {
        let seen = guest_node(node(json!({
            "metadata": { "name": "a-cp-1", "uid": "u", "labels": { "l": "v" } },
            "spec": { "taints": [{ "key": "t", "effect": "NoSchedule" }] },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "nodeInfo": { "kubeletVersion": "v1.36.3" },
            },
        })));
        assert_eq!(
            seen,
            GuestNode {
                uid: "u".to_owned(),
                ready: true,
                kubelet_version: "v1.36.3".to_owned(),
                labels: [("l".to_owned(), "v".to_owned())].into(),
                taints: ["t".to_owned()].into(),
            }
        );
    }

    #[test]
    fn a_token_that_a_person_made_is_not_told_of() {
        let token = |name: &str, labels: Value| -> SlimToken {
            let data = json!({ "expiration": ByteString(b"2026-12-01T00:00:00Z".to_vec()) });
            serde_json::from_value(json!({
                "metadata": { "name": name, "labels": labels }, "data": data,
            }))
            .unwrap()
        };
        let known = BTreeSet::from(["kubeadm".to_owned()]);
        let ours = json!({ labels::MANAGED_BY: labels::OPERATOR });
        let expires = "2026-12-01T00:00:00Z".parse().ok();
        assert_eq!(
            own_token(&token("bootstrap-token-abcdef", ours), &known),
            Some(("abcdef".to_owned(), expires))
        );
        assert_eq!(
            own_token(&token("bootstrap-token-kubeadm", json!({})), &known),
            Some(("kubeadm".to_owned(), expires))
        );
        assert_eq!(
            own_token(&token("bootstrap-token-person", json!({})), &known),
            None
        );
    }

    #[test]
    fn taints_of_others_stay_when_ours_is_added() {
        let node = node(json!({
            "metadata": { "name": "a-cp-1", "uid": "u", "labels": {} },
            "spec": { "taints": [{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }] },
        }));
        let labels = [("node-role.kubernetes.io/x".to_owned(), String::new())].into();
        let patch = node_patch(&node, &labels, true);
        assert_eq!(
            patch[1]["path"],
            "/metadata/labels/node-role.kubernetes.io~1x"
        );
        assert_eq!(patch[2]["op"], "test");
        assert_eq!(patch[3]["path"], "/spec/taints/-");
    }
}
