//! The Service before the API servers of a Cluster, and the address that it gives them.

use std::collections::BTreeMap;

use guestcluster_api::labels::{self, Role};
use guestcluster_foreign::capk::{Endpoint, KubevirtCluster};
use guestcluster_foreign::core::SlimService;
use serde_json::{Value, json};

use super::action::{Action, Plan};
use super::condition::{Severity, Verdict};
use super::seen::Seen;
use super::virtual_machine::role_selector;
use crate::capi;

/// Port of a guest's API, at its endpoint and on its machines.
pub(super) const API_PORT: i32 = 6443;
/// The longest name of a Service.
const SERVICE_NAME: usize = 63;
/// Ports on hosts that Kubernetes gives away, unless an administrator chose others.
const NODE_PORTS: std::ops::RangeInclusive<i32> = 30000..=32767;

/// Reason of an endpoint that is not there.
const NOT_PROVISIONED: &str = "LoadBalancerProvisioningFailed";

/// Namespace of the endpoint's Service.
pub fn service_namespace<'a>(namespace: &'a str, infra: &'a KubevirtCluster) -> &'a str {
    let template = &infra.spec.control_plane_service_template.metadata;
    template.namespace.as_deref().unwrap_or(namespace)
}

/// Where the guest's API is to be found, or why nowhere.
pub(super) fn plan(seen: &Seen, infra: &KubevirtCluster, plan: &mut Plan) -> Result<(), Verdict> {
    refuse(seen, infra)?;
    let desired = service(seen, infra);
    let live = seen.service.as_ref();
    if live.is_none_or(|live| !says(live, &desired)) {
        plan.actions.push(Action::ApplyService(desired));
    }
    let known = infra
        .spec
        .control_plane_endpoint
        .as_ref()
        .filter(|known| !known.host.is_empty());
    let Some(live) = live else {
        let why = if known.is_some() {
            "the Service is lost and is made again at the same address"
        } else {
            "the Service is being made"
        };
        return Err(Verdict::fails(NOT_PROVISIONED, Severity::Info, why));
    };
    let found = found(live);
    if let Some(known) = known {
        let moved = found.as_ref().filter(|at| is_moved(infra, known, at));
        if let Some(at) = moved {
            return Err(moved_to(known, at));
        }
        complete(known, plan);
        return Ok(());
    }
    let Some(host) = found else {
        let why = "the Service waits for the address of its load balancer";
        return Err(Verdict::fails(NOT_PROVISIONED, Severity::Info, why));
    };
    plan.actions.push(Action::SetEndpoint(Endpoint {
        host,
        port: API_PORT,
    }));
    Ok(())
}

/// The host alone is a half of an endpoint that Cluster API does not take.
fn complete(known: &Endpoint, plan: &mut Plan) {
    if known.port <= 0 {
        plan.actions.push(Action::SetEndpoint(Endpoint {
            port: API_PORT,
            ..known.clone()
        }));
    }
}

/// Whether we told this endpoint ourselves and the Service is elsewhere by now. What a person wrote
/// may lead there by ways that we do not see, so only an address of the same sort is compared.
fn is_moved(infra: &KubevirtCluster, known: &Endpoint, found: &str) -> bool {
    let was_told = infra.status.as_ref().is_some_and(|status| status.ready);
    let both_addresses = is_address(&known.host) && is_address(found);
    was_told && both_addresses && type_of(infra) != "NodePort" && known.host != found
}

fn moved_to(known: &Endpoint, at: &str) -> Verdict {
    let message = format!(
        "the Service has the address {at}, but machines and certificates know {}: give the Service \
         that address back (spec.loadBalancerIP, or the annotation of your load balancer)",
        known.host
    );
    Verdict::fails(NOT_PROVISIONED, Severity::Error, message)
}

/// The address that a Service has, or the name of its load balancer.
fn found(service: &SlimService) -> Option<String> {
    if service.spec.type_.as_deref() == Some("LoadBalancer") {
        let ingress = service.status.load_balancer.ingress.first()?;
        return ingress.ip.clone().or_else(|| ingress.hostname.clone());
    }
    let address = service.spec.cluster_ip.as_deref();
    address
        .filter(|ip| !ip.is_empty() && *ip != "None")
        .map(str::to_owned)
}

