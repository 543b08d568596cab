//! The GuestCluster that manifests of Cluster API and CAPK describe.
//!
//! Both versions of Cluster API's kinds are read. What a GuestCluster cannot say is found by exporting
//! it again: whatever the manifests say beyond that is listed.

mod kubeadm;
mod machine;
mod unread;
pub(crate) mod value;
mod workers;

use std::collections::BTreeMap;

use guestcluster_api::spec::{
    Addons, CapacityPolicy, CapacityScope, Cni, ControlPlane, Deletion, Endpoint, EndpointType,
    GuestNetwork, Maintenance, Profile, Repair, Topology,
};
use guestcluster_api::{GuestCluster, GuestClusterSpec};
use serde_json::Value;

use crate::capi;
use crate::leaves::{self, Kept, Path};
use value::{number, text};

pub use unread::Unread;

/// A GuestCluster, and what it cannot say of the manifests that it was read from.
#[derive(Clone, Debug)]
pub struct Import {
    /// The GuestCluster. Whether it can be accepted as it is, the API server says.
    pub cluster: GuestCluster,
    /// What was not read.
    pub unread: Vec<Unread>,
}

/// Why nothing is imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// A kind is not there, or not the one that is referred to.
    #[error("there is no {kind} {name}: give all objects of one Cluster")]
    Missing {
        /// The kind.
        kind: &'static str,
        /// Its name, as referred to.
        name: String,
    },
    /// There is more than one Cluster.
    #[error("there are {0} Clusters: give the objects of one")]
    NotOne(usize),
    /// The annotation that an export left cannot be read.
    #[error(
        "the annotation guestcluster.dev/kept-by-export of the Cluster cannot be read ({0}): remove it, or export again"
    )]
    Annotation(String),
    /// What was read is no specification.
    #[error("the objects describe no GuestCluster: {0}")]
    Spec(String),
}

/// Reads manifests, and lists what a GuestCluster cannot say of them.
///
/// # Errors
/// If objects are missing, or say what no GuestCluster can be.
pub fn import(objects: &[Value]) -> Result<Import, ImportError> {
    let Import { cluster, .. } = read(objects)?;
    let unread = unread::unread(objects, &cluster);
    Ok(Import { cluster, unread })
}

/// The manifests of one cluster.
struct Objects<'a>(&'a [Value]);

