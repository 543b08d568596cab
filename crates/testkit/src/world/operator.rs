//! The operator: it looks, plans, carries out and reports, with or without mishap.

use guestcluster_api::names;
use guestcluster_planner::action::{Action, FirstBoot, Kind};
use guestcluster_planner::observed::{Etcd, EtcdMember, Guest, Observed, Probe};
use guestcluster_planner::wanted::Settings;
use guestcluster_planner::{Plan, Wanted, plan, report};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::guest::{Member, TOKEN};
use super::{Fault, Mishap, World};

/// How many failures in a row are not believed.
const PATIENCE: u32 = 2;

impl World {
    /// One visit of the operator. What it planned is returned, and checked against the laws.
    pub fn reconcile(&mut self, mishap: Mishap) -> Plan {
        let Some(cluster) = self.cluster.clone() else {
            return Plan::default();
        };
        let previous = cluster.status.clone().unwrap_or_default();
        let Ok(wanted) = Wanted::parse(&cluster, &Settings::default()) else {
            self.laws.complain("the specification cannot be read");
            return Plan::default();
        };
        let seen = self.view(mishap);
        let now = self.now;
        let plan = plan(&wanted, &seen, &previous, now);
        self.check_plan(&wanted, &seen, &plan);
        let mut status = report::status(&wanted, &seen, &plan, &previous, now);
        keep_times(&mut status, &previous);
        self.carry_out((&wanted, &seen), &plan, (&status, mishap));
        let crashed = matches!(mishap, Mishap::Crash(_) | Mishap::StatusLost);
        if let (Some(cluster), false) = (&mut self.cluster, crashed) {
            cluster.status = Some(status);
        }
        self.last_seen = Some(self.observe());
        plan
    }

    fn carry_out(
        &mut self,
        (wanted, seen): (&Wanted, &Observed),
        plan: &Plan,
        (status, mishap): (&guestcluster_api::GuestClusterStatus, Mishap),
    ) {
        for (number, action) in plan.actions.iter().enumerate() {
            let (stops, takes_effect) = match mishap {
                Mishap::Crash(at) | Mishap::Refused(at) => (number == at, number != at),
                Mishap::LostAnswer(at) => (number == at, true),
                Mishap::None | Mishap::StaleView | Mishap::OldAnswers | Mishap::StatusLost => {
                    (false, true)
                }
            };
            let outcome = if takes_effect {
                self.check_action((wanted, seen), action);
                let before = self.quorum();
                let outcome = self.act(action, status);
                self.check_quorum(before, action);
                outcome
            } else {
                Ok(())
            };
            let effect = if takes_effect { "" } else { " without effect" };
            self.note(format!(
                "{} {}{effect} {outcome:?}",
                action.kind(),
                action.subject()
            ));
            if stops || outcome.is_err() {
                return;
            }
        }
    }

    /// What an action does.
    fn act(
        &mut self,
        action: &Action,
        status: &guestcluster_api::GuestClusterStatus,
    ) -> Result<(), String> {
        match action {
            Action::AddFinalizer | Action::RemoveFinalizer | Action::RecordOrdinals(_) => {
                self.act_on_cluster(action, status);
            }
            Action::MintAuthority { metadata, .. } | Action::MintKubeconfig { metadata, .. } => {
                self.create_secret(metadata, None);
            }
            Action::Create(object) => self.create(object),
            Action::Apply(object) => self.apply(object),
            Action::WriteUserData(recipe) => return self.write_user_data(recipe),
            Action::ScrubUserData { secret, .. } => {
                if self.is_same(secret) != Some(true) {
                    return Err("conflict".to_owned());
                }
                self.touch(Kind::Secret, &secret.name);
                if let Some(secret) = self.objects.secrets.get_mut(&secret.name) {
                    secret.scrubbed = true;
                }
            }
            Action::Delete { object, .. } => match self.is_same(object) {
                None => {}
                Some(true) => self.delete(object.kind, &object.name),
                Some(false) => return Err("conflict".to_owned()),
            },
            Action::RetainDisk { object, labels } => {
                if self.objects.claims.remove(&object.name).is_some() {
                    self.kept.insert(object.name.clone(), labels.clone());
                }
                self.objects.disks.remove(&object.name);
            }
            Action::RemoveEtcdMember { id, .. } => {
                self.reach_guest()?;
                return self.remove_member(*id);
            }
            Action::ExtendToken { .. }
            | Action::DeleteToken { .. }
            | Action::LabelNode { .. }
            | Action::ApplyCni { .. } => return self.act_in_guest(action),
        }
        Ok(())
    }

