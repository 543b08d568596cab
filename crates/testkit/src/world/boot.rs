//! First boots: what kubeadm does on a machine, step by step, and what goes on without it.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_planner::action::FirstBoot;
use guestcluster_planner::observed::{GuestNode, GuestPod};
use k8s_openapi::jiff::SignedDuration;

use super::World;
use super::guest::{Guest, Machine, Member, Stage, TOKEN};
use super::kubevirt::role_of;

/// How long kubeadm looks for the guest's API.
const DISCOVERY: SignedDuration = SignedDuration::from_mins(10);
/// How long it waits while etcd has another learner.
const ETCD: SignedDuration = SignedDuration::from_mins(5);
const ROLE: &str = "node-role.kubernetes.io/control-plane";

impl World {
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
    pub(super) fn boot(&mut self, name: &str) {
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
            | (_, Stage::Voter, Some(FirstBoot::JoinControlPlane))
                if self.may_enter(&machine) =>
            {
                self.register(name);
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
        let version = self.images.get(name).cloned();
        if let Some(machine) = self.machines.get_mut(name) {
            machine.version = version.unwrap_or_default();
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
                let names = self.names_of_init(name);
                let told = self.objects.secrets.get(&names::user_data_secret(name));
                let server = told.and_then(|secret| secret.server.clone());
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
                    names,
                    server,
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

    /// Names that `kubeadm init` gives to certificates.
    fn names_of_init(&self, name: &str) -> BTreeSet<String> {
        let recipe = self.objects.recipes.get(&names::user_data_secret(name));
        let host = recipe.map(|recipe| recipe.endpoint.0.clone());
        let spec = self.cluster.as_ref().map(|cluster| &cluster.spec);
        let sans = spec.map(|spec| &spec.control_plane.endpoint.cert_sans);
        sans.into_iter().flatten().cloned().chain(host).collect()
    }

    fn enter_epoch(&mut self, name: &str) {
        let epoch = self.guest.epoch;
        let names = self.guest.names.clone();
        if let Some(machine) = self.machines.get_mut(name) {
            machine.epoch = epoch;
            machine.names = names;
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
            kubelet_version: self
                .machines
                .get(name)
                .map_or_else(String::new, |machine| machine.version.clone()),
            labels: self.own_labels(name),
            ..GuestNode::default()
        };
        let pods = ["web", "dns"].map(|pod| GuestPod {
            namespace: "default".to_owned(),
            name: format!("{pod}-{name}"),
            due: true,
            ..GuestPod::default()
        });
        self.guest.pods.insert(name.to_owned(), pods.into());
        self.guest.nodes.insert(name.to_owned(), node);
        self.enter_epoch(name);
        self.stage(name, Stage::Node);
    }

    /// Labels that the kubelet gives its Node when it registers.
    fn own_labels(&self, name: &str) -> BTreeMap<String, String> {
        let document = self.objects.secrets.get(&names::user_data_secret(name));
        let pool = document.and_then(|secret| secret.meta.pool.clone());
        let label = |pool| (guestcluster_api::labels::NODE_POOL.to_owned(), pool);
        pool.map(label).into_iter().collect()
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
}
