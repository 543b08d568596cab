//! Draining Nodes of a guest: cordon, Pods, evictions.

use std::collections::BTreeMap;

use guestcluster_api::labels;
use guestcluster_planner::observed::{GuestNode, GuestPod};
use guestcluster_shell::error::{Class, Classify, Error as CallError};
use http::Request;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::GuestApi;
use super::slim::SlimNode;
use crate::error::Error;
use crate::pointer;

/// Pods that end by themselves or never are left alone by a drain: they need no other Node.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// Annotation of the API server's copy of a static Pod, which the kubelet alone can end.
const MIRROR: &str = "kubernetes.io/config.mirror";

impl GuestApi<'_> {
    /// Pods that a drain must evict, of each Node that we drain.
    pub(super) async fn drained_pods(
        &self,
        client: &Client,
        nodes: &BTreeMap<String, GuestNode>,
    ) -> Result<BTreeMap<String, Vec<GuestPod>>, Error> {
        let api = Api::<Pod>::all(client.clone());
        let mut found = BTreeMap::new();
        for (name, _) in nodes.iter().filter(|(_, n)| n.drained_since.is_some()) {
            let params =
                ListParams::default().fields(&format!("spec.nodeName={name},{UNFINISHED}"));
            let call = format!("list Pods of {name}");
            let pods = self.calls.within(call, api.list_metadata(&params)).await;
            let pods = pods.map_err(Error::Guest)?;
            let evictable = pods.items.iter().filter(|pod| is_evictable(pod));
            found.insert(name.clone(), evictable.map(guest_pod).collect());
        }
        Ok(found)
    }

    /// Cordons a Node and notes since when, or undoes both.
    pub async fn set_drain(
        &self,
        name: &str,
        uid: &str,
        since: Option<Timestamp>,
    ) -> Result<(), Error> {
        let api = Api::<SlimNode>::all(self.client().await?);
        let node = self.calls.read(&api, name).await.map_err(Error::Guest)?;
        let node = node.ok_or_else(|| Error::Gone(format!("the guest has no Node {name}")))?;
        let patch = drain_patch(&node, uid, since);
        let patched = self.calls.patch(&api, name, patch).await;
        patched.map_err(Error::Guest).map(drop)
    }

    /// Asks for the eviction of a Pod. `Some` tells why it is refused for now; one that is gone or
    /// another by now counts as evicted.
    pub async fn evict(&self, pod: &GuestPod) -> Result<Option<String>, Error> {
        let client = self.client().await?;
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/eviction",
            pod.namespace, pod.name
        );
        let request = Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(eviction(pod).to_string().into_bytes())
            .map_err(|error| Error::Malformed(error.to_string()))?;
        let call = format!("evict Pod {}/{}", pod.namespace, pod.name);
        let answer = client.request::<Value>(request);
        match self.calls.within(call, answer).await {
            Ok(_) => Ok(None),
            Err(CallError::Kube {
                source: kube::Error::Api(status),
                ..
            }) if status.code == 429 => Ok(Some(refusal(&status))),
            Err(error) if error.is_not_found() || error.class() == Class::Conflict => Ok(None),
            Err(error) => Err(Error::Guest(error)),
        }
    }

    /// Deletes the Node of a machine that is gone; the guest's own controllers clean up after it.
    pub async fn delete_node(&self, name: &str, uid: &str) -> Result<(), Error> {
        let api = Api::<Node>::all(self.client().await?);
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        let call = format!("delete Node {name}");
        match self.calls.within(call, api.delete(name, &params)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(Error::Guest(error)),
        }
    }
}

/// kube's own `evict` misspells `deleteOptions`, and servers overlook a precondition in it: a Pod of
/// a StatefulSet that came back under its name would be evicted as well.
fn eviction(pod: &GuestPod) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        "deleteOptions": { "preconditions": { "uid": pod.uid } },
    })
}

