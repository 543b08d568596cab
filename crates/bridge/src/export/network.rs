//! Cluster and KubevirtCluster: ranges and endpoint.

use guestcluster_api::spec::EndpointType;
use guestcluster_planner::Wanted;
use serde_json::{Value, json};

use super::{ApiVersion, control_plane, metadata};
use crate::capi;

/// Port of the Service that CAPK makes for the endpoint; it cannot be chosen.
pub(super) const PORT: i32 = 6443;

pub(super) fn cluster(wanted: &Wanted, version: ApiVersion) -> [Value; 2] {
    let name = &wanted.identity.name;
    let infrastructure = (capi::INFRASTRUCTURE, "KubevirtCluster");
    let control_plane = control_plane::name(wanted);
    let mut spec = json!({
        "clusterNetwork": {
            "pods": { "cidrBlocks": [wanted.network.pod_cidr] },
            "services": { "cidrBlocks": [wanted.network.service_cidr] },
            "serviceDomain": wanted.network.dns_domain,
        },
        "infrastructureRef": version.reference(infrastructure, name),
        "controlPlaneRef": version.reference(control_plane::KIND, &control_plane),
    });
    if wanted.paused {
        spec["paused"] = json!(true);
    }
    let cluster = json!({
        "apiVersion": version.of(capi::CORE),
        "kind": "Cluster",
        "metadata": metadata(wanted, name),
        "spec": spec,
    });
    let kubevirt = json!({
        "apiVersion": version.of(capi::INFRASTRUCTURE),
        "kind": "KubevirtCluster",
        "metadata": metadata(wanted, name),
        "spec": endpoint(wanted),
    });
    [cluster, kubevirt]
}

/// CAPK takes host and port together or neither. A port of type NodePort that is still to be allocated
/// is not known here.
fn endpoint(wanted: &Wanted) -> Value {
    let endpoint = wanted.endpoint();
    let (type_, port) = match endpoint.type_ {
        EndpointType::LoadBalancer => ("LoadBalancer", Some(PORT)),
        EndpointType::ClusterIp => ("ClusterIP", Some(PORT)),
        EndpointType::External => ("ClusterIP", Some(endpoint.port)),
        EndpointType::NodePort => (
            "ClusterIP",
            Some(endpoint.port).filter(|port| *port >= 30_000),
        ),
    };
    let mut service = json!({ "spec": { "type": type_ } });
    if !endpoint.annotations.is_empty() {
        service["metadata"] = json!({ "annotations": endpoint.annotations });
    }
    let mut spec = json!({ "controlPlaneServiceTemplate": service });
    if let (Some(host), Some(port)) = (&endpoint.host, port) {
        spec["controlPlaneEndpoint"] = json!({ "host": host, "port": port });
    }
    spec
}
