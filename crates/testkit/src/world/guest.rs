//! Machines and the guest that they form: first boots, kubeadm, etcd's membership, Nodes, tokens.

use std::collections::BTreeMap;

use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_api::spec::Cni;
use guestcluster_planner::action::FirstBoot;
use guestcluster_planner::observed::GuestNode;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::World;
use super::kubevirt::role_of;

/// How long kubeadm looks for the guest's API.
const DISCOVERY: SignedDuration = SignedDuration::from_mins(10);
/// How long it waits while etcd has another learner.
const ETCD: SignedDuration = SignedDuration::from_mins(5);
/// How long a bootstrap token lives.
pub(super) const TOKEN: SignedDuration = SignedDuration::from_mins(15);

const ROLE: &str = "node-role.kubernetes.io/control-plane";

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
    token: Option<String>,
    since: Timestamp,
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
        runs && !self.is_stranded(name) && self.machines.contains_key(name)
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

    pub(super) fn votes(&self, name: &str) -> bool {
        self.guest
            .members
            .iter()
            .any(|member| member.machine == name && !member.learner)
    }

    /// Its API server answers.
    fn serves(&self, name: &str) -> bool {
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
        let ready = |name: &String| self.objects.vms.get(name).is_some_and(|vm| vm.ready);
        self.objects
            .vms
            .keys()
            .filter(control_plane)
            .any(|name| ready(name) && self.serves(name))
    }

    pub(super) fn run_machines(&mut self) {
        let names: Vec<String> = self.machines.keys().cloned().collect();
        for name in &names {
            if self.powered(name) && !self.random.one_in(3) {
                self.boot(name);
            }
        }
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

    fn stage(&mut self, name: &str, stage: Stage) {
        self.note(format!("{name} reaches {stage:?}"));
        if let Some(machine) = self.machines.get_mut(name) {
            machine.stage = stage;
        }
    }

    fn fail(&mut self, name: &str, step: &str) {
        self.note(format!("{name} fails: {step}"));
        if let Some(machine) = self.machines.get_mut(name) {
            machine.kubeadm = false;
            machine
                .console
                .push("guestcluster: | error execution phase".to_owned());
            machine
                .console
                .push(format!("guestcluster: bootstrap failed: {step}"));
        }
    }

    /// One step of a machine that runs.
    fn boot(&mut self, name: &str) {
        let Some(machine) = self.machines.get(name).cloned() else {
            return;
        };
        // etcd and the kubelet go on without kubeadm, whatever became of it.
        if machine.stage >= Stage::Underway {
            self.start_member(name);
        }
        match (machine.kubeadm, machine.stage, machine.boot) {
            (true, Stage::Fresh, _) => self.read_document(name),
            (true, stage, Some(FirstBoot::Init)) => self.init(name, stage),
            (true, Stage::Started, Some(_)) => self.discover(name, &machine),
            (true, Stage::Underway, Some(FirstBoot::JoinControlPlane)) => self.promote(name),
            (_, Stage::Underway, Some(FirstBoot::JoinWorker))
            | (_, Stage::Voter, Some(FirstBoot::JoinControlPlane)) => {
                if self.may_enter(&machine) {
                    self.register(name);
                }
            }
            (true, Stage::Node, Some(_)) => {
                self.mark(name);
                self.stage(name, Stage::Done);
            }
            _ => {}
        }
    }

    fn read_document(&mut self, name: &str) {
        let secret = names::user_data_secret(name);
        let scrubbed = self
            .objects
            .secrets
            .get(&secret)
            .is_none_or(|secret| secret.scrubbed);
        let Some(recipe) = self.objects.recipes.get(&secret).filter(|_| !scrubbed) else {
            self.fail(name, "this machine has joined before, but its disk is new");
            return;
        };
        let boot = recipe.boot;
        let token = self
            .objects
            .secrets
            .get(&secret)
            .and_then(|secret| secret.token_id.clone());
        let now = self.now;
        if let Some(machine) = self.machines.get_mut(name) {
            machine.boot = Some(boot);
            machine.token = token;
            machine.since = now;
        }
        self.stage(name, Stage::Started);
    }

    fn init(&mut self, name: &str, stage: Stage) {
        match stage {
            Stage::Started => {
                self.check_init(name);
                let (epoch, id) = (self.id(), self.id());
                let machine = name.to_owned();
                let member = Member {
                    id,
                    machine,
                    learner: false,
                    started: true,
                };
                self.guest = Guest {
                    epoch,
                    members: vec![member],
                    ..Guest::default()
                };
                self.enter_epoch(name);
                self.stage(name, Stage::Voter);
            }
            Stage::Voter if self.serves(name) => self.register(name),
            Stage::Node if self.serves(name) => {
                self.mark(name);
                let token = self.machines.get(name).and_then(|m| m.token.clone());
                let expiry = self.now + TOKEN;
                self.guest.tokens.extend(token.map(|token| (token, expiry)));
                self.guest.complete = true;
                self.stage(name, Stage::Done);
            }
            _ => {}
        }
    }

    fn enter_epoch(&mut self, name: &str) {
        let epoch = self.guest.epoch;
        if let Some(machine) = self.machines.get_mut(name) {
            machine.epoch = epoch;
        }
    }

    /// kubeadm finds the guest, and a control plane puts its learner into etcd.
    fn discover(&mut self, name: &str, machine: &Machine) {
        let waited = self.now.duration_since(machine.since);
        if !(self.may_enter(machine) && self.guest.complete) {
            if waited > DISCOVERY {
                self.fail(name, "kubeadm join");
            }
            return;
        }
        if machine.boot == Some(FirstBoot::JoinControlPlane) {
            if self.guest.members.iter().any(|member| member.learner) || !self.quorum() {
                if waited > ETCD {
                    self.fail(name, "kubeadm join");
                }
                return;
            }
            let id = self.id();
            let machine = name.to_owned();
            self.guest.members.push(Member {
                id,
                machine,
                learner: true,
                started: false,
            });
        }
        self.enter_epoch(name);
        self.stage(name, Stage::Underway);
    }

    fn start_member(&mut self, name: &str) {
        let quorum = self.quorum();
        let mut own = self
            .guest
            .members
            .iter_mut()
            .filter(|member| member.machine == name);
        if let Some(member) = own.find(|member| !member.started && quorum) {
            member.started = true;
        }
    }

    fn promote(&mut self, name: &str) {
        let quorum = self.quorum();
        let runs = self
            .guest
            .members
            .iter()
            .any(|m| m.machine == name && self.etcd_runs(m));
        let own = self
            .guest
            .members
            .iter_mut()
            .find(|member| member.machine == name);
        match own {
            None => self.fail(name, "kubeadm join"),
            Some(member) if runs && quorum => {
                member.learner = false;
                self.stage(name, Stage::Voter);
            }
            Some(_) => {}
        }
    }

    /// Its token is good and the API answers.
    fn may_enter(&self, machine: &Machine) -> bool {
        let expiry = machine
            .token
            .as_ref()
            .and_then(|token| self.guest.tokens.get(token));
        self.api_answers() && expiry.is_some_and(|expiry| *expiry > self.now)
    }

    fn register(&mut self, name: &str) {
        let node = GuestNode {
            uid: format!("uid-{}", self.id()),
            kubelet_version: "v1.36.3".to_owned(),
            ..GuestNode::default()
        };
        self.guest.nodes.insert(name.to_owned(), node);
        self.enter_epoch(name);
        self.stage(name, Stage::Node);
    }

    fn mark(&mut self, name: &str) {
        if role_of(name) == Role::Worker {
            return;
        }
        if let Some(node) = self.guest.nodes.get_mut(name) {
            node.labels.insert(ROLE.to_owned(), String::new());
            node.taints.insert(ROLE.to_owned());
        }
    }

    /// etcd takes a member out, if a quorum agrees.
    pub(super) fn remove_member(&mut self, id: u64) -> Result<(), String> {
        if !self.quorum() {
            return Err("etcd has no quorum".to_owned());
        }
        self.guest.members.retain(|member| member.id != id);
        Ok(())
    }
}