fn is_evictable(pod: &PartialObjectMeta<Pod>) -> bool {
    let mut owners = pod.owner_references().iter();
    let of_daemon_set =
        owners.any(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet");
    !of_daemon_set && !pod.annotations().contains_key(MIRROR)
}

fn guest_pod(pod: &PartialObjectMeta<Pod>) -> GuestPod {
    GuestPod {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        deleting: pod.meta().deletion_timestamp.is_some(),
        refused: None,
        due: true,
    }
}

/// What holds a Pod: the cause, which names the PodDisruptionBudget, says more than the message.
fn refusal(status: &kube::core::Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let words: Vec<&str> = causes.map(|cause| cause.message.as_str()).collect();
    if words.is_empty() {
        status.message.clone()
    } else {
        words.join("; ")
    }
}

fn drain_patch(node: &SlimNode, uid: &str, since: Option<Timestamp>) -> Value {
    let annotation = pointer::annotation(labels::NODE_DRAIN);
    let mut steps = vec![json!({ "op": "test", "path": "/metadata/uid", "value": uid })];
    let marked = node.annotations().contains_key(labels::NODE_DRAIN);
    if let Some(since) = since {
        if node.meta().annotations.is_none() {
            steps.push(json!({ "op": "add", "path": "/metadata/annotations", "value": {} }));
        }
        // A drain that goes on keeps its beginning.
        if !marked {
            let value = since.to_string();
            steps.push(json!({ "op": "add", "path": annotation, "value": value }));
        }
        steps.push(json!({ "op": "add", "path": "/spec/unschedulable", "value": true }));
    } else {
        if marked {
            steps.push(json!({ "op": "remove", "path": annotation }));
        }
        steps.push(json!({ "op": "add", "path": "/spec/unschedulable", "value": false }));
    }
    Value::Array(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(value: &Value) -> PartialObjectMeta<Pod> {
        serde_json::from_value(json!({ "metadata": value })).unwrap()
    }

    #[test]
    fn pods_that_belong_to_the_node_are_not_evicted() {
        let owned = |kind: &str| {
            let owner = json!({
                "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true,
            });
            pod(&json!({ "name": "p", "ownerReferences": [owner] }))
        };
        assert!(is_evictable(&owned("ReplicaSet")));
        assert!(!is_evictable(&owned("DaemonSet")));
        let mirror = json!({ "name": "p", "annotations": { MIRROR: "hash" } });
        assert!(!is_evictable(&pod(&mirror)));
    }

    #[test]
    fn an_eviction_means_the_pod_that_was_seen() {
        let pod = GuestPod {
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
            uid: "u".to_owned(),
            ..GuestPod::default()
        };
        let body = eviction(&pod);
        let parsed: k8s_openapi::api::policy::v1::Eviction = serde_json::from_value(body).unwrap();
        let preconditions = parsed.delete_options.unwrap().preconditions.unwrap();
        assert_eq!(preconditions.uid.as_deref(), Some("u"));
    }

    #[test]
    fn a_refused_eviction_names_the_budget() {
        let status: kube::core::Status = serde_json::from_value(json!({
            "status": "Failure", "code": 429, "reason": "TooManyRequests",
            "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "details": { "causes": [{
                "reason": "DisruptionBudget",
                "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
            }]},
        }))
        .unwrap();
        assert_eq!(
            refusal(&status),
            "The disruption budget web needs 2 healthy pods and has 2 currently"
        );
    }

    #[test]
    fn a_drain_is_noted_once_and_taken_back_whole() {
        let node = |annotations: Value| -> SlimNode {
            let metadata = json!({ "name": "n", "uid": "u", "annotations": annotations });
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let since = "2026-12-01T00:00:00Z".parse().ok();
        let fresh = drain_patch(&node(json!({})), "u", since);
        assert_eq!(fresh[1]["value"], "2026-12-01T00:00:00Z");
        assert_eq!(fresh[2]["value"], true);
        let marked = node(json!({ labels::NODE_DRAIN: "2026-11-01T00:00:00Z" }));
        let again = drain_patch(&marked, "u", since);
        assert_eq!(again.as_array().map(Vec::len), Some(2), "{again}");
        let end = drain_patch(&marked, "u", None);
        assert_eq!(
            (&end[1]["op"], &end[2]["value"]),
            (&json!("remove"), &json!(false))
        );
    }
}
