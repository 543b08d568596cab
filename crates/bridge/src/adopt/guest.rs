//! The GuestCluster that a Cluster would become.

use guestcluster_api::names::secrets;
use guestcluster_api::spec::{Endpoint, EndpointType, GuestNetwork};
use guestcluster_api::{GuestCluster, GuestClusterSpec};
use guestcluster_planner::Wanted;
use guestcluster_planner::wanted::Settings;
use serde_json::Value;

use super::seen::{Kind, Seen};
use crate::capi;
use crate::import::value::{number, text};
use crate::import::{Unread, import};

/// What came of reading the Cluster as a GuestCluster.
pub(super) struct Made {
    /// The GuestCluster, if the Cluster's objects say enough.
    pub(super) cluster: Option<GuestCluster>,
    /// What it means, or why it means nothing.
    pub(super) wanted: Result<Wanted, String>,
    /// What it cannot say.
    pub(super) unread: Vec<Unread>,
}

/// Reads the Cluster as a GuestCluster.
///
/// It is paused: as long as it is, the operator writes nothing, and Cluster API can have all back. Its
/// endpoint is one of its owner's, since it leads to CAPK's Service, which stays; and its ranges are
/// those with which kubeadm made the guest.
pub(super) fn make(seen: &Seen) -> Made {
    let read = import(&manifests(seen));
    let (mut cluster, mut unread) = match read {
        Ok(read) => (read.cluster, read.unread),
        Err(error) => {
            return Made {
                cluster: None,
                wanted: Err(error.to_string()),
                unread: Vec::new(),
            };
        }
    };
    cluster.metadata.namespace = Some(seen.namespace.clone());
    let spec = &mut cluster.spec;
    spec.paused = true;
    if keep_endpoint(seen, spec) {
        unread.retain(|one| !one.path.starts_with("/spec/controlPlaneEndpoint/"));
    }
    if let Some(guest) = seen.guest.known() {
        keep_ranges(&guest.configuration, &mut spec.network);
    }
    Made {
        wanted: Wanted::parse(&cluster, &Settings::default()).map_err(|error| error.to_string()),
        cluster: Some(cluster),
        unread,
    }
}

/// Manifests as a user writes them; what controllers made from them is left out.
fn manifests(seen: &Seen) -> Vec<Value> {
    let single = [seen.cluster(), seen.control_plane(), seen.infrastructure()];
    let mut objects: Vec<&Value> = single.into_iter().flatten().collect();
    objects.extend(templates(seen));
    objects.extend(seen.own(Kind::MachineDeployment));
    objects.extend(seen.own(Kind::MachineHealthCheck));
    objects.into_iter().cloned().collect()
}

/// Templates that control plane and pools refer to, each once.
pub(super) fn templates(seen: &Seen) -> Vec<&Value> {
    let control_plane = seen.control_plane().into_iter().flat_map(|object| {
        let spec = &object["spec"]["machineTemplate"]["spec"];
        [(&spec["infrastructureRef"], Kind::KubevirtMachineTemplate)]
    });
    let pools = seen.own(Kind::MachineDeployment).flat_map(|object| {
        let spec = &object["spec"]["template"]["spec"];
        [
            (&spec["infrastructureRef"], Kind::KubevirtMachineTemplate),
            (&spec["bootstrap"]["configRef"], Kind::KubeadmConfigTemplate),
        ]
    });
    let mut found: Vec<&Value> = Vec::new();
    for (reference, kind) in control_plane.chain(pools) {
        let name = reference["name"].as_str().unwrap_or_default();
        if let Some(template) = seen.named(kind, name)
            && !found.iter().any(|one| std::ptr::eq(*one, template))
        {
            found.push(template);
        }
    }
    found
}

/// Host and port of a Cluster's endpoint, once it has both.
pub(super) fn endpoint(cluster: &Value) -> Option<(String, i32)> {
    let host = text(cluster, "/spec/controlPlaneEndpoint/host").filter(|host| !host.is_empty())?;
    let port = number(cluster, "/spec/controlPlaneEndpoint/port").filter(|port| *port > 0)?;
    Some((host, port))
}

/// Secrets that a guest cannot do without, with the keys that they need.
pub(super) fn secrets(cluster: &str) -> [(String, &'static [&'static str]); 5] {
    let pair: &[&str] = &["tls.crt", "tls.key"];
    [
        (secrets::ca(cluster), pair),
        (secrets::etcd(cluster), pair),
        (secrets::proxy(cluster), pair),
        (secrets::service_account(cluster), pair),
        (secrets::kubeconfig(cluster), &[capi::KUBECONFIG_KEY]),
    ]
}

/// Whether there is one to be kept.
fn keep_endpoint(seen: &Seen, spec: &mut GuestClusterSpec) -> bool {
    let Some((host, port)) = seen.cluster().and_then(endpoint) else {
        return false;
    };
    let endpoint = &mut spec.control_plane.endpoint;
    *endpoint = Endpoint {
        type_: EndpointType::External,
        host: Some(host),
        port,
        cert_sans: std::mem::take(&mut endpoint.cert_sans),
        ..Endpoint::default()
    };
    true
}

fn keep_ranges(configuration: &Value, network: &mut GuestNetwork) {
    let at = |field: &str, own: &mut String| {
        if let Some(said) = text(configuration, &format!("/networking/{field}")) {
            *own = said;
        }
    };
    at("podSubnet", &mut network.pod_cidr);
    at("serviceSubnet", &mut network.service_cidr);
    at("dnsDomain", &mut network.dns_domain);
}
