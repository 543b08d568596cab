//! Machines and the guest that they form: power, etcd's membership, Nodes, tokens.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::labels::Role;
use guestcluster_api::spec::Cni;
use guestcluster_planner::action::FirstBoot;
use guestcluster_planner::observed::{GuestNode, GuestPod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::World;
use super::kubevirt::role_of;

/// How long a bootstrap token lives.
pub(super) const TOKEN: SignedDuration = SignedDuration::from_mins(15);

/// The guest, as its etcd holds it.
#[derive(Clone, Debug, Default)]
pub(super) struct Guest {
    /// Which `kubeadm init` made it.
    pub(super) epoch: u64,
    pub(super) members: Vec<Member>,
    pub(super) nodes: BTreeMap<String, GuestNode>,
    pub(super) tokens: BTreeMap<String, Timestamp>,
    pub(super) cni: Option<String>,
    /// `kubeadm init` came to its end.
    pub(super) complete: bool,
    /// The member that leads, as long as it runs.
    pub(super) leader: Option<u64>,
    /// Digest of kubeadm's configuration.
    pub(super) configuration: Option<String>,
    /// Names that it gives to certificates.
    pub(super) names: BTreeSet<String>,
    /// Where joins look for the API.
    pub(super) server: Option<String>,
    /// Version of the add-ons.
    pub(super) addons: Option<String>,
    /// Pods by Node.
    pub(super) pods: BTreeMap<String, Vec<GuestPod>>,
}

/// A member of etcd.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) machine: String,
    pub(super) learner: bool,
    pub(super) started: bool,
}

/// What a machine's disk holds and its kubeadm does.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) stage: Stage,
    pub(super) boot: Option<FirstBoot>,
    /// kubeadm runs, or will as soon as the machine has its document.
    pub(super) kubeadm: bool,
    pub(super) epoch: u64,
    pub(super) console: Vec<String>,
    pub(super) token: Option<String>,
    pub(super) since: Timestamp,
    /// The version that its image holds.
    pub(super) version: String,
    /// Names that its API server's certificate vouches for.
    pub(super) names: BTreeSet<String>,
}

/// How far its first boot came; the disk remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Nothing was begun.
    Fresh,
    /// kubeadm was begun.
    Started,
    /// A worker's kubelet knows where to ask; a control plane's etcd is a learner.
    Underway,
    /// etcd votes.
    Voter,
    /// The Node exists.
    Node,
    /// kubeadm came to its end.
    Done,
}

impl World {
    pub(super) fn power_on(&mut self, name: &str) {
        let now = self.now;
        let machine = self.machines.entry(name.to_owned()).or_insert(Machine {
            stage: Stage::Fresh,
            boot: None,
            kubeadm: true,
            epoch: 0,
            console: Vec::new(),
            token: None,
            since: now,
            version: String::new(),
            names: BTreeSet::new(),
        });
        machine.console.clear();
        let stage = machine.stage;
        match stage {
            Stage::Fresh => machine.kubeadm = true,
            Stage::Done => machine
                .console
                .push("guestcluster: machine restarted".to_owned()),
            _ => {
                machine.kubeadm = false;
                let words = "guestcluster: bootstrap failed: the first boot was interrupted";
                machine.console.push(words.to_owned());
            }
        }
        self.note(format!("{name} goes on at stage {stage:?}"));
    }

    pub(super) fn powered(&self, name: &str) -> bool {
        let runs = self
            .objects
            .instances
            .get(name)
            .is_some_and(|i| i.phase == "Running");
        let halted = self.is_stranded(name) || self.frozen.contains(name);
        runs && !halted && self.machines.contains_key(name)
    }

    /// The member's etcd runs and its peers reach it at its Service.
    pub(super) fn etcd_runs(&self, member: &Member) -> bool {
        let name = &member.machine;
        let on = self.powered(name)
            && self
                .machines
                .get(name)
                .is_some_and(|m| m.epoch == self.guest.epoch);
        let address = self
            .objects
            .instances
            .get(name)
            .and_then(|i| i.address.as_ref());
        let leads = self
            .objects
            .slices
            .get(name)
            .and_then(|slice| slice.addresses.first());
        let service = self.objects.services.contains_key(name);
        on && member.started && service && address.is_some() && leads == address
    }

