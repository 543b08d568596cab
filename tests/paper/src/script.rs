//! The questions by which a paper guest is held to the truth: every kind of request that the operator
//! makes, and what it reads of the answers. The same script is put to a real guest and to a paper
//! one, each of one control-plane machine and one worker called `truth`.

mod drain;
mod etcd;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::request::Request;

/// Whom a question is put to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The API server, as the operator.
    Api,
    /// The API server, as nobody.
    ApiAsNobody,
    /// etcd's gateway.
    Etcd,
}

/// Puts questions to a guest.
pub trait Asker {
    /// The status code of the answer and its document, or its words as a string.
    fn ask(
        &mut self,
        to: To,
        request: Request,
    ) -> impl Future<Output = anyhow::Result<(u16, Value)>> + Send;
}

/// What was asked, and what was read of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// What was asked.
    pub question: String,
    /// Status code.
    pub status: u16,
    /// What the operator reads: by `=` and a path a value, by `~` and a path the type of a value.
    pub read: BTreeMap<String, Value>,
}

const PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const REFUSED: &[&str] = &["=/kind", "=/status", "=/reason", "=/code"];
const INVALID: &[&str] = &["=/status", "=/reason", "=/code", "~/details/causes"];
const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const APPS: &str = "/apis/apps/v1/namespaces";
const CONTROL_PLANE: &str = "/api/v1/nodes/truth-cp-1";
const EXPIRES: &str = "MjA5OS0wMS0wMVQwMDowMDowMFo=";

/// Puts all questions.
pub async fn perform<A: Asker + Send>(asker: &mut A) -> anyhow::Result<Vec<Exchange>> {
    let mut tape = Tape {
        asker,
        exchanges: Vec::new(),
    };
    tape.readiness().await?;
    tape.nodes().await?;
    tape.tokens().await?;
    tape.configuration().await?;
    tape.addons().await?;
    tape.applies().await?;
    tape.etcd().await?;
    tape.learners().await?;
    tape.drain().await?;
    tape.evictions().await?;
    Ok(tape.exchanges)
}

struct Tape<'a, A> {
    asker: &'a mut A,
    exchanges: Vec<Exchange>,
}

