//! One guest: its etcd, the objects of its API, and what its own controllers do with them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::document::FirstBoot;
use crate::etcd::{Etcd, Power};
use crate::objects::{Objects, now};

const ROLE: &str = "node-role.kubernetes.io/control-plane";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const NODES: &str = "/api/v1/nodes/";
/// Two copies, as kubeadm makes them.
const NAME_SERVERS: usize = 2;

/// A guest as its etcd holds it.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Digest of its authority's public key.
    pub authority: String,
    /// Its etcd.
    pub etcd: Etcd,
    /// The objects of its API.
    pub objects: Objects,
    /// When its kubelets were heard of last.
    pub heard: BTreeMap<String, Instant>,
    /// When its controllers looked at it last.
    pub settled: Instant,
}

/// Machines whose etcd is connected, and since when.
pub type Connected = BTreeMap<String, Instant>;

impl Power for Connected {
    fn since(&self, machine: &str) -> Option<Instant> {
        self.get(machine).copied()
    }
}

impl Guest {
    /// What `kubeadm init` writes first: its configuration and the token of the document.
    pub fn begin(&mut self, cluster: &Value, boot: &FirstBoot) {
        let configuration = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "kubeadm-config", "namespace": "kube-system" },
            "data": { "ClusterConfiguration": cluster.to_string() },
        });
        let key = format!("{SYSTEM}/configmaps/kubeadm-config");
        self.objects.put(&key, configuration);
        if let Some((id, secret)) = boot.token.split_once('.') {
            let lapses = now() + SignedDuration::from_mins(1);
            let encoded = |text: &str| json!(STANDARD.encode(text));
            let token = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
                "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
                "data": {
                    "token-id": encoded(id),
                    "token-secret": encoded(secret),
                    "expiration": encoded(&lapses.to_string()),
                },
            });
            let key = format!("{SYSTEM}/secrets/bootstrap-token-{id}");
            self.objects.put(&key, token);
        }
    }

    /// What `kubeadm init` does last: its add-ons, kube-proxy after CoreDNS.
    pub fn add_addons(&mut self, version: &str) {
        let meta = |name: &str| json!({ "name": name, "namespace": "kube-system" });
        let template = |name: &str, image: String| json!({ "spec": { "containers": [{ "name": name, "image": image }] } });
        let core_dns = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("coredns"),
            "spec": { "template": template(
                "coredns", "registry.k8s.io/coredns/coredns:v1.14.2".to_owned(),
            )},
        });
        let proxy = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta("kube-proxy"),
            "spec": { "template": template(
                "kube-proxy", format!("registry.k8s.io/kube-proxy:{version}"),
            )},
        });
        let apps = "/apis/apps/v1/namespaces/kube-system";
        self.objects
            .put(&format!("{apps}/deployments/coredns"), core_dns);
        self.objects
            .put(&format!("{apps}/daemonsets/kube-proxy"), proxy);
    }

    /// The version that kubeadm's configuration names.
    pub fn version(&self) -> String {
        let map = self
            .objects
            .get(&format!("{SYSTEM}/configmaps/kubeadm-config"));
        let text = map.and_then(|map| map["data"]["ClusterConfiguration"].as_str());
        let cluster: Value = serde_json::from_str(text.unwrap_or_default()).unwrap_or_default();
        cluster["kubernetesVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Whether `<id>.<secret>` lets a machine in.
    pub fn admits(&self, token: &str) -> bool {
        let (id, secret) = token.split_once('.').unwrap_or_default();
        let key = format!("{SYSTEM}/secrets/bootstrap-token-{id}");
        let Some(found) = self.objects.get(&key) else {
            return false;
        };
        text(found, "token-secret").is_some_and(|known| known == secret)
            && expiry(found).is_none_or(|lapses| lapses > now())
    }

    /// A kubelet registers its Node.
    pub fn register(&mut self, boot: &FirstBoot, (address, version): (&str, &str)) {
        let name = &boot.name;
        let mut labels = json!({
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": "amd64",
        });
        for (key, value) in &boot.labels {
            labels[key] = json!(value);
        }
        let mut taints = boot.taints.as_array().cloned().unwrap_or_default();
        taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": labels, "annotations": {
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            }},
            "spec": { "providerID": format!("kubevirt://{name}"), "taints": taints },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": address }],
                "conditions": [condition(false)],
                "nodeInfo": { "kubeletVersion": version, "operatingSystem": "linux",
                    "architecture": "amd64" },
            },
        });
        let key = format!("{NODES}{name}");
        if self.objects.get(&key).is_none() {
            self.objects.put(&key, node);
        }
        let statics = [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
        ];
        for program in statics.iter().filter(|_| boot.is_control_plane()) {
            let meta = json!({ "annotations": { "kubernetes.io/config.mirror": "1" } });
            self.run_pod(&format!("{program}-{name}"), name, meta);
        }
        let owner = json!({ "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet",
            "name": "kube-proxy", "uid": "kube-proxy", "controller": true }] });
        self.run_pod(&format!("kube-proxy-{name}"), name, owner);
    }

    /// kubeadm's mark of a control-plane Node.
    pub fn mark(&mut self, boot: &FirstBoot) {
        self.objects
            .change(&format!("{NODES}{}", boot.name), |node| {
                let labels = &mut node["metadata"]["labels"];
                labels[ROLE] = json!("");
                labels["node.kubernetes.io/exclude-from-external-load-balancers"] = json!("");
                taint(node, ROLE, true);
            });
    }

    /// What the guest's controllers do: Nodes' readiness, expired tokens, Pods of Nodes that are
    /// gone, and name servers where they can run.
    pub fn settle(&mut self, grace: Duration) {
        let network = "/apis/apps/v1/namespaces/kube-flannel/daemonsets/kube-flannel";
        let connected = self.objects.get(network).is_some();
        let now_settled = self.settled;
        self.heard
            .retain(|_, heard| now_settled.duration_since(*heard) < grace);
        for name in self.nodes() {
            let ready = connected && self.heard.contains_key(&name);
            self.objects.change(&format!("{NODES}{name}"), |node| {
                if is_ready(node) != ready {
                    node["status"]["conditions"] = json!([condition(ready)]);
                    taint(node, NOT_READY, !ready);
                }
            });
        }
        let lapsed: Vec<String> = self
            .objects
            .under(&format!("{SYSTEM}/secrets/bootstrap-token-"))
            .filter(|(_, token)| expiry(token).is_some_and(|lapses| lapses <= now()))
            .map(|(key, _)| key.clone())
            .collect();
        for key in lapsed {
            self.objects.remove(&key);
        }
        self.place_pods();
    }

    fn place_pods(&mut self) {
        let nodes = self.nodes();
        let pods = format!("{SYSTEM}/pods/");
        let stray: Vec<String> = self
            .objects
            .under(&pods)
            .filter(|(_, pod)| !nodes.iter().any(|node| pod["spec"]["nodeName"] == **node))
            .map(|(key, _)| key.clone())
            .collect();
        for key in stray {
            self.objects.remove(&key);
        }
        let deployment = "/apis/apps/v1/namespaces/kube-system/deployments/coredns";
        let running = self.objects.under(&format!("{pods}coredns-")).count();
        if self.objects.get(deployment).is_none() || running >= NAME_SERVERS {
            return;
        }
        let fit = |name: &&String| {
            let node = self.objects.get(&format!("{NODES}{name}"));
            node.is_some_and(|node| is_ready(node) && node["spec"]["unschedulable"] != true)
        };
        let Some(node) = nodes.iter().rfind(fit) else {
            return;
        };
        let owner = json!({ "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "name": "coredns", "uid": "coredns", "controller": true }] });
        let name = format!("coredns-{:08x}", rand::random::<u32>());
        self.run_pod(&name, node, owner);
    }

    fn run_pod(&mut self, name: &str, node: &str, mut metadata: Value) {
        metadata["name"] = json!(name);
        metadata["namespace"] = json!("kube-system");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": { "nodeName": node }, "status": { "phase": "Running" },
        });
        self.objects.put(&format!("{SYSTEM}/pods/{name}"), pod);
    }

    /// Names of its Nodes.
    pub fn nodes(&self) -> Vec<String> {
        let keys = self.objects.under(NODES).map(|(key, _)| key);
        keys.filter_map(|key| key.strip_prefix(NODES).map(str::to_owned))
            .collect()
    }

    /// Ids of its bootstrap tokens.
    pub fn tokens(&self) -> Vec<String> {
        let prefix = format!("{SYSTEM}/secrets/bootstrap-token-");
        let keys = self.objects.under(&prefix).map(|(key, _)| key);
        keys.filter_map(|key| key.strip_prefix(&prefix).map(str::to_owned))
            .collect()
    }
}

fn condition(ready: bool) -> Value {
    let (status, reason) = if ready {
        ("True", "KubeletReady")
    } else {
        ("False", "KubeletNotReady")
    };
    json!({ "type": "Ready", "status": status, "reason": reason,
        "lastTransitionTime": now().to_string() })
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn taint(node: &mut Value, key: &str, on: bool) {
    let taints = node["spec"]["taints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut taints: Vec<Value> = taints
        .into_iter()
        .filter(|taint| taint["key"] != key)
        .collect();
    if on {
        taints.push(json!({ "key": key, "effect": "NoSchedule" }));
    }
    if let Some(spec) = node["spec"].as_object_mut() {
        if taints.is_empty() {
            spec.remove("taints");
        } else {
            spec.insert("taints".to_owned(), json!(taints));
        }
    }
}

/// The value of a key of a Secret.
fn text(secret: &Value, key: &str) -> Option<String> {
    let encoded = secret["data"][key].as_str()?;
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
}

fn expiry(token: &Value) -> Option<Timestamp> {
    text(token, "expiration")?.parse().ok()
}
