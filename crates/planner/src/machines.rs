//! Machines, put together from the objects that carry their name.
//!
//! ```text
//!            objects           instance runs        in the guest          kubelet ready
//! (wanted) ───────▶ Creating ───────────▶ Booting ───────────▶ Joined ───────────▶ Ready ◀─▶ Unhealthy
//!                                            │                                        │
//!                                            ├──▶ Failed (its first boot is over and  └──▶ Stopped (a
//!                                            │    it has not joined: it is replaced)       person's will)
//! any ──▶ Leaving (being deleted)
//! ```

use std::collections::BTreeMap;

use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_api::status::{GuestClusterStatus, MachineStatus};

use crate::observed::{Disk, EtcdMember, GuestNode, Instance, Meta, Observed, Secret, Service, Vm};
use crate::wanted::Wanted;

/// Where a machine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Some of its objects exist, its instance does not run yet.
    Creating,
    /// Its instance runs and it has not joined.
    Booting,
    /// It has joined; its Node is not ready yet for the first time.
    Joined,
    /// It serves.
    Ready,
    /// It served and does not.
    Unhealthy,
    /// A person stopped it.
    Stopped,
    /// Its first boot ended without a join.
    Failed,
    /// It is being deleted.
    Leaving,
}

impl Phase {
    /// As status shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "Creating",
            Self::Booting => "Booting",
            Self::Joined => "Joined",
            Self::Ready => "Ready",
            Self::Unhealthy => "Unhealthy",
            Self::Stopped => "Stopped",
            Self::Failed => "Failed",
            Self::Leaving => "Leaving",
        }
    }
}

/// Everything known of one machine.
#[derive(Clone, Debug)]
pub struct MachineView<'a> {
    /// Name.
    pub name: String,
    /// Pool.
    pub pool: String,
    /// Ordinal in its pool.
    pub ordinal: u32,
    /// Role.
    pub role: Role,
    /// Its first-boot Secret.
    pub user_data: Option<&'a Secret>,
    /// Its address Service.
    pub service: Option<&'a Service>,
    /// Its root disk.
    pub root_disk: Option<&'a Disk>,
    /// Its VM.
    pub vm: Option<&'a Vm>,
    /// Its instance.
    pub instance: Option<&'a Instance>,
    /// Its guest Node.
    pub node: Option<&'a GuestNode>,
    /// Its etcd member.
    pub member: Option<&'a EtcdMember>,
    /// What status said of it last.
    pub previous: Option<&'a MachineStatus>,
    /// Last lines of its console, while its first boot is not over.
    pub console: &'a [String],
}

/// The line that a first boot writes when it gives up.
const BOOT_FAILED: &str = "guestcluster: bootstrap failed";

impl MachineView<'_> {
    /// It is part of the guest: it has a Node, and a control-plane machine votes in etcd too.
    pub fn has_joined(&self) -> bool {
        let voter = self
            .member
            .is_some_and(|member| !member.learner && !member.name.is_empty());
        self.node.is_some() && (self.role == Role::Worker || voter)
    }

    /// Its first boot has been answered for: keys and tokens are out of its Secret.
    pub fn is_settled(&self) -> bool {
        self.user_data.is_some_and(|secret| secret.scrubbed)
    }

    /// It had joined when last looked at, whatever can be asked now.
    pub fn joined_before(&self) -> bool {
        self.is_settled()
            || self
                .previous
                .is_some_and(|p| matches!(p.phase.as_str(), "Joined" | "Ready" | "Unhealthy"))
    }

    /// Its first boot ended without a join: it said so, or it came back as another instance.
    pub fn boot_failed(&self) -> bool {
        if self.joined_before() || self.has_joined() {
            return false;
        }
        let said_so = self.console.iter().any(|line| line.contains(BOOT_FAILED));
        let instance = self.instance.map(|instance| instance.meta.uid.as_str());
        let first = self
            .previous
            .and_then(|previous| previous.boot_instance.as_deref());
        let restarted = matches!((first, instance), (Some(first), Some(now)) if first != now);
        said_so || restarted
    }

    /// A person stopped it: every machine of ours is made to run always.
    pub fn is_stopped(&self) -> bool {
        self.vm
            .and_then(|vm| vm.run_strategy.as_deref())
            .is_some_and(|s| s != "Always")
    }

    /// It is being taken away. Disks and Secret are made before the VM and deleted with it, so a VM
    /// that lacks one, or a disk that is going, is a removal that was begun.
    pub fn is_leaving(&self) -> bool {
        let disk_gone = self.root_disk.is_none_or(|disk| disk.meta.deleting);
        match self.vm {
            Some(vm) => vm.meta.deleting || disk_gone || self.user_data.is_none(),
            None => self.root_disk.is_some_and(|disk| disk.meta.deleting),
        }
    }

    /// Where it is in its life.
    pub fn phase(&self) -> Phase {
        if self.is_leaving() {
            return Phase::Leaving;
        }
        if self.is_stopped() {
            return Phase::Stopped;
        }
        if self.boot_failed() {
            return Phase::Failed;
        }
        let served = self
            .previous
            .is_some_and(|p| matches!(p.phase.as_str(), "Ready" | "Unhealthy"));
        let running = self
            .instance
            .is_some_and(|instance| instance.phase == "Running");
        let joined = self.has_joined() || self.joined_before();
        match (joined, running) {
            (true, true) if self.serves() => Phase::Ready,
            (true, _) if served || (self.is_settled() && !running) => Phase::Unhealthy,
            (true, _) => Phase::Joined,
            (false, true) => Phase::Booting,
            (false, false) => Phase::Creating,
        }
    }

    /// Its Node is ready, and on a control-plane machine the API server answers.
    fn serves(&self) -> bool {
        let probe = self.role == Role::Worker || self.vm.is_some_and(|vm| vm.ready);
        match self.node {
            Some(node) => node.ready && probe,
            // The guest was not asked: its last word holds as long as the probe agrees.
            None => probe && self.previous.is_some_and(|p| p.phase == "Ready"),
        }
    }

    /// The host it runs on.
    pub fn host(&self) -> Option<&str> {
        self.instance.and_then(|instance| instance.host.as_deref())
    }
}