    fn act_on_cluster(&mut self, action: &Action, status: &guestcluster_api::GuestClusterStatus) {
        let Some(cluster) = &mut self.cluster else {
            return;
        };
        match action {
            Action::AddFinalizer => {
                cluster.metadata.finalizers =
                    Some(vec![guestcluster_api::labels::FINALIZER.to_owned()]);
            }
            Action::RemoveFinalizer => {
                cluster.metadata.finalizers = None;
                if cluster.metadata.deletion_timestamp.is_some() {
                    self.cluster = None;
                }
            }
            _ => cluster.status = Some(status.clone()),
        }
    }

    fn reach_guest(&self) -> Result<(), String> {
        if self.has(Fault::GuestCut) || !self.api_answers() {
            return Err("the guest does not answer".to_owned());
        }
        Ok(())
    }

    fn act_in_guest(&mut self, action: &Action) -> Result<(), String> {
        self.reach_guest()?;
        match action {
            Action::ExtendToken { token } => {
                let expiry = self.now + TOKEN;
                let known = self.guest.tokens.get_mut(token).ok_or("no such token")?;
                *known = expiry;
            }
            Action::DeleteToken { token } => {
                self.guest.tokens.remove(token);
            }
            Action::LabelNode { node, labels, .. } => {
                let node = self.guest.nodes.get_mut(node).ok_or("no such Node")?;
                node.labels.extend(labels.clone());
            }
            Action::ApplyCni { digest, .. } => self.guest.cni = Some(digest.clone()),
            _ => {}
        }
        Ok(())
    }

    fn write_user_data(
        &mut self,
        recipe: &guestcluster_planner::action::UserData,
    ) -> Result<(), String> {
        let token = format!("t{:05}", self.id());
        if recipe.boot != FirstBoot::Init {
            self.reach_guest()?;
            let expiry = self.now + TOKEN;
            self.guest.tokens.insert(token.clone(), expiry);
        }
        if self.create_secret(&recipe.metadata, Some(token.clone())) {
            let name = names::user_data_secret(&recipe.machine);
            self.objects.recipes.insert(name, recipe.clone());
        } else {
            self.guest.tokens.remove(&token);
        }
        Ok(())
    }

    /// What the operator looks at: the world, or with a stale watch objects as they were when it
    /// last looked. Our own writes are never missing: the operator waits for them. What the guest
    /// said may be old as well: it is not asked at every visit, and one failure is not believed.
    fn view(&mut self, mishap: Mishap) -> Observed {
        let fresh = self.observe();
        let silent = matches!(fresh.guest, Probe::Unreachable(_));
        self.failures = if silent { self.failures + 1 } else { 0 };
        let Some(old) = &self.last_seen else {
            return fresh;
        };
        let known = old.guest.known().is_some() && fresh.guest != Probe::NotAsked;
        let believed = known && (1..=PATIENCE).contains(&self.failures);
        match mishap {
            Mishap::StaleView => answered(old.clone(), &fresh),
            Mishap::OldAnswers if known => answered(fresh, old),
            _ if believed => answered(fresh, old),
            _ => fresh,
        }
    }

    /// The world as the operator sees it.
    pub fn observe(&self) -> Observed {
        let objects = &self.objects;
        let mut infra = self.infra.clone();
        for host in &mut infra.hosts {
            host.ready = !self.hosts_down.contains(&host.name);
        }
        let asked = self.is_asked();
        Observed {
            infra,
            secrets: objects.secrets.clone(),
            services: objects.services.clone(),
            slices: objects.slices.clone(),
            disks: objects.disks.clone(),
            claims: objects.claims.clone(),
            vms: objects.vms.clone(),
            instances: objects.instances.clone(),
            image_shared: self.image_shared,
            damaged_secrets: self.damaged.clone(),
            taken: self.taken.clone(),
            init_unfinished: asked && !self.guest.complete,
            guest: if asked {
                self.ask_guest()
            } else {
                Probe::NotAsked
            },
            etcd: if asked {
                self.ask_etcd()
            } else {
                Probe::NotAsked
            },
            consoles: self.consoles(),
        }
    }

