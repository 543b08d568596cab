//! The simulated world: one GuestCluster and all that it lives in.
//!
//! Time passes in ticks of [`TICK`]. Within a tick KubeVirt's controllers and every machine take one
//! step at most, in an order and at a pace that the seed decides; the operator acts when a
//! [`Step::Reconcile`] says so. What must hold at any moment is checked at every action
//! (`laws.rs`); what was broken is collected in [`World::broken`], with the log beside it.

mod alive;
mod boot;
mod devices;
mod guest;
mod key;
mod kubevirt;
mod laws;
mod look;
mod maintenance;
mod moves;
mod objects;
mod operator;
mod steps;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guestcluster_api::host_maintenance::CapacityPolicy;
use guestcluster_api::{ConditionType, GuestCluster, GuestClusterStatus};
use guestcluster_planner::observed::{Infra, Observed, Reach};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::build::{guest_infra, start};
use crate::chance::Chance;
use guest::{Guest, Machine};
use laws::Laws;
use objects::Objects;

pub use moves::Move;
pub use steps::{Mishap, Step};

/// How far a tick moves the clock.
pub const TICK: SignedDuration = SignedDuration::from_secs(2);

/// Something that is out of order for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The golden image cannot be imported.
    ImageBroken,
    /// Clones of the image do not end.
    ClonesHang,
    /// Nobody gives addresses to Services of type LoadBalancer.
    NoBalancer,
    /// Migrations never end.
    MigrationsHang,
    /// Migrations fail.
    MigrationsFail,
    /// KubeVirt has no MigrationPolicy.
    NoMigrationPolicies,
    /// Nobody reaches the guest's API and etcd from outside.
    GuestCut,
    /// Nobody lets the operator list volumes.
    VolumesHidden,
}

/// A GuestCluster and all that it lives in.
#[derive(Clone, Debug)]
pub struct World {
    now: Timestamp,
    chance: Chance,
    /// Source of UIDs, resource versions and addresses.
    ids: u64,
    cluster: Option<GuestCluster>,
    infra: Infra,
    /// Other clusters of the namespace use the golden image.
    image_shared: bool,
    faults: BTreeSet<Fault>,
    /// Secrets that are not what they should be, with the complaint.
    damaged: BTreeMap<String, String>,
    /// Names that others hold, with what holds them.
    taken: BTreeMap<String, String>,
    objects: Objects,
    /// Claims that outlived the cluster, with their labels.
    kept: BTreeMap<String, BTreeMap<String, String>>,
    machines: BTreeMap<String, Machine>,
    guest: Guest,
    hosts_down: BTreeSet<String>,
    /// Hosts that are cordoned and being drained.
    draining: BTreeSet<String>,
    /// Hosts that a HostMaintenance empties, with its policy; none where it has ended.
    emptied: BTreeMap<String, Option<CapacityPolicy>>,
    /// What the loss of each host would mean is worked out at each look.
    foresees: bool,
    /// From where the volume under a claim can be reached, where it says so.
    reaches: BTreeMap<String, Reach>,
    /// Machines that stand still.
    frozen: BTreeSet<String>,
    /// The version that each machine's root disk holds.
    images: BTreeMap<String, String>,
    /// What the operator saw last: a stale watch shows it again.
    last_seen: Option<Arc<Observed>>,
    /// How often in a row the guest did not answer.
    failures: u32,
    laws: Laws,
    log: Vec<String>,
    keeps_log: bool,
}

impl World {
    /// A world with four hosts, in which `cluster` was just applied.
    pub fn new(seed: u64, cluster: GuestCluster) -> Self {
        Self {
            now: start(),
            chance: Chance::Seeded(seed),
            ids: 0,
            cluster: Some(cluster),
            infra: guest_infra(4),
            image_shared: false,
            faults: BTreeSet::new(),
            damaged: BTreeMap::new(),
            taken: BTreeMap::new(),
            objects: Objects::default(),
            kept: BTreeMap::new(),
            machines: BTreeMap::new(),
            guest: Guest::default(),
            hosts_down: BTreeSet::new(),
            draining: BTreeSet::new(),
            emptied: BTreeMap::new(),
            foresees: false,
            reaches: BTreeMap::new(),
            frozen: BTreeSet::new(),
            images: BTreeMap::new(),
            last_seen: None,
            failures: 0,
            laws: Laws::default(),
            log: Vec::new(),
            keeps_log: true,
        }
    }