/// All machines of the cluster, by name. An object tells its machine by label, never by name.
pub fn machines<'a>(
    wanted: &Wanted,
    seen: &'a Observed,
    previous: &'a GuestClusterStatus,
) -> BTreeMap<String, MachineView<'a>> {
    let metas = seen
        .vms
        .values()
        .map(|vm| &vm.meta)
        .chain(seen.services.values().map(|service| &service.meta))
        .chain(seen.secrets.values().map(|secret| &secret.meta))
        .chain(seen.disks.values().map(|disk| &disk.meta));
    let mut found: BTreeMap<String, MachineView<'a>> = BTreeMap::new();
    for meta in metas {
        let Some((name, view)) = view(wanted, seen, previous, meta) else {
            continue;
        };
        found.entry(name).or_insert(view);
    }
    found
}

fn view<'a>(
    wanted: &Wanted,
    seen: &'a Observed,
    previous: &'a GuestClusterStatus,
    meta: &Meta,
) -> Option<(String, MachineView<'a>)> {
    let (name, pool) = (meta.machine.as_ref()?, meta.pool.as_ref()?);
    let ordinal = names::ordinal(&wanted.identity.name, pool, name)?;
    let control_plane = pool == names::CONTROL_PLANE_POOL;
    let guest = seen.guest.known();
    let etcd = seen.etcd.known();
    let service = seen.services.get(name);
    let view = MachineView {
        name: name.clone(),
        pool: pool.clone(),
        ordinal,
        role: if control_plane {
            Role::ControlPlane
        } else {
            Role::Worker
        },
        user_data: seen.secrets.get(&names::user_data_secret(name)),
        service,
        root_disk: seen.disks.get(&names::root_disk(name)),
        vm: seen.vms.get(name),
        instance: seen.instances.get(name),
        node: guest.and_then(|guest| guest.nodes.get(name)),
        member: etcd.and_then(|etcd| etcd.members.iter().find(|m| is_member_of(m, name, service))),
        previous: recorded(previous).find(|machine| machine.name == *name),
        console: seen.consoles.get(name).map_or(&[], Vec::as_slice),
    };
    Some((name.clone(), view))
}

/// A member that has not started has no name: then its peer URL, the machine's own Service
/// address, tells whose it is.
fn is_member_of(member: &EtcdMember, machine: &str, service: Option<&Service>) -> bool {
    if !member.name.is_empty() {
        return member.name == machine;
    }
    let address = service.and_then(|service| service.cluster_ip.as_deref());
    address.is_some_and(|address| {
        member
            .peer_urls
            .iter()
            .any(|url| *url == format!("https://{address}:2380"))
    })
}

/// All machines in a status.
pub fn recorded(status: &GuestClusterStatus) -> impl Iterator<Item = &MachineStatus> {
    status
        .control_plane
        .machines
        .iter()
        .chain(status.workers.iter().flat_map(|pool| pool.machines.iter()))
}

/// The highest ordinal that `pool` has ever used: the largest over recorded ordinals, objects,
/// guest Nodes and etcd members.
pub fn last_ordinal(
    wanted: &Wanted,
    seen: &Observed,
    previous: &GuestClusterStatus,
    pool: &str,
) -> u32 {
    let recorded = if pool == names::CONTROL_PLANE_POOL {
        previous.control_plane.last_ordinal
    } else {
        previous
            .workers
            .iter()
            .find(|p| p.name == pool)
            .map_or(0, |p| p.last_ordinal)
    };
    let machines = machines(wanted, seen, previous);
    let objects = machines
        .values()
        .filter(|m| m.pool == pool)
        .map(|m| m.ordinal);
    let in_guest = seen
        .guest
        .known()
        .into_iter()
        .flat_map(|guest| guest.nodes.keys());
    let in_etcd = seen
        .etcd
        .known()
        .into_iter()
        .flat_map(|etcd| &etcd.members)
        .map(|m| &m.name);
    let named = in_guest
        .chain(in_etcd)
        .filter_map(|name| names::ordinal(&wanted.identity.name, pool, name));
    objects
        .chain(named)
        .chain([recorded])
        .max()
        .unwrap_or_default()
}
