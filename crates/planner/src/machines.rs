//! Machines, put together from the objects that carry their name.
//!
//! ```text
//!         name recorded       objects           instance runs        in the guest          kubelet ready
//! (none) ───────▶ Wanted ───────▶ Creating ───────────▶ Booting ───────────▶ Joined ───────────▶ Ready ◀─▶ Unhealthy
//!                                                          │                                        │
//!                        Failed (its first boot is over ◀──┘             Stopped (a person's will) ◀┤
//!                          │     and it has not joined)                                              │
//!                          └──▶ Leaving (its VM goes, then all that is left of it) ◀── a departure ──┘
//! ```
//!
//! A machine fails by its own word or by the lack of any, and one that joined leaves by a departure
//! (`departure.rs`); that status says so is remembered until it is gone. Objects alone never decide: a
//! Secret that a person deleted is no reason to take the rest away.

mod assemble;

pub use assemble::machines;
use guestcluster_api::labels::Role;
use guestcluster_api::status::{GuestClusterStatus, MachineStatus};
use guestcluster_bootstrap::console::{self, Boot};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::departure::Departure;
use crate::observed::{Disk, EtcdMember, GuestNode, Instance, Secret, Service, Vm};

/// Where a machine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Its name is recorded; none of its objects was ever made.
    Wanted,
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
    /// It was given up or has to go, and its VM goes or is gone.
    Leaving,
}

impl Phase {
    /// As status shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wanted => "Wanted",
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
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
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
    /// Whether it has joined was asked and answered; before the guest was initialised there is
    /// nothing to ask.
    pub asked: bool,
    /// How long ago its instance was made.
    pub instance_age: SignedDuration,
    /// Its host is known to be dead.
    pub host_is_dead: bool,
    /// It has no host, and none would take a successor either: it waits for one, and serves again
    /// when there is one.
    pub waits_for_host: bool,
    /// It cannot reach the guest's API, however well it is: nobody gets through at the endpoint.
    pub is_cut_off: bool,
}

/// How long a machine that came back before it joined may keep silent. Its console usually tells
/// much sooner; where consoles cannot be read, this is longer than all of kubeadm's own waits.
const SILENCE: SignedDuration = SignedDuration::from_mins(20);
/// How long a first boot may take whatever its console tells: kubeadm's own waits end long before.
const BOOT: SignedDuration = SignedDuration::from_mins(30);

/// Words with which KubeVirt says that a VM does not start and will not by waiting alone
/// (`printableStatus`).
const TROUBLE: [&str; 8] = [
    "CrashLoopBackOff",
    "DataVolumeError",
    "ErrImagePull",
    "ErrorDataVolumeNotFound",
    "ErrorPvcNotFound",
    "ErrorUnschedulable",
    "ImagePullBackOff",
    "Unknown",
];