    pub(super) fn quorum(&self) -> bool {
        let voters = || self.guest.members.iter().filter(|member| !member.learner);
        voters().filter(|member| self.etcd_runs(member)).count() * 2 > voters().count()
    }

    /// Whether etcd counts on the machine.
    pub fn votes(&self, name: &str) -> bool {
        self.guest
            .members
            .iter()
            .any(|member| member.machine == name && !member.learner)
    }

    /// Its API server answers.
    pub(super) fn serves(&self, name: &str) -> bool {
        let mut own = self
            .guest
            .members
            .iter()
            .filter(|m| m.machine == name && !m.learner);
        own.any(|member| self.etcd_runs(member)) && self.quorum()
    }

    /// The guest's API answers at its endpoint.
    pub(super) fn api_answers(&self) -> bool {
        let control_plane = |name: &&String| role_of(name) == Role::ControlPlane;
        let ready = |name: &String| self.is_served(name);
        self.objects
            .vms
            .keys()
            .filter(control_plane)
            .any(|name| ready(name) && self.serves(name))
    }

    /// The endpoint leads to it.
    pub(super) fn is_served(&self, name: &str) -> bool {
        let launcher = self
            .objects
            .instances
            .get(name)
            .and_then(|i| i.launcher.as_ref());
        let ready = self.objects.vms.get(name).is_some_and(|vm| vm.ready);
        ready && launcher.is_some_and(|pod| pod.serving)
    }

    /// The member that leads; if it does not run, the next one at once.
    pub(super) fn leader(&self) -> Option<&Member> {
        let voters = || {
            self.guest
                .members
                .iter()
                .filter(|m| !m.learner && self.etcd_runs(m))
        };
        let led = voters().find(|m| Some(m.id) == self.guest.leader);
        led.or_else(|| voters().next()).filter(|_| self.quorum())
    }

    pub(super) fn run_machines(&mut self) {
        self.elect();
        let names: Vec<String> = self.machines.keys().cloned().collect();
        for name in &names {
            if self.powered(name) && !self.chance.one_in(3) {
                self.boot(name);
            }
        }
        self.refresh();
    }

    /// A leader that is gone has a successor.
    pub(super) fn elect(&mut self) {
        self.guest.leader = self.leader().map(|member| member.id);
    }

    /// Probes and kubelets tell how the machines are.
    pub(super) fn refresh(&mut self) {
        let names: Vec<String> = self.machines.keys().cloned().collect();
        let answers = self.api_answers();
        for name in &names {
            let ready = match role_of(name) {
                Role::ControlPlane => self.serves(name),
                Role::Worker => self.powered(name),
            };
            self.set_vm_ready(name, ready);
        }
        if answers {
            self.keep_nodes();
            let now = self.now;
            self.guest.tokens.retain(|_, expiry| *expiry > now);
        }
    }

    fn keep_nodes(&mut self) {
        for pods in self.guest.pods.values_mut() {
            pods.retain(|pod| !pod.deleting);
        }
        let own = self
            .cluster
            .as_ref()
            .is_some_and(|c| c.spec.addons.cni == Cni::None);
        let network = own || self.guest.cni.is_some();
        let names: Vec<String> = self.guest.nodes.keys().cloned().collect();
        for name in names {
            let ready = self.powered(&name) && network;
            if let Some(node) = self.guest.nodes.get_mut(&name) {
                node.ready = ready;
            }
        }
    }

    /// etcd takes a member out, if a quorum agrees.
    pub(super) fn remove_member(&mut self, id: u64) -> Result<(), String> {
        if !self.quorum() {
            return Err("etcd has no quorum".to_owned());
        }
        let before = self.guest.members.clone();
        self.guest.members.retain(|member| member.id != id);
        if self.quorum() {
            return Ok(());
        }
        // etcd's own strict-reconfig-check.
        self.guest.members = before;
        Err("unhealthy cluster".to_owned())
    }
}
