//! The guest's pod network: flanneld over VXLAN with the standard CNI plugins.

use serde_json::{Value, json};

use super::{RENDER, digest};
use crate::wanted::Wanted;

/// UDP port of the guest's VXLAN: not 8472, which the infrastructure cluster's own flannel or
/// Cilium may use on the same wire.
pub(super) const VXLAN_PORT: u16 = 8572;
const IMAGE: &str = "ghcr.io/flannel-io/flannel:v0.27.4";
const NAMESPACE: &str = "kube-flannel";
const NAME: &str = "kube-flannel";

/// Writes the CNI configuration from what flanneld leased for this Node. The node image brings the
/// standard `bridge`, `host-local` and `portmap` plugins, so that no plugin of flannel's own needs
/// to be installed. The file appears whole, and only once flanneld has its lease. flannel's image has
/// busybox's shell with its applets.
///
/// The shell is the first process of its container, to which a signal without a handler does
/// nothing: unanswered, it would hold a machine's shutdown until systemd's patience ends.
const WRITE_CNI_CONFIG: &str = r#"set -u
trap 'exit 0' TERM INT
last=
while :; do
  if [ -s /run/flannel/subnet.env ]; then
    . /run/flannel/subnet.env
    # flanneld writes the bridge's own address; host-local wants the range that it lies in.
    FLANNEL_SUBNET=$(ipcalc -n "$FLANNEL_SUBNET" | sed s/NETWORK=//)/${FLANNEL_SUBNET#*/}
    if [ "$FLANNEL_SUBNET $FLANNEL_MTU" != "$last" ]; then
      cat > /etc/cni/net.d/.10-flannel.new <<CONF
{"cniVersion":"1.0.0","name":"flannel","plugins":[
{"type":"bridge","bridge":"cni0","isGateway":true,"isDefaultGateway":true,"hairpinMode":true,"ipMasq":false,"mtu":$FLANNEL_MTU,
"ipam":{"type":"host-local","ranges":[[{"subnet":"$FLANNEL_SUBNET"}]],"routes":[{"dst":"$FLANNEL_NETWORK"}]}},
{"type":"portmap","capabilities":{"portMappings":true}}]}
CONF
      mv /etc/cni/net.d/.10-flannel.new /etc/cni/net.d/10-flannel.conflist
      last="$FLANNEL_SUBNET $FLANNEL_MTU"
      echo "wrote the CNI configuration for $last"
    fi
    sleep 30 &
  else
    sleep 1 &
  fi
  wait $!
done
"#;

/// `host` and port of the guest's API.
type Endpoint<'a> = (&'a str, u16);

/// Digest that the applied DaemonSet carries when the pod network is as wanted.
pub fn cni_digest(wanted: &Wanted, endpoint: Endpoint<'_>) -> String {
    digest(&json!(objects(wanted, endpoint, "")).to_string(), 16)
}

/// The objects of the pod network, in order.
pub fn flannel(wanted: &Wanted, endpoint: Endpoint<'_>) -> Vec<Value> {
    objects(wanted, endpoint, &cni_digest(wanted, endpoint))
}

fn objects(wanted: &Wanted, endpoint: Endpoint<'_>, digest: &str) -> Vec<Value> {
    let network = json!({
        "Network": wanted.network.pod_cidr,
        "EnableIPv4": true,
        "Backend": { "Type": "vxlan", "Port": VXLAN_PORT },
    });
    let in_namespace = json!({ "name": NAME, "namespace": NAMESPACE });
    let account = json!({ "kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE });
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": NAMESPACE,
            "labels": { "pod-security.kubernetes.io/enforce": "privileged" },
        }}),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": in_namespace }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": NAME },
            "rules": [
                // flanneld learns its Node's name from its own Pod.
                { "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] },
                { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] },
                { "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] },
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": NAME },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": NAME,
            },
            "subjects": [account],
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": in_namespace,
            "data": { "net-conf.json": network.to_string() },
        }),
        daemon_set(wanted, endpoint, digest),
    ]
}

fn daemon_set(wanted: &Wanted, endpoint: Endpoint<'_>, digest: &str) -> Value {
    let selector = json!({ "app": "flannel" });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "annotations": { RENDER: digest },
        },
        "spec": {
            "selector": { "matchLabels": selector },
            "template": {
                "metadata": { "labels": selector },
                "spec": {
                    "hostNetwork": true,
                    "priorityClassName": "system-node-critical",
                    "serviceAccountName": NAME,
                    "terminationGracePeriodSeconds": 2,
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [flanneld(wanted, endpoint), cni_config()],
                    "volumes": [
                        host_path("run", "/run/flannel"),
                        host_path("cni", "/etc/cni/net.d"),
                        { "name": "config", "configMap": { "name": NAME } },
                    ],
                },
            },
        },
    })
}

fn host_path(name: &str, path: &str) -> Value {
    json!({ "name": name, "hostPath": { "path": path, "type": "DirectoryOrCreate" } })
}

/// It asks the API at the guest's endpoint, as the kubelet does: the Service `kubernetes` leads
/// nowhere before kube-proxy runs on the Node, and each failed start would be answered with a longer
/// wait.
///
/// Behind masquerade its own interface has the address that all machines have: others find it under its
/// Node's, which is that of its Service.
fn flanneld(wanted: &Wanted, (host, port): Endpoint<'_>) -> Value {
    let value = |name: &str, value: &str| json!({ "name": name, "value": value });
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let mut env = vec![
        value("KUBERNETES_SERVICE_HOST", host),
        value("KUBERNETES_SERVICE_PORT", &port.to_string()),
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
    ];
    if wanted.is_masqueraded() {
        env.push(field("FLANNELD_PUBLIC_IP", "status.hostIP"));
    }
    json!({
        "name": "flanneld",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/bin/flanneld"],
        "args": ["--ip-masq", "--kube-subnet-mgr"],
        "env": env,
        "resources": { "requests": { "cpu": "20m", "memory": "30Mi" } },
        "securityContext": { "capabilities": { "add": ["NET_ADMIN", "NET_RAW"] } },
        "volumeMounts": [
            { "name": "run", "mountPath": "/run/flannel" },
            { "name": "config", "mountPath": "/etc/kube-flannel" },
        ],
    })
}

fn cni_config() -> Value {
    json!({
        "name": "cni-config",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", WRITE_CNI_CONFIG],
        "resources": { "requests": { "cpu": "5m", "memory": "8Mi" } },
        "volumeMounts": [
            { "name": "run", "mountPath": "/run/flannel", "readOnly": true },
            { "name": "cni", "mountPath": "/etc/cni/net.d" },
        ],
    })
}
