//! Builders: a cluster's specification and an infrastructure cluster, in domain words.

use std::collections::BTreeMap;

use guestcluster_api::spec::{
    AccessMode, Addons, Binding, CapacityPolicy, CapacityScope, Cni, Component, ControlPlane,
    Deletion, DiskPolicy, Endpoint, EndpointType, GuestNetwork, Image, Machine, Maintenance,
    Placement, Profile, Repair, Rollout, Topology, WorkerPool,
};
use guestcluster_api::{GuestCluster, GuestClusterSpec, labels};
use guestcluster_planner::observed::{Host, Infra, Quantity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// The moment at which every simulation begins.
pub fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap_or_default()
}

/// A GuestCluster in namespace `tenant-a` with one control-plane machine and no worker.
pub fn cluster(name: &str) -> ClusterBuilder {
    let spec = GuestClusterSpec {
        tenant: None,
        version: "v1.36.3".to_owned(),
        image: Image {
            registry: Some(format!(
                "registry.example.com/guest/node:v1.36.3@sha256:{}",
                "ab".repeat(32)
            )),
            ..Image::default()
        },
        topology: Topology::default(),
        profile: Profile::default(),
        control_plane: ControlPlane {
            replicas: 1,
            machine: Machine::default(),
            placement: Placement::default(),
            endpoint: Endpoint::default(),
            certificate_validity_period: "8760h".to_owned(),
            api_server: Component::default(),
            controller_manager: Component::default(),
            scheduler: Component::default(),
            etcd: Component::default(),
            drain_timeout_seconds: 0,
        },
        workers: Vec::new(),
        network: GuestNetwork::default(),
        addons: Addons::default(),
        deletion: Deletion::default(),
        capacity_policy: CapacityPolicy::default(),
        capacity_scope: CapacityScope::default(),
        repair: Repair::default(),
        maintenance: Maintenance::default(),
        paused: false,
    };
    let mut cluster = GuestCluster::new(name, spec);
    let meta = &mut cluster.metadata;
    meta.namespace = Some("tenant-a".to_owned());
    meta.uid = Some(format!("uid-of-{name}"));
    meta.generation = Some(1);
    meta.creation_timestamp = Some(Time(start()));
    ClusterBuilder(cluster)
}

/// A GuestCluster in the making.
#[derive(Clone, Debug)]
pub struct ClusterBuilder(GuestCluster);

impl ClusterBuilder {
    /// With so many control-plane machines.
    #[must_use]
    pub fn control_plane(mut self, replicas: i32) -> Self {
        self.0.spec.control_plane.replicas = replicas;
        self
    }

    /// With a pool of workers.
    #[must_use]
    pub fn workers(mut self, pool: &str, replicas: i32) -> Self {
        self.0.spec.workers.push(WorkerPool {
            name: pool.to_owned(),
            replicas,
            machine: Machine::default(),
            devices: Vec::new(),
            labels: BTreeMap::new(),
            max_per_host: None,
            taints: Vec::new(),
            placement: Placement::default(),
            rollout: Rollout::default(),
            drain_timeout_seconds: 0,
        });
        self
    }

    /// With another kind of endpoint.
    #[must_use]
    pub fn endpoint(mut self, type_: EndpointType) -> Self {
        let endpoint = &mut self.0.spec.control_plane.endpoint;
        endpoint.type_ = type_;
        if matches!(type_, EndpointType::External | EndpointType::NodePort) {
            endpoint.host = Some("api.example.com".to_owned());
        }
        self
    }

    /// With machines that can live-migrate: behind masquerade, on disks that several hosts can have.
    #[must_use]
    pub fn migratable(mut self) -> Self {
        let spec = &mut self.0.spec;
        spec.network.machine.binding = Binding::Masquerade;
        let workers = spec.workers.iter_mut().map(|pool| &mut pool.machine);
        for machine in workers.chain([&mut spec.control_plane.machine]) {
            let disks = [Some(&mut machine.root_disk), machine.etcd_disk.as_mut()];
            for disk in disks.into_iter().flatten() {
                disk.access_mode = Some(AccessMode::ReadWriteMany);
            }
        }
        self
    }

    /// Without a pod network of ours.
    #[must_use]
    pub fn without_cni(mut self) -> Self {
        self.0.spec.addons.cni = Cni::None;
        self
    }

    /// Its disks outlive it.
    #[must_use]
    pub fn retaining_disks(mut self) -> Self {
        self.0.spec.deletion.disks = DiskPolicy::Retain;
        self
    }

    /// Its deletion is refused.
    #[must_use]
    pub fn protected(mut self) -> Self {
        self.0.spec.deletion.protected = true;
        self
    }

    /// Nothing is written.
    #[must_use]
    pub fn paused(mut self) -> Self {
        self.0.spec.paused = true;
        self
    }

    /// It carries our finalizer.
    #[must_use]
    pub fn with_finalizer(mut self) -> Self {
        self.0.metadata.finalizers = Some(vec![labels::FINALIZER.to_owned()]);
        self
    }

    /// With anything else in its specification.
    #[must_use]
    pub fn with(mut self, edit: impl FnOnce(&mut GuestClusterSpec)) -> Self {
        edit(&mut self.0.spec);
        self
    }

    /// The object.
    pub fn build(self) -> GuestCluster {
        self.0
    }
}

/// An infrastructure cluster that is all right: KubeVirt, a default StorageClass, and `hosts` hosts
/// `host-1`… in two zones.
pub fn guest_infra(hosts: u32) -> Infra {
    let range = |text: &str| text.parse().into_iter().collect();
    Infra {
        namespace_for_guests: true,
        pod_ranges: range("10.77.0.0/16"),
        service_ranges: range("10.98.0.0/16"),
        kubevirt: Some("v1.8.0".to_owned()),
        storage_classes: ["standard".to_owned()].into(),
        default_storage_class: Some("standard".to_owned()),
        hosts: (1..=hosts).map(host).collect(),
        ..Infra::default()
    }
}

fn host(number: u32) -> Host {
    let zone = if number <= 2 { "zone-a" } else { "zone-b" };
    let labels = [
        ("kubevirt.io/schedulable", "true"),
        ("cpumanager", "true"),
        ("topology.kubernetes.io/zone", zone),
    ];
    Host {
        name: format!("host-{number}"),
        labels: labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ready: true,
        allocatable: [
            ("cpu".to_owned(), Quantity::units(32)),
            ("memory".to_owned(), Quantity::units(128 << 30)),
            ("ephemeral-storage".to_owned(), Quantity::units(100 << 30)),
            ("pods".to_owned(), Quantity::units(110)),
        ]
        .into(),
        ..Host::default()
    }
}