impl<A: Asker + Send> Tape<'_, A> {
    async fn ask(
        &mut self,
        (to, question): (To, &str),
        request: Request,
        fields: &[&str],
    ) -> anyhow::Result<Value> {
        let (status, body) = self.asker.ask(to, request).await?;
        let read = fields.iter().map(|field| {
            let (how, path) = field.split_at(1);
            let found = find(&body, path);
            let told = if how == "=" {
                found
            } else {
                json!(type_of(&found))
            };
            ((*field).to_owned(), told)
        });
        self.exchanges.push(Exchange {
            question: question.to_owned(),
            status,
            read: read.collect(),
        });
        Ok(body)
    }

    async fn api(
        &mut self,
        question: &str,
        request: Request,
        fields: &[&str],
    ) -> anyhow::Result<Value> {
        self.ask((To::Api, question), request, fields).await
    }

    async fn readiness(&mut self) -> anyhow::Result<()> {
        self.api("readyz", get("/readyz"), &["="]).await?;
        let nobody = To::ApiAsNobody;
        self.ask((nobody, "readyz, nobody"), get("/readyz"), &["="])
            .await?;
        self.ask((nobody, "Nodes, nobody"), get("/api/v1/nodes"), REFUSED)
            .await?;
        Ok(())
    }

    async fn nodes(&mut self) -> anyhow::Result<()> {
        let fields = [
            "=/kind",
            "=/apiVersion",
            "=/items/0/metadata/name",
            "~/items/0/metadata/uid",
            "=/items/0/metadata/labels/node-role.kubernetes.io~1control-plane",
            "=/items/0/metadata/labels/guestcluster.dev~1pool",
            "=/items/0/spec/taints/0/key",
            "~/items/0/spec/unschedulable",
            "=/items/0/status/conditions/[type=Ready]/status",
            "=/items/0/status/nodeInfo/kubeletVersion",
            "=/items/1/metadata/name",
            "~/items/1/spec/taints",
            "=/items/1/status/conditions/[type=Ready]/status",
        ];
        self.api("Nodes", get("/api/v1/nodes?"), &fields).await?;
        let fields = ["=/kind", "=/metadata/name", "~/metadata/uid"];
        let node = self.api("a Node", get(CONTROL_PLANE), &fields).await?;
        self.api("no Node", get("/api/v1/nodes/absent"), REFUSED)
            .await?;
        let other = json!([{ "op": "test", "path": "/metadata/uid", "value": "other" }]);
        let request = send("PATCH", CONTROL_PLANE, PATCH, other);
        self.api("patch another Node", request, INVALID).await?;
        let steps = json!([
            { "op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"] },
            { "op": "add", "path": "/metadata/labels/example.com~1truth", "value": "yes" },
        ]);
        let request = send("PATCH", CONTROL_PLANE, PATCH, steps);
        let fields = ["=/kind", "=/metadata/labels/example.com~1truth"];
        self.api("label a Node", request, &fields).await?;
        Ok(())
    }

    async fn tokens(&mut self) -> anyhow::Result<()> {
        let secrets = format!("{SYSTEM}/secrets");
        let name = "bootstrap-token-truth0";
        let one = format!("{secrets}/{name}");
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {
                "name": name, "namespace": "kube-system",
                "labels": { "app.kubernetes.io/managed-by": "guestcluster-operator" },
            },
            "data": { "token-id": "dHJ1dGgw", "token-secret": "bm90LXVzZWQtMDAwMDAw",
                "expiration": EXPIRES },
        });
        let create = || {
            send(
                "POST",
                &format!("{secrets}?"),
                "application/json",
                body.clone(),
            )
        };
        let fields = [
            "=/kind",
            "=/metadata/name",
            "~/metadata/uid",
            "=/data/expiration",
        ];
        self.api("make a token", create(), &fields).await?;
        self.api("make it again", create(), REFUSED).await?;
        let list = format!("{secrets}?&fieldSelector=type%3Dbootstrap.kubernetes.io%2Ftoken");
        let fields = [
            "=/kind",
            "=/items/[metadata.name=bootstrap-token-truth0]/data/expiration",
            "~/items/[metadata.name=bootstrap-token-truth0]/metadata/labels",
        ];
        self.api("tokens", get(&list), &fields).await?;
        let steps = json!([{ "op": "replace", "path": "/data/expiration", "value": EXPIRES }]);
        let request = send("PATCH", &format!("{one}?"), PATCH, steps);
        self.api("extend a token", request, &["=/kind", "=/metadata/name"])
            .await?;
        let delete = || send("DELETE", &format!("{one}?"), "application/json", json!({}));
        self.api("delete a token", delete(), &["=/kind", "=/status"])
            .await?;
        self.api("delete it again", delete(), REFUSED).await?;
        Ok(())
    }

    async fn configuration(&mut self) -> anyhow::Result<()> {
        let map = format!("{SYSTEM}/configmaps/kubeadm-config");
        let fields = ["=/metadata/name", "~/data/ClusterConfiguration"];
        self.api("kubeadm-config", get(&map), &fields).await?;
        let mut request = get(&map);
        METADATA.clone_into(&mut request.accept);
        let fields = ["=/kind", "=/apiVersion", "=/metadata/name", "~/data"];
        self.api("its metadata", request, &fields).await?;
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "kubeadm-config", "annotations": { "example.com/truth": "yes" } },
        });
        let path = format!("{map}?&fieldManager=truth&force=true");
        let fields = ["=/kind", "=/metadata/annotations/example.com~1truth"];
        self.api("note on it", send("PATCH", &path, APPLY, body), &fields)
            .await?;
        Ok(())
    }

    async fn addons(&mut self) -> anyhow::Result<()> {
        let set = format!("{APPS}/kube-system/daemonsets/kube-proxy");
        let fields = ["=/kind", "=/spec/template/spec/containers/0/name"];
        let proxy = self.api("kube-proxy", get(&set), &fields).await?;
        let place = "/spec/template/spec/containers/0/image";
        let image = proxy.pointer(place).cloned().unwrap_or_default();
        let steps = |value: &Value| {
            json!([
                { "op": "test", "path": place, "value": value },
                { "op": "replace", "path": place, "value": image },
            ])
        };
        let request = send("PATCH", &set, PATCH, steps(&image));
        self.api("set its image", request, &["=/kind"]).await?;
        let request = send("PATCH", &set, PATCH, steps(&json!("other")));
        self.api("set an image of another", request, INVALID)
            .await?;
        let network = format!("{APPS}/kube-flannel/daemonsets/kube-flannel");
        let fields = ["=/kind", "~/metadata/annotations"];
        self.api("kube-flannel", get(&network), &fields).await?;
        self.api("no DaemonSet", get(&format!("{set}-x")), REFUSED)
            .await?;
        let server = format!("{APPS}/kube-system/deployments/coredns");
        let fields = ["=/kind", "=/spec/template/spec/containers/0/image"];
        self.api("coredns", get(&server), &fields).await?;
        Ok(())
    }

    async fn applies(&mut self) -> anyhow::Result<()> {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "truth" },
        });
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "truth", "namespace": "truth" },
        });
        for (path, body) in [
            ("/api/v1/namespaces/truth", namespace),
            ("/api/v1/namespaces/truth/serviceaccounts/truth", account),
        ] {
            for time in ["make", "keep"] {
                let target = format!("{path}?&fieldManager=truth&force=true");
                let request = send("PATCH", &target, APPLY, body.clone());
                let fields = ["=/kind", "=/metadata/name", "~/metadata/uid"];
                self.api(&format!("{time} {path}"), request, &fields)
                    .await?;
            }
        }
        Ok(())
    }
}

fn get(target: &str) -> Request {
    Request::new("GET", target)
}

fn send(method: &str, target: &str, content_type: &str, body: Value) -> Request {
    Request {
        content_type: content_type.to_owned(),
        body,
        ..Request::new(method, target)
    }
}

/// A JSON pointer whose segment `[path=value]` finds an element of a list.
fn find(document: &Value, path: &str) -> Value {
    let mut place = document;
    for segment in path.split('/').skip(1) {
        let inner = segment
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let next = match inner.and_then(|inner| inner.split_once('=')) {
            Some((path, value)) => place.as_array().and_then(|list| {
                let pointer = format!("/{}", path.replace('.', "/"));
                let is_it = |element: &&Value| match element.pointer(&pointer) {
                    Some(Value::String(text)) => text == value,
                    Some(other) => value.parse::<Value>().is_ok_and(|value| value == *other),
                    None => false,
                };
                list.iter().find(is_it)
            }),
            None => place.pointer(&format!("/{segment}")),
        };
        match next {
            Some(next) => place = next,
            None => return Value::Null,
        }
    }
    place.clone()
}

const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "yes or no",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "map",
    }
}