    /// The operator asks a guest that was initialised, or whose control plane serves.
    fn is_asked(&self) -> bool {
        let Some(cluster) = &self.cluster else {
            return false;
        };
        let serves = |(name, vm): (&String, &guestcluster_planner::observed::Vm)| {
            vm.ready
                && super::kubevirt::role_of(name) == guestcluster_api::labels::Role::ControlPlane
        };
        let deleting = cluster.metadata.deletion_timestamp.is_some();
        !deleting && (self.status().initialised || self.objects.vms.iter().any(serves))
    }

    fn ask_guest(&self) -> Probe<Guest> {
        if let Err(why) = self.reach_guest() {
            // No two attempts fail in the same words.
            return Probe::Unreachable(format!("{why}, asked at {}", self.now));
        }
        let tokens = self
            .guest
            .tokens
            .iter()
            .map(|(id, expiry)| (id.clone(), Some(*expiry)));
        Probe::Known(Guest {
            nodes: self.guest.nodes.clone(),
            tokens: tokens.collect(),
            cni: self.guest.cni.clone(),
        })
    }

    fn ask_etcd(&self) -> Probe<Etcd> {
        let control_plane = |name: &&String| {
            super::kubevirt::role_of(name) == guestcluster_api::labels::Role::ControlPlane
        };
        let running = |name: &String| {
            self.objects
                .instances
                .get(name)
                .is_some_and(|i| i.phase == "Running")
        };
        let doors = self
            .objects
            .services
            .keys()
            .filter(control_plane)
            .any(running);
        if !doors {
            return Probe::NotAsked;
        }
        if self.has(Fault::GuestCut) || !self.quorum() {
            return Probe::Unreachable("no member answers".to_owned());
        }
        let members: Vec<EtcdMember> = self
            .guest
            .members
            .iter()
            .map(|member| self.show_member(member))
            .collect();
        let leader = members
            .iter()
            .find(|m| m.healthy && !m.learner)
            .map(|m| m.id);
        Probe::Known(Etcd { members, leader })
    }

    fn show_member(&self, member: &Member) -> EtcdMember {
        let service = self.objects.services.get(&member.machine);
        let address = service
            .and_then(|service| service.cluster_ip.clone())
            .unwrap_or_default();
        EtcdMember {
            id: member.id,
            name: if member.started {
                member.machine.clone()
            } else {
                String::new()
            },
            peer_urls: vec![format!("https://{address}:2380")],
            learner: member.learner,
            healthy: self.etcd_runs(member),
        }
    }

    fn consoles(&self) -> std::collections::BTreeMap<String, Vec<String>> {
        let booting = |name: &String| {
            let document = self.objects.secrets.get(&names::user_data_secret(name));
            self.powered(name) && document.is_some_and(|secret| !secret.scrubbed)
        };
        let machines = self.machines.iter().filter(|(name, _)| booting(name));
        machines
            .map(|(name, machine)| (name.clone(), machine.console.clone()))
            .collect()
    }
}

/// Objects as in one look, and the guest's answers as in another.
fn answered(objects: Observed, answers: &Observed) -> Observed {
    Observed {
        guest: answers.guest.clone(),
        etcd: answers.etcd.clone(),
        init_unfinished: answers.init_unfinished,
        ..objects
    }
}

/// A status that differs in times alone is not written.
fn keep_times(
    status: &mut guestcluster_api::GuestClusterStatus,
    previous: &guestcluster_api::GuestClusterStatus,
) {
    for condition in &mut status.conditions {
        let before = previous
            .conditions
            .iter()
            .find(|c| c.type_ == condition.type_);
        if let Some(before) = before {
            let time: &Time = &before.last_transition_time;
            let same = before.status == condition.status;
            if same {
                condition.last_transition_time = time.clone();
            }
        }
    }
}
