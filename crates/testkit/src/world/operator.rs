//! The operator: it looks, plans, carries out and reports, with or without mishap.

use std::sync::Arc;

use guestcluster_api::names;
use guestcluster_planner::action::{Action, FirstBoot, Kind, Victim};
use guestcluster_planner::decide::endpoint::server;
use guestcluster_planner::observed::{GuestPod, Observed, Probe};
use guestcluster_planner::wanted::Settings;
use guestcluster_planner::{Plan, Wanted, plan, report};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::guest::TOKEN;
use super::objects::Carries;
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
        // Whoever walks in moves says when it looks.
        let looks = !self.is_in_moves();
        self.last_seen = looks.then(|| Arc::new(self.observe()));
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
                Mishap::None
                | Mishap::StaleView
                | Mishap::OldAnswers
                | Mishap::Late
                | Mishap::StatusLost => (false, true),
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
            Action::AddFinalizer
            | Action::RemoveFinalizer
            | Action::RecordOrdinals(_)
            | Action::RecordDeparture { .. } => {
                self.act_on_cluster(action, status);
            }
            Action::MintAuthority { metadata, .. } => {
                self.create_secret(metadata, Carries::default());
            }
            Action::MintKubeconfig {
                metadata,
                endpoint,
                former,
            } => return self.mint_kubeconfig((metadata, former.as_ref()), endpoint),
            Action::Create(object) => self.create(object),
            Action::Apply(object) => self.apply(object),
            Action::WriteUserData(recipe) => return self.write_user_data(recipe),
            Action::ScrubUserData { secret, .. } => return self.scrub(secret),
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
            Action::MoveLeader { to, .. } => {
                self.reach_guest()?;
                self.guest.leader = Some(*to);
            }
            Action::SetServing {
                machine, out_since, ..
            } => {
                self.set_serving(machine, *out_since);
            }
            Action::RuleOutMigration { machine, .. } => self.rule_out_migration(machine),
            Action::ExtendToken { .. }
            | Action::DeleteToken { .. }
            | Action::LabelNode { .. }
            | Action::WriteConfiguration { .. }
            | Action::MoveEndpoint { .. }
            | Action::UpgradeAddons { .. }
            | Action::SetDrain { .. }
            | Action::Evict { .. }
            | Action::DeleteNode { .. }
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

    pub(super) fn reach_guest(&self) -> Result<(), String> {
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
                for (key, value) in labels {
                    match value {
                        Some(value) => node.labels.insert(key.clone(), value.clone()),
                        None => node.labels.remove(key),
                    };
                }
            }
            Action::ApplyCni { digest, .. } => self.guest.cni = Some(digest.clone()),
            Action::WriteConfiguration {
                digest,
                endpoint,
                names,
            } => {
                self.guest.configuration = Some(digest.clone());
                self.guest.names = names.iter().cloned().collect();
                self.guest.names.insert(endpoint.0.clone());
            }
            Action::MoveEndpoint { server } => self.guest.server = Some(server.clone()),
            Action::UpgradeAddons { version } => self.guest.addons = Some(version.clone()),
            Action::SetDrain { node, uid, since } => {
                let known = self.guest.nodes.get_mut(node).filter(|n| n.uid == *uid);
                let node = known.ok_or("no such Node")?;
                node.unschedulable = since.is_some();
                node.drained_since = *since;
            }
            Action::Evict { node, pods } => self.evict_pods(node, pods),
            Action::DeleteNode { node, uid } => {
                self.guest
                    .nodes
                    .retain(|name, n| name != node || n.uid != *uid);
                self.guest.pods.remove(node);
            }
            _ => {}
        }
        Ok(())
    }

    fn rule_out_migration(&mut self, machine: &str) {
        let instance = self.objects.instances.get_mut(machine);
        if let Some(pod) = instance.and_then(|instance| instance.launcher.as_mut()) {
            pod.migration_ruled_out = true;
        }
    }

    fn set_serving(&mut self, machine: &str, out_since: Option<Timestamp>) {
        let instance = self.objects.instances.get_mut(machine);
        if let Some(pod) = instance.and_then(|instance| instance.launcher.as_mut()) {
            pod.serving = out_since.is_none();
            pod.out_since = out_since;
        }
    }

    /// A PodDisruptionBudget refuses now and then.
    fn evict_pods(&mut self, node: &str, pods: &[GuestPod]) {
        let refused: Vec<bool> = pods.iter().map(|_| self.chance.one_in(4)).collect();
        for (pod, refused) in pods.iter().zip(refused) {
            let there = self.guest.pods.get_mut(node).into_iter().flatten();
            for found in there.filter(|found| found.name == pod.name) {
                found.deleting = !refused;
                found.refused = refused.then(|| "the disruption budget web".to_owned());
            }
        }
    }

    fn scrub(&mut self, victim: &Victim) -> Result<(), String> {
        if self.is_same(victim) != Some(true) {
            return Err("conflict".to_owned());
        }
        self.touch(Kind::Secret, &victim.name);
        if let Some(secret) = self.objects.secrets.get_mut(&victim.name) {
            secret.scrubbed = true;
        }
        Ok(())
    }

    fn mint_kubeconfig(
        &mut self,
        (metadata, former): (&Value, Option<&Victim>),
        endpoint: &(String, u16),
    ) -> Result<(), String> {
        let server = Some(server(endpoint));
        let Some(former) = former else {
            let token_id = None;
            self.create_secret(metadata, Carries { token_id, server });
            return Ok(());
        };
        if self.is_same(former) != Some(true) {
            return Err("conflict".to_owned());
        }
        self.touch(Kind::Secret, &former.name);
        if let Some(secret) = self.objects.secrets.get_mut(&former.name) {
            secret.server = server;
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
        let carries = Carries {
            token_id: Some(token.clone()),
            server: Some(server(&recipe.endpoint)),
        };
        if self.create_secret(&recipe.metadata, carries) {
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
        let believed = known && (1..=PATIENCE).contains(&self.failures) && !self.is_in_moves();
        match mishap {
            Mishap::StaleView => answered(Observed::clone(old), &fresh),
            Mishap::Late => Observed::clone(old),
            Mishap::OldAnswers if known => answered(fresh, old),
            _ if believed => answered(fresh, old),
            _ => fresh,
        }
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
