//! From what a user wrote to what it means: names, numbers and ranges that cannot be wrong.

mod pool;

use std::collections::BTreeSet;
use std::net::IpAddr;

use guestcluster_api::labels::{self, Role};
use guestcluster_api::names;
use guestcluster_api::spec::{
    Binding, CapacityPolicy, CapacityScope, Cni, CoLocation, ControlPlane, DiskPolicy, Endpoint,
    GuestNetwork, Image, Profile, Topology,
};
use guestcluster_api::{GuestCluster, GuestClusterSpec};
use guestcluster_bootstrap::is_domain;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::cidr::Cidr;

pub use pool::Pool;

/// Settings of the operator that a plan depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Pod ranges of the infrastructure cluster that its Nodes do not tell.
    pub infra_pod_ranges: Vec<Cidr>,
    /// Service ranges that no ServiceCIDR object tells.
    pub infra_service_ranges: Vec<Cidr>,
    /// How long a machine may be unhealthy before it is replaced; `None` means
    /// [`Settings::UNHEALTHY_AFTER`].
    pub unhealthy_after: Option<SignedDuration>,
}

impl Settings {
    /// Long enough for a restart, an etcd election and a node controller's doubts, one after another.
    pub const UNHEALTHY_AFTER: SignedDuration = SignedDuration::from_mins(5);

    /// How long a machine may be unhealthy before it is replaced.
    pub fn unhealthy_after(&self) -> SignedDuration {
        self.unhealthy_after.unwrap_or(Self::UNHEALTHY_AFTER)
    }
}

/// A guest cluster as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Who it is.
    pub identity: Identity,
    /// Value of the tenant label.
    pub tenant: String,
    /// Kubernetes version, such as `v1.36.3`.
    pub version: String,
    /// Source of the root disks.
    pub image: Image,
    /// Where workloads run.
    pub topology: Topology,
    /// What the guest is for.
    pub profile: Profile,
    /// The control plane's settings.
    pub control_plane: ControlPlane,
    /// All pools, the control plane's first.
    pub pools: Vec<Pool>,
    /// Ranges, as written.
    pub network: GuestNetwork,
    /// Range of the guest's pods.
    pub pod_range: Cidr,
    /// Range of the guest's Services.
    pub service_range: Cidr,
    /// The pod network.
    pub cni: Cni,
    /// How long certificates of machines live.
    pub certificate_life: SignedDuration,
    /// Deletion is refused.
    pub protected: bool,
    /// What becomes of the disks.
    pub disks: DiskPolicy,
    /// What follows if the loss of a host would not be survived.
    pub capacity_policy: CapacityPolicy,
    /// Whose loss it is about.
    pub capacity_scope: CapacityScope,
    /// What becomes of control-plane machines that share a host.
    pub co_location: CoLocation,
    /// How many bytes one migration may send in a second, as written.
    pub migration_bandwidth: Option<String>,
    /// No writes.
    pub paused: bool,
    /// Ranges from the operator's settings.
    pub settings: Settings,
}

/// Who a guest cluster is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Generation of the specification.
    pub generation: i64,
    /// Being deleted.
    pub deleting: bool,
    /// Carries our finalizer.
    pub finalizer: bool,
    /// Made at.
    pub created: Option<Timestamp>,
}

/// What is wrong with a specification: sentences that say what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct SpecErrors(pub Vec<String>);

