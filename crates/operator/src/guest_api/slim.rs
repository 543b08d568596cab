//! What is read of a guest's Nodes and bootstrap tokens, and what a Node is patched with.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::labels;
use guestcluster_planner::observed::GuestNode;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, Secret, Taint};
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::pointer;

/// Key of the taint that keeps ordinary Pods off the control plane.
const CONTROL_PLANE_TAINT: &str = "node-role.kubernetes.io/control-plane";

/// What the name of a bootstrap token's Secret begins with.
pub(super) const TOKEN_PREFIX: &str = "bootstrap-token-";

/// A Node, as far as a plan asks.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default)]
#[resource(inherit = Node)]
pub(super) struct SlimNode {
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
    #[serde(default)]
    unschedulable: bool,
    #[serde(
        default,
        rename = "providerID",
        skip_serializing_if = "Option::is_none"
    )]
    provider_id: Option<String>,
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
pub(super) struct SlimToken {
    metadata: ObjectMeta,
    #[serde(default)]
    data: SlimTokenData,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default)]
struct SlimTokenData {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expiration: Option<ByteString>,
}

pub(super) fn guest_node(node: SlimNode) -> GuestNode {
    let ready =
        |condition: &SlimCondition| condition.type_ == "Ready" && condition.status == "True";
    let drain = node.annotations().get(labels::NODE_DRAIN);
    GuestNode {
        drained_since: drain.and_then(|time| time.parse().ok()),
        unschedulable: node.spec.unschedulable,
        provider_id: node.spec.provider_id,
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

pub(super) fn own_token(
    token: &SlimToken,
    known: &BTreeSet<String>,
) -> Option<(String, Option<Timestamp>)> {
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
/// are a map, of which ours are set or taken off one by one.
pub(super) fn node_patch(
    node: &SlimNode,
    labels: &BTreeMap<String, Option<String>>,
    taint: bool,
) -> Value {
    let mut steps =
        vec![json!({ "op": "test", "path": "/metadata/uid", "value": node.metadata.uid })];
    if node.metadata.labels.is_none() {
        steps.push(json!({ "op": "add", "path": "/metadata/labels", "value": {} }));
    }
    for (key, value) in labels {
        let path = pointer::label(key);
        match value {
            Some(value) => steps.push(json!({ "op": "add", "path": path, "value": value })),
            // To take off what is not there fails the whole patch.
            None if node.labels().contains_key(key) => {
                steps.push(json!({ "op": "remove", "path": path }));
            }
            None => {}
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> SlimNode {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_node_is_read_as_the_plan_wants_it() {
        let seen = guest_node(node(json!({
            "metadata": {
                "name": "a-cp-1", "uid": "u", "labels": { "l": "v" },
                "annotations": { labels::NODE_DRAIN: "2026-12-01T00:00:00Z" },
            },
            "spec": {
                "unschedulable": true, "taints": [{ "key": "t", "effect": "NoSchedule" }],
                "providerID": "kubevirt://a-cp-1",
            },
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
                unschedulable: true,
                drained_since: "2026-12-01T00:00:00Z".parse().ok(),
                provider_id: Some("kubevirt://a-cp-1".to_owned()),
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
        let role = "node-role.kubernetes.io/x".to_owned();
        let labels = [(role, Some(String::new()))].into();
        let patch = node_patch(&node, &labels, true);
        assert_eq!(
            patch[1]["path"],
            "/metadata/labels/node-role.kubernetes.io~1x"
        );
        assert_eq!(patch[2]["op"], "test");
        assert_eq!(patch[3]["path"], "/spec/taints/-");
    }

    #[test]
    fn a_label_is_taken_off_where_it_is() {
        let node = node(json!({
            "metadata": { "name": "a-cp-1", "uid": "u", "labels": { labels::NODE_ZONE: "a" } },
        }));
        let labels = [labels::NODE_HOST, labels::NODE_ZONE].map(|key| (key.to_owned(), None));
        assert_eq!(
            node_patch(&node, &labels.into(), false),
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "u" },
                { "op": "remove", "path": "/metadata/labels/guestcluster.dev~1zone" },
            ])
        );
    }
}