    /// The time there.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The GuestCluster, as long as it exists.
    pub const fn cluster(&self) -> Option<&GuestCluster> {
        self.cluster.as_ref()
    }

    /// Changes the GuestCluster as a person does.
    pub fn edit(&mut self, edit: impl FnOnce(&mut GuestCluster)) {
        if let Some(cluster) = &mut self.cluster {
            edit(cluster);
            let generation = cluster.metadata.generation.unwrap_or_default();
            cluster.metadata.generation = Some(generation + 1);
        }
    }

    /// The infrastructure cluster, to change it.
    pub const fn infra_mut(&mut self) -> &mut Infra {
        &mut self.infra
    }

    /// Whether other clusters of the namespace use the golden image.
    pub const fn share_image(&mut self, shared: bool) {
        self.image_shared = shared;
    }

    /// Begins or ends a fault.
    pub fn set(&mut self, fault: Fault, present: bool) {
        self.note(format!("{fault:?}: {present}"));
        if present {
            self.faults.insert(fault);
        } else {
            self.faults.remove(&fault);
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// A Secret is not what it should be.
    pub fn damage(&mut self, secret: &str, complaint: &str) {
        self.damaged.insert(secret.to_owned(), complaint.to_owned());
    }

    /// Somebody else holds a name.
    pub fn take_name(&mut self, name: &str, holder: &str) {
        self.taken.insert(name.to_owned(), holder.to_owned());
    }

    /// The status that was last written.
    pub fn status(&self) -> GuestClusterStatus {
        let status = self
            .cluster
            .as_ref()
            .and_then(|cluster| cluster.status.clone());
        status.unwrap_or_default()
    }

    /// Whether the condition `Ready` is true.
    pub fn is_ready(&self) -> bool {
        self.is_true(ConditionType::Ready)
    }

    /// Whether every machine is made from today's specification.
    pub fn is_up_to_date(&self) -> bool {
        self.is_true(ConditionType::UpToDate)
    }

    fn is_true(&self, type_: ConditionType) -> bool {
        let mut conditions = self.status().conditions.into_iter();
        conditions.any(|c| c.type_ == type_.as_str() && c.status == "True")
    }

    /// Names of all objects that belong to the cluster.
    pub fn left(&self) -> Vec<String> {
        self.objects.names()
    }

    /// Claims that were kept, with their labels.
    pub const fn kept(&self) -> &BTreeMap<String, BTreeMap<String, String>> {
        &self.kept
    }

    /// Whether status calls the machine whose disk this is given up.
    pub fn was_given_up(&self, disk: &str) -> bool {
        self.laws
            .given_up()
            .any(|machine| disk.starts_with(&format!("{machine}-")))
    }

    /// Names of the machines that have an instance.
    pub fn running(&self) -> Vec<String> {
        self.objects.instances.keys().cloned().collect()
    }

    /// Promises that were broken.
    pub fn broken(&self) -> &[String] {
        self.laws.broken()
    }

    /// What happened, for people who look for a fault.
    pub fn log(&self) -> String {
        self.log.join("\n")
    }

    fn note(&mut self, what: impl AsRef<str>) {
        if !self.keeps_log {
            return;
        }
        let seconds = self.now.duration_since(start()).as_secs();
        self.log.push(format!("{seconds:>5}s {}", what.as_ref()));
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Lets one tick pass.
    fn tick(&mut self) {
        self.now += TICK;
        self.run_kubevirt();
        self.run_machines();
        self.follow_laws();
    }
}
