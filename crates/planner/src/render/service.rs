//! Services: the endpoint of the guest's API, and the stable addresses of machines.

use guestcluster_api::labels::{self, Role};
use guestcluster_api::names;
use guestcluster_api::spec::EndpointType;
use serde_json::{Value, json};

use super::flannel::VXLAN_PORT;
use super::{RENDER, cluster_labels, digest, machine_labels, metadata, role_selector};
use crate::action::{Kind, Object};
use crate::wanted::{Pool, Wanted};

const API_PORT: u16 = 6443;
const ETCD_CLIENT_PORT: u16 = 2379;
const ETCD_PEER_PORT: u16 = 2380;
const KUBELET_PORT: u16 = 10250;

/// The endpoint Service. It selects launcher Pods by label and by their readiness, so that it works
/// while the operator is down.
pub fn endpoint_service(wanted: &Wanted) -> Object {
    let name = names::endpoint_service(&wanted.identity.name);
    let spec = endpoint_spec(wanted);
    let mut metadata = metadata(wanted, &name, &cluster_labels(wanted));
    let mut annotations = json!(wanted.endpoint().annotations);
    annotations[RENDER] = json!(digest(&render_of(wanted, &spec), 16));
    metadata["annotations"] = annotations;
    let body = json!({
        "apiVersion": Kind::Service.api_version(),
        "kind": Kind::Service.name(),
        "metadata": metadata,
        "spec": spec,
    });
    Object {
        kind: Kind::Service,
        name,
        body,
    }
}

/// Digest that the endpoint Service carries when it is as wanted.
pub fn endpoint_digest(wanted: &Wanted) -> String {
    digest(&render_of(wanted, &endpoint_spec(wanted)), 16)
}

fn render_of(wanted: &Wanted, spec: &Value) -> String {
    json!([spec, wanted.endpoint().annotations]).to_string()
}

fn endpoint_spec(wanted: &Wanted) -> Value {
    let endpoint = wanted.endpoint();
    let mut selector = role_selector(wanted, Role::ControlPlane);
    selector[labels::ENDPOINT] = json!(labels::ENDPOINT_SERVING);
    let mut port = json!({
        "name": "https",
        "port": endpoint.port,
        "targetPort": API_PORT,
        "protocol": "TCP",
    });
    let type_ = match endpoint.type_ {
        EndpointType::LoadBalancer => "LoadBalancer",
        EndpointType::NodePort => "NodePort",
        EndpointType::ClusterIp | EndpointType::External => "ClusterIP",
    };
    // Node ports lie in their own range; any other number is the Service's port alone.
    if endpoint.type_ == EndpointType::NodePort && endpoint.port >= 30_000 {
        port["nodePort"] = json!(endpoint.port);
    }
    let mut spec = json!({ "type": type_, "selector": selector, "ports": [port] });
    if let Some(class) = &endpoint.load_balancer_class {
        spec["loadBalancerClass"] = json!(class);
    }
    if let Some(ranges) = &endpoint.source_ranges {
        spec["loadBalancerSourceRanges"] = json!(ranges);
    }
    spec
}

/// Everything that is dialled under the machine's address. Behind masquerade that is the Node's, and
/// the Service must list what others want of the Node: a kubelet, and the pod network's tunnel.
fn address_ports(wanted: &Wanted, pool: &Pool) -> Value {
    let port = |name: &str, port: u16, protocol: &str| json!({ "name": name, "port": port, "protocol": protocol });
    let mut ports = Vec::new();
    if pool.role == Role::ControlPlane {
        ports.extend([
            port("api", API_PORT, "TCP"),
            port("etcd-client", ETCD_CLIENT_PORT, "TCP"),
            port("etcd-peer", ETCD_PEER_PORT, "TCP"),
        ]);
    }
    if wanted.is_masqueraded() {
        ports.extend([
            port("kubelet", KUBELET_PORT, "TCP"),
            port("vxlan", VXLAN_PORT, "UDP"),
        ]);
    }
    Value::Array(ports)
}

/// The Service whose address a machine keeps for life: kubeadm writes it into static Pods, certificates
/// and the etcd member, while the Pod's own address changes at every restart. Behind masquerade it is
/// the address of the Node, too.
/// It has no selector: its EndpointSlice is written from the instance's address, because during a
/// live migration two Pods carry the machine's labels.
pub fn address_service(wanted: &Wanted, pool: &Pool, machine: &str) -> Object {
    let body = json!({
        "apiVersion": Kind::Service.api_version(),
        "kind": Kind::Service.name(),
        "metadata": metadata(wanted, machine, &machine_labels(wanted, pool, machine)),
        "spec": { "type": "ClusterIP", "ports": address_ports(wanted, pool) },
    });
    Object {
        kind: Kind::Service,
        name: machine.to_owned(),
        body,
    }
}

/// Where a machine's Service leads now; `None`: nowhere, and callers are refused at once.
pub fn address_slice(wanted: &Wanted, pool: &Pool, machine: &str, address: Option<&str>) -> Object {
    let mut labels = machine_labels(wanted, pool, machine);
    labels.insert("kubernetes.io/service-name".to_owned(), machine.to_owned());
    labels.insert(
        "endpointslice.kubernetes.io/managed-by".to_owned(),
        "guestcluster.dev".to_owned(),
    );
    let endpoints: Vec<Value> = address
        .map(|address| json!({ "addresses": [address], "conditions": { "ready": true } }))
        .into_iter()
        .collect();
    let body = json!({
        "apiVersion": Kind::EndpointSlice.api_version(),
        "kind": Kind::EndpointSlice.name(),
        "metadata": metadata(wanted, machine, &labels),
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": address_ports(wanted, pool),
    });
    Object {
        kind: Kind::EndpointSlice,
        name: machine.to_owned(),
        body,
    }
}