impl<'a> Objects<'a> {
    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    fn named(&self, kind: &'static str, name: &str) -> Result<&'a Value, ImportError> {
        let mut found = self.of_kind(kind);
        found
            .find(|object| object["metadata"]["name"] == name)
            .ok_or_else(|| ImportError::Missing {
                kind,
                name: name.to_owned(),
            })
    }
}

/// Reads manifests.
pub(crate) fn read(objects: &[Value]) -> Result<Import, ImportError> {
    let all = Objects(objects);
    let clusters: Vec<_> = all.of_kind("Cluster").collect();
    let [cluster] = clusters[..] else {
        return Err(ImportError::NotOne(clusters.len()));
    };
    let spec = spec(&all, cluster)?;
    let spec = restore(cluster, spec)?;
    let name = text(cluster, "/metadata/name").unwrap_or_default();
    let mut guest = GuestCluster::new(&name, spec);
    guest.metadata.namespace = text(cluster, "/metadata/namespace");
    Ok(Import {
        cluster: guest,
        unread: Vec::new(),
    })
}

fn spec(all: &Objects<'_>, cluster: &Value) -> Result<GuestClusterSpec, ImportError> {
    let reference = |path: &str| text(cluster, path).unwrap_or_default();
    let infrastructure = all.named(
        "KubevirtCluster",
        &reference("/spec/infrastructureRef/name"),
    )?;
    let kubeadm = all.named(
        "KubeadmControlPlane",
        &reference("/spec/controlPlaneRef/name"),
    )?;
    let template = text(kubeadm, "/spec/machineTemplate/spec/infrastructureRef/name")
        .or_else(|| text(kubeadm, "/spec/machineTemplate/infrastructureRef/name"));
    let template = all.named("KubevirtMachineTemplate", &template.unwrap_or_default())?;
    let instance = machine::instance(template);
    let topology = match kubeadm
        .pointer("/spec/kubeadmConfigSpec/initConfiguration/nodeRegistration/taints")
    {
        Some(Value::Array(taints)) if taints.is_empty() => Topology::Converged,
        _ => Topology::Dedicated,
    };
    let replicas = number(kubeadm, "/spec/replicas").unwrap_or(1);
    let profile = if replicas == 1 && instance.pointer("/affinity/podAntiAffinity").is_none() {
        Profile::Lab
    } else {
        Profile::Production
    };
    Ok(GuestClusterSpec {
        tenant: machine::tenant(template),
        version: text(kubeadm, "/spec/version").unwrap_or_default(),
        image: machine::image(template),
        topology,
        profile,
        control_plane: ControlPlane {
            replicas,
            machine: machine::machine(template),
            placement: machine::placement(instance),
            endpoint: endpoint(infrastructure, kubeadm),
            ..kubeadm::settings(kubeadm)
        },
        workers: workers::pools(all, cluster)?,
        network: network(cluster, instance),
        addons: Addons { cni: Cni::None },
        deletion: Deletion::default(),
        capacity_policy: CapacityPolicy::default(),
        capacity_scope: CapacityScope::default(),
        repair: Repair::default(),
        maintenance: Maintenance::default(),
        paused: cluster.pointer("/spec/paused") == Some(&Value::Bool(true)),
    })
}

fn endpoint(infrastructure: &Value, kubeadm: &Value) -> Endpoint {
    let service = "/spec/controlPlaneServiceTemplate";
    let host = text(infrastructure, "/spec/controlPlaneEndpoint/host");
    let type_ = text(infrastructure, &format!("{service}/spec/type"));
    let own = Endpoint::default();
    let type_ = match (type_.as_deref(), &host) {
        (Some("LoadBalancer"), _) => EndpointType::LoadBalancer,
        (Some("NodePort"), _) => EndpointType::NodePort,
        (_, None) => EndpointType::ClusterIp,
        (_, Some(_)) => EndpointType::External,
    };
    let names = "/spec/kubeadmConfigSpec/clusterConfiguration/apiServer/certSANs";
    Endpoint {
        type_,
        host,
        port: number(infrastructure, "/spec/controlPlaneEndpoint/port").unwrap_or(own.port),
        cert_sans: value::parsed(kubeadm, names),
        annotations: value::parsed(infrastructure, &format!("{service}/metadata/annotations")),
        ..own
    }
}

fn network(cluster: &Value, instance: &Value) -> GuestNetwork {
    let at = |path: &str, own: String| {
        text(cluster, &format!("/spec/clusterNetwork/{path}")).unwrap_or(own)
    };
    let own = GuestNetwork::default();
    GuestNetwork {
        pod_cidr: at("pods/cidrBlocks/0", own.pod_cidr),
        service_cidr: at("services/cidrBlocks/0", own.service_cidr),
        dns_domain: at("serviceDomain", own.dns_domain),
        machine: machine::network(instance),
    }
}

/// What an export kept beside the objects.
fn restore(cluster: &Value, spec: GuestClusterSpec) -> Result<GuestClusterSpec, ImportError> {
    let annotations = &cluster["metadata"]["annotations"];
    let Some(kept) = annotations[capi::KEPT].as_str() else {
        return Ok(spec);
    };
    let kept: BTreeMap<Path, Kept> =
        serde_json::from_str(kept).map_err(|error| ImportError::Annotation(error.to_string()))?;
    let is_no_spec = |error: serde_json::Error| ImportError::Spec(error.to_string());
    let read = serde_json::to_value(spec).map_err(is_no_spec)?;
    serde_json::from_value(leaves::restore(read, &kept)).map_err(is_no_spec)
}