/// What can be told to be wrong before anything is made.
fn refuse(seen: &Seen, infra: &KubevirtCluster) -> Result<(), Verdict> {
    let wrong = |message: String| Err(Verdict::fails(NOT_PROVISIONED, Severity::Error, message));
    let name = capi::endpoint_service(&seen.name);
    if name.len() > SERVICE_NAME {
        let most = SERVICE_NAME - capi::endpoint_service("").len();
        return wrong(format!(
            "the name {} is too long: its Service would be called {name}, and names of Services \
             have at most {SERVICE_NAME} characters; choose one of at most {most}",
            seen.name
        ));
    }
    if infra.spec.infra_cluster_secret_ref.is_some() {
        return wrong(
            "spec.infraClusterSecretRef is not served: machines run in the cluster of this operator; \
             leave it out, or run the operator where the machines are to be"
                .to_owned(),
        );
    }
    if let Some(namesake) = &seen.namesake {
        return wrong(format!(
            "the Cluster {namesake} has the Service {name} in the same namespace: give this Cluster \
             another name, or its machines another namespace"
        ));
    }
    let port = infra
        .spec
        .control_plane_endpoint
        .as_ref()
        .map_or(0, |e| e.port);
    let host = infra
        .spec
        .control_plane_endpoint
        .as_ref()
        .map_or("", |e| &e.host);
    match type_of(infra) {
        "ClusterIP" | "LoadBalancer" => Ok(()),
        "NodePort" if !host.is_empty() && NODE_PORTS.contains(&port) => Ok(()),
        "NodePort" => wrong(format!(
            "a Service of type NodePort has no address of its own: write into \
             spec.controlPlaneEndpoint a host that leads to the hosts, and a port from {} to {} that \
             becomes the nodePort",
            NODE_PORTS.start(),
            NODE_PORTS.end()
        )),
        other => wrong(format!(
            "spec.controlPlaneServiceTemplate.spec.type {other} is not served: write ClusterIP, \
             NodePort or LoadBalancer"
        )),
    }
}

fn type_of(infra: &KubevirtCluster) -> &str {
    let template = &infra.spec.control_plane_service_template.spec;
    template
        .type_
        .as_deref()
        .filter(|t| !t.is_empty())
        .unwrap_or("ClusterIP")
}

fn is_address(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok()
}

/// The Service as it is to be. One that is made anew asks for the address that its guest knows.
fn service(seen: &Seen, infra: &KubevirtCluster) -> Value {
    let template = &infra.spec.control_plane_service_template.metadata;
    let mut all_labels = template.labels.clone().unwrap_or_default();
    all_labels.insert(capi::CLUSTER_NAME.to_owned(), seen.name.clone());
    all_labels.insert(labels::NAMESPACE.to_owned(), seen.namespace.clone());
    let type_ = type_of(infra);
    let mut port = json!({ "port": API_PORT, "targetPort": API_PORT, "protocol": "TCP" });
    let known = infra.spec.control_plane_endpoint.as_ref();
    if let Some(known) = known.filter(|_| type_ == "NodePort") {
        port["nodePort"] = json!(known.port);
    }
    let mut spec = json!({
        "type": type_,
        "selector": role_selector(seen, Role::ControlPlane),
        "ports": [port],
    });
    let address = known
        .map(|known| known.host.as_str())
        .filter(|host| is_address(host));
    match (type_, address) {
        ("ClusterIP", Some(address)) if seen.service.is_none() => {
            spec["clusterIP"] = json!(address);
        }
        ("LoadBalancer", Some(address)) => spec["loadBalancerIP"] = json!(address),
        _ => {}
    }
    let mut metadata = json!({
        "name": capi::endpoint_service(&seen.name),
        "namespace": service_namespace(&seen.namespace, infra),
        "labels": all_labels,
    });
    if let Some(annotations) = template.annotations.as_ref().filter(|a| !a.is_empty()) {
        metadata["annotations"] = json!(annotations);
    }
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec })
}

/// Whether a live Service is as it is to be. What it has besides is somebody else's.
fn says(live: &SlimService, desired: &Value) -> bool {
    let port = &desired["spec"]["ports"][0];
    let live_port = live.spec.ports.first();
    let node_port = port["nodePort"].as_i64();
    covers(
        live.metadata.labels.as_ref(),
        &desired["metadata"]["labels"],
    ) && covers(
        live.metadata.annotations.as_ref(),
        &desired["metadata"]["annotations"],
    ) && covers(live.spec.selector.as_ref(), &desired["spec"]["selector"])
        && live.spec.type_.as_deref() == desired["spec"]["type"].as_str()
        && live.spec.ports.len() == 1
        && live_port.is_some_and(|live| {
            live.port == API_PORT
                && node_port.is_none_or(|wanted| live.node_port.map(i64::from) == Some(wanted))
        })
}

fn covers(live: Option<&BTreeMap<String, String>>, wanted: &Value) -> bool {
    let mut wanted = wanted.as_object().into_iter().flatten();
    wanted.all(|(key, value)| {
        live.and_then(|live| live.get(key)).map(String::as_str) == value.as_str()
    })
}