impl Wanted {
    /// Reads a specification. Admission has refused most of what could be wrong; what reaches this
    /// point in spite of it (rules changed, object stored before them) becomes a condition.
    pub fn parse(cluster: &GuestCluster, settings: &Settings) -> Result<Self, SpecErrors> {
        let spec = &cluster.spec;
        let mut errors = Vec::new();
        let mut range = |path: &str, text: &str| match text.parse::<Cidr>() {
            Ok(range) => Some(range),
            Err(error) => {
                errors.push(format!("{path}: {error}"));
                None
            }
        };
        let pod_range = range("spec.network.podCIDR", &spec.network.pod_cidr);
        let service_range = range("spec.network.serviceCIDR", &spec.network.service_cidr);
        let period = &spec.control_plane.certificate_validity_period;
        let life = period.parse().unwrap_or_else(|_| {
            errors.push(format!(
                "spec.controlPlane.certificateValidityPeriod: {period:?} is no duration such as 8760h"
            ));
            SignedDuration::ZERO
        });
        check_names(&spec.control_plane.endpoint, &mut errors);
        check_shape(spec, &mut errors);
        let pools = pool::pools(spec, &mut errors);
        let identity = identity(cluster);
        if identity.name.len() > names::MAX_CLUSTER || identity.name.contains('.') {
            errors.push(format!(
                "metadata.name: {:?} cannot be part of host names: use at most {} letters, without dots",
                identity.name,
                names::MAX_CLUSTER
            ));
        }
        // What is to go needs no sound specification, and must not be kept by one that is not.
        if !errors.is_empty() && !identity.deleting {
            return Err(SpecErrors(errors));
        }
        Ok(Self {
            tenant: spec
                .tenant
                .clone()
                .unwrap_or_else(|| identity.namespace.clone()),
            identity,
            version: spec.version.clone(),
            image: spec.image.clone(),
            topology: spec.topology,
            profile: spec.profile,
            control_plane: spec.control_plane.clone(),
            pools,
            network: spec.network.clone(),
            pod_range: pod_range.unwrap_or_default(),
            service_range: service_range.unwrap_or_default(),
            cni: spec.addons.cni,
            certificate_life: life,
            protected: spec.deletion.protected,
            disks: spec.deletion.disks,
            capacity_policy: spec.capacity_policy,
            capacity_scope: spec.capacity_scope,
            co_location: spec.repair.co_location,
            migration_bandwidth: spec.maintenance.migration.bandwidth_per_migration.clone(),
            paused: spec.paused,
            settings: settings.clone(),
        })
    }

    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// Machines of this role go by the address of a Service of their own: control-plane machines do
    /// always, and behind masquerade, where all machines see themselves under one address, workers too.
    pub fn has_service_address(&self, role: Role) -> bool {
        role == Role::ControlPlane || self.is_masqueraded()
    }

    /// Machines are behind their Pods' addresses.
    pub fn is_masqueraded(&self) -> bool {
        self.network.machine.binding == Binding::Masquerade
    }

    /// The endpoint's settings.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.control_plane.endpoint
    }

    /// Control-plane machines wanted.
    pub fn control_plane_size(&self) -> u32 {
        self.pool(names::CONTROL_PLANE_POOL)
            .map_or(0, |pool| pool.replicas)
    }

    /// Workers wanted, over all pools.
    pub fn worker_count(&self) -> u32 {
        self.pools
            .iter()
            .filter(|pool| pool.role == Role::Worker)
            .map(|pool| pool.replicas)
            .sum()
    }
}

fn identity(cluster: &GuestCluster) -> Identity {
    let meta = &cluster.metadata;
    Identity {
        name: meta.name.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        finalizer: meta
            .finalizers
            .iter()
            .flatten()
            .any(|f| f == labels::FINALIZER),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
    }
}

/// A name that kubeadm would leave out of certificates would have machines replaced without end.
fn check_names(endpoint: &Endpoint, errors: &mut Vec<String>) {
    let names = endpoint.cert_sans.iter().map(|name| ("certSANs", name));
    let host = endpoint.host.iter().map(|name| ("host", name));
    for (field, name) in host.chain(names) {
        let rest = name.strip_prefix("*.").unwrap_or(name);
        let is_name = is_domain(rest) && rest.contains(|c: char| c.is_ascii_lowercase());
        if !is_name && name.parse::<IpAddr>().is_err() {
            errors.push(format!(
                "spec.controlPlane.endpoint.{field}: {name:?} is neither an IP address nor a DNS name"
            ));
        }
    }
}

/// Which machines there may be beside each other.
fn check_shape(spec: &GuestClusterSpec, errors: &mut Vec<String>) {
    let mut refuse = |is_wrong: bool, sentence: &str| {
        if is_wrong {
            errors.push(sentence.to_owned());
        }
    };
    let replicas = spec.control_plane.replicas;
    refuse(
        ![1, 3, 5].contains(&replicas),
        "spec.controlPlane.replicas: must be 1, 3 or 5",
    );
    refuse(
        spec.profile == Profile::Lab && replicas != 1,
        "spec.controlPlane.replicas: profile Lab has one machine: write 1",
    );
    refuse(
        spec.topology == Topology::Converged && !spec.workers.is_empty(),
        "spec.workers: topology Converged has no worker pools: remove them",
    );
    for pool in &spec.workers {
        let names = pool.devices.iter().map(|one| &one.device_name);
        let names: BTreeSet<_> = names.collect();
        let counted = pool.devices.iter().all(|one| (1..=16).contains(&one.count));
        refuse(
            names.len() < pool.devices.len() || !counted,
            &format!(
                "spec.workers[{}].devices: write each device once, with a count from 1 to 16",
                pool.name
            ),
        );
    }
}