impl MachineView<'_> {
    /// It is part of the guest: it has a Node, and a control-plane machine votes in etcd too.
    pub fn has_joined(&self) -> bool {
        self.node.is_some() && (self.role == Role::Worker || self.votes())
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

    /// etcd counts on it.
    pub fn votes(&self) -> bool {
        self.member
            .is_some_and(|member| !member.learner && !member.name.is_empty())
    }

    /// It certainly is no part of the guest.
    fn is_outside(&self) -> bool {
        self.asked && !self.joined_before() && !self.has_joined()
    }

    /// Its first boot ended without a join. That it came back as another instance is not enough: it
    /// may have been cut off before it began, and then it boots as if nothing had been.
    pub fn boot_failed(&self) -> bool {
        if self.is_given_up() {
            return true;
        }
        let over = match console::read(&self.console.join("\n")) {
            Boot::Failed { .. } => true,
            Boot::Silent if self.has_restarted() => self.instance_age > SILENCE,
            Boot::Silent | Boot::Running { .. } => self.instance_age > BOOT,
            Boot::Succeeded | Boot::Restarted => false,
        };
        self.is_outside() && (over || self.has_lost_disk())
    }

    /// It runs as another instance than the one in which it first booted.
    fn has_restarted(&self) -> bool {
        let instance = self.instance.map(|instance| instance.meta.uid.as_str());
        let first = self
            .previous
            .and_then(|previous| previous.boot_instance.as_deref());
        matches!((first, instance), (Some(first), Some(now)) if first != now)
    }

    /// Its root disk was there before its first-boot document was, and is not any more.
    pub fn has_lost_disk(&self) -> bool {
        self.user_data.is_some() && self.root_disk.is_none_or(|disk| disk.meta.deleting)
    }

    /// Status says that its first boot failed, and it has not joined after all.
    pub fn is_given_up(&self) -> bool {
        let told = self
            .previous
            .is_some_and(|p| matches!(p.phase.as_str(), "Failed" | "Leaving"));
        told && !self.is_settled() && !self.has_joined()
    }

    /// A person stopped it: every machine of ours is made to run always.
    pub fn is_stopped(&self) -> bool {
        self.vm
            .and_then(|vm| vm.run_strategy.as_deref())
            .is_some_and(|s| s != "Always")
    }

    /// Why it leaves for good, as status remembers it.
    pub fn leaves(&self) -> Option<Departure> {
        let told = self.previous.and_then(|p| p.leaving.as_deref());
        told.and_then(Departure::parse)
    }

    /// It is being taken away: by our decision alone, never because a person deleted a part of it.
    pub fn is_leaving(&self) -> bool {
        let decided = self.is_given_up() || self.leaves().is_some();
        decided && self.is_let_go() && self.vm.is_none_or(|vm| vm.meta.deleting)
    }

    /// Nothing holds it any more. As long as etcd counts on it, or may do so, a VM that is gone was
    /// deleted by a person, and the guest may need the machine back.
    fn is_let_go(&self) -> bool {
        let was = self.previous.is_some_and(|p| p.phase == "Leaving");
        let is_member = self.member.is_some() || !self.asked;
        was || self.role == Role::Worker || !is_member
    }

    /// A person has taken it out of the operator's hands.
    pub fn is_unmanaged(&self) -> bool {
        self.vm.is_some_and(|vm| vm.unmanaged)
    }

    /// Nothing of it runs, nor will by itself: its VM and its instance are gone.
    pub const fn is_lost(&self) -> bool {
        self.vm.is_none() && self.instance.is_none()
    }

    /// Since when it has not served, as far as that is known and its own fault. A worker behind a dead
    /// endpoint is as well as its successor would be, which could not even join.
    pub fn unhealthy_since(&self, now: Timestamp) -> Option<Timestamp> {
        let since = self.previous.and_then(|p| p.unhealthy_since.as_ref());
        let is_to_blame = !self.is_cut_off && !self.waits_for_host;
        (self.phase() == Phase::Unhealthy && is_to_blame)
            .then(|| since.map_or(now, |since| since.0))
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
            None if self.asked => false,
            // The guest was not asked: its last word holds as long as the probe agrees.
            None => probe && self.previous.is_some_and(|p| p.phase == "Ready"),
        }
    }

    /// What keeps it from serving: the last words of its console, or KubeVirt's.
    pub fn trouble(&self) -> Option<String> {
        if self.boot_failed() && !self.console.is_empty() {
            return Some(self.console.join("\n"));
        }
        let disk = self
            .root_disk
            .filter(|disk| disk.phase.as_deref() != Some("Succeeded"));
        let word = self.vm.and_then(|vm| vm.printable_status.as_deref());
        self.vm
            .and_then(|vm| vm.failure.as_deref())
            .or_else(|| disk.and_then(|disk| disk.message.as_deref()))
            .or_else(|| self.instance.and_then(|i| i.unschedulable.as_deref()))
            .or_else(|| word.filter(|word| TROUBLE.contains(word)))
            .map(str::to_owned)
    }

    /// The host it runs on.
    pub fn host(&self) -> Option<&str> {
        self.instance.and_then(|instance| instance.host.as_deref())
    }
}

/// A member that has not started has no name: then its peer URL, the machine's own Service
/// address, tells whose it is.
pub(crate) fn is_member_of(member: &EtcdMember, machine: &str, service: Option<&Service>) -> bool {
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
