//! What must hold at any moment, whatever happens.

mod moving;
mod pace;

use std::collections::BTreeSet;

use guestcluster_api::labels::Role;
use guestcluster_api::{labels, names};
use guestcluster_planner::action::{Action, Kind, Object, UserData, Victim};
use guestcluster_planner::machines::recorded;
use guestcluster_planner::observed::Observed;
use guestcluster_planner::{Plan, Wanted, plan};
use serde_json::Value;

use super::World;
use super::guest::Stage;
use super::kubevirt::role_of;

/// What is remembered of the past.
#[derive(Clone, Debug, Default)]
pub(super) struct Laws {
    /// Machines that have had an object.
    begun: BTreeSet<String>,
    /// Machines of which nothing is left: their names are used up.
    over: BTreeSet<String>,
    /// Machines that the operator took away.
    given_up: BTreeSet<String>,
    /// Control-plane machines that are off by the operator's decision.
    down: BTreeSet<String>,
    broken: Vec<String>,
}

impl Laws {
    pub(super) fn given_up(&self) -> impl Iterator<Item = &String> {
        self.given_up.iter()
    }

    pub(super) fn broken(&self) -> &[String] {
        &self.broken
    }

    pub(super) fn complain(&mut self, what: impl Into<String>) {
        self.broken.push(what.into());
    }
}

impl World {
    fn complain(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.note(format!("BROKEN: {what}"));
        self.laws.complain(what);
    }

    /// Laws about a plan as a whole.
    pub(super) fn check_plan(&mut self, wanted: &Wanted, seen: &Observed, made: &Plan) {
        let previous = self.status();
        if plan(wanted, seen, &previous, self.now) != *made {
            self.complain("equal input gave another plan");
        }
        if wanted.paused && !made.actions.is_empty() {
            self.complain("a paused cluster was written to");
        }
        let upkeep = |action: &Action| matches!(action, Action::Apply(object) if object.kind == Kind::EndpointSlice);
        let touched = !made.actions.iter().all(upkeep);
        if wanted.protected && wanted.identity.deleting && touched {
            self.complain("a protected cluster was touched by its deletion");
        }
        let disruptive = made
            .actions
            .iter()
            .filter(|action| action.disruptive())
            .count();
        if disruptive > 1 && !wanted.identity.deleting {
            self.complain(format!("{disruptive} disruptive actions in one plan"));
        }
        self.check_unasked((wanted, seen), made);
        self.forget_machines();
    }

    /// Machines of which the last object went.
    fn forget_machines(&mut self) {
        let present: BTreeSet<String> = self.objects.machines().cloned().collect();
        let over = self.laws.begun.difference(&present).cloned();
        self.laws.over.extend(over.collect::<Vec<_>>());
    }

    /// Laws about one action, at the moment at which it is carried out.
    pub(super) fn check_action(&mut self, (wanted, seen): (&Wanted, &Observed), action: &Action) {
        if !wanted.identity.deleting {
            self.check_pace(seen, action);
        }
        match action {
            Action::Create(object) | Action::Apply(object) => self.check_object(object),
            Action::WriteUserData(recipe) => {
                self.check_name(&recipe.metadata);
                self.check_address(wanted, recipe);
            }
            Action::ScrubUserData { machine, .. } => self.check_scrub(machine),
            // A machine stays where it is.
            Action::Delete { object, .. }
                if matches!(object.kind, Kind::Migration | Kind::MigrationPolicy) => {}
            Action::Delete { object, .. } if !wanted.identity.deleting => {
                self.check_delete(seen, object);
            }
            Action::RemoveEtcdMember { id, machine } => self.check_removal(*id, machine),
            Action::MintKubeconfig { endpoint, .. } => self.check_named(&endpoint.0),
            Action::MoveEndpoint { server } => {
                let host = server.rsplit_once(':').map_or("", |(host, _)| host);
                self.check_named(host);
            }
            Action::SetServing {
                machine,
                out_since: None,
                ..
            } => self.check_serving(machine),
            Action::RetainDisk { object, .. } if !wanted.identity.deleting => {
                self.complain(format!("{} was let go without a deletion", object.name));
            }
            _ => {}
        }
    }

    /// A machine boots with the address of its own Service, where it is to have one, and with none else.
    fn check_address(&mut self, wanted: &Wanted, recipe: &UserData) {
        let pool = wanted.pool(&recipe.pool);
        let needs = pool.is_some_and(|pool| wanted.has_service_address(pool.role));
        let service = self.objects.services.get(&recipe.machine);
        let address = service.and_then(|service| service.cluster_ip.as_ref());
        if recipe.address.as_ref() != address.filter(|_| needs) || needs != recipe.address.is_some()
        {
            let machine = &recipe.machine;
            self.complain(format!("{machine} boots with address {:?}", recipe.address));
        }
    }

    /// Nobody is told a name that not every API server of the endpoint can answer to.
    fn check_named(&mut self, host: &str) {
        // A first machine that is given up takes its guest along.
        let serves = |name: &&String| {
            let vm = self.objects.vms.get(*name);
            let stays = vm.is_some_and(|vm| !vm.meta.deleting) && self.status().initialised;
            stays && role_of(name) == Role::ControlPlane && self.serves(name)
        };
        let serving = self.machines.keys().filter(serves);
        let vouches = |name: &&String| self.machines[*name].names.contains(host);
        let strangers: Vec<String> = serving.filter(|n| !vouches(n)).cloned().collect();
        if !strangers.is_empty() {
            let strangers = strangers.join(", ");
            self.complain(format!(
                "{host} is given out, and {strangers} cannot answer to it"
            ));
        }
    }

    fn check_object(&mut self, object: &Object) {
        let machine = object.body["metadata"]["labels"][labels::MACHINE].as_str();
        let is_new =
            object.kind == Kind::DataVolume && !self.objects.disks.contains_key(&object.name);
        if let Some(machine) =
            machine.filter(|machine| is_new && self.machines.contains_key(*machine))
        {
            let machine = machine.to_owned();
            self.complain(format!("{machine} got another disk under its old name"));
        }
        self.check_name(&object.body["metadata"]);
        if let Some(machine) = machine.filter(|_| object.kind == Kind::Migration) {
            self.check_migration(machine);
        }
    }

    /// A name is recorded before its first object, and used once.
    fn check_name(&mut self, metadata: &Value) {
        let labels = &metadata["labels"];
        let (Some(machine), Some(pool)) = (
            labels[labels::MACHINE].as_str(),
            labels[labels::POOL].as_str(),
        ) else {
            return;
        };
        let status = self.status();
        let last = if pool == names::CONTROL_PLANE_POOL {
            status.control_plane.last_ordinal
        } else {
            status
                .workers
                .iter()
                .find(|p| p.name == pool)
                .map_or(0, |p| p.last_ordinal)
        };
        let cluster = labels[labels::CLUSTER].as_str().unwrap_or_default();
        let ordinal = names::ordinal(cluster, pool, machine);
        if ordinal.is_none_or(|ordinal| ordinal > last) {
            self.complain(format!(
                "{machine} was not recorded before its first object"
            ));
        }
        if self.laws.over.contains(machine) {
            self.complain(format!("the name {machine} was used twice"));
        }
        self.laws.begun.insert(machine.to_owned());
    }

    fn check_scrub(&mut self, machine: &str) {
        let joined = self
            .machines
            .get(machine)
            .is_some_and(|m| m.stage >= Stage::Node);
        if !joined || !self.guest.complete {
            self.complain(format!("{machine} was scrubbed before it joined"));
        }
    }

    /// Outside a deletion only what never joined is taken away, and nothing unasked.
    fn check_delete(&mut self, seen: &Observed, object: &Victim) {
        // The server refuses to delete another object than the one that was seen.
        if self.is_same(object) != Some(true) {
            return;
        }
        let Some(machine) = self.machine_of(object) else {
            self.complain(format!(
                "{} was deleted, which is no machine's",
                object.name
            ));
            return;
        };
        let document = names::user_data_secret(&machine);
        let unused =
            !self.machines.contains_key(&machine) && !self.objects.secrets.contains_key(&document);
        if object.kind != Kind::Instance {
            self.laws.given_up.insert(machine.clone());
        }
        if object.kind == Kind::DataVolume && unused {
            return;
        }
        let initialised = self.status().initialised;
        if initialised && seen.guest.known().is_none() {
            self.complain(format!(
                "{} was deleted while the guest was silent",
                object.name
            ));
        }
        let control_plane = role_of(&machine) == Role::ControlPlane;
        if control_plane && initialised && seen.etcd.known().is_none() {
            self.complain(format!("{} was deleted while etcd was silent", object.name));
        }
        let moves = object.kind == Kind::Instance;
        if moves {
            return self.check_move(&machine);
        }
        if initialised && self.votes(&machine) {
            self.complain(format!(
                "{} was deleted while etcd counts on it",
                object.name
            ));
        }
        self.check_taken(&machine, &object.name);
    }

    /// What is taken away was no part of the guest, or status has said that it leaves.
    fn check_taken(&mut self, machine: &str, object: &str) {
        let done =
            |m: &super::guest::Machine| m.stage == Stage::Done && m.epoch == self.guest.epoch;
        let leaves = self.is_told_to_leave(machine);
        let initialised = self.status().initialised;
        if initialised && !leaves && self.machines.get(machine).is_some_and(done) {
            self.complain(format!("{object} was deleted though {machine} has joined"));
        }
        let strategy = self
            .objects
            .vms
            .get(machine)
            .and_then(|vm| vm.run_strategy.as_deref());
        // One that is out of etcd for good cannot be of use to anybody.
        let is_out = leaves && role_of(machine) == Role::ControlPlane && !self.votes(machine);
        if strategy.is_some_and(|strategy| strategy != "Always") && !is_out {
            self.complain(format!("{machine}, which a person stopped, was taken away"));
        }
        let told = recorded(&self.status())
            .any(|m| m.name == machine && matches!(m.phase.as_str(), "Failed" | "Leaving"))
            || leaves;
        if !told {
            self.complain(format!("{machine} was taken away before status told of it"));
        }
    }

    fn is_told_to_leave(&self, machine: &str) -> bool {
        recorded(&self.status()).any(|m| m.name == machine && m.leaving.is_some())
    }

    fn check_serving(&mut self, machine: &str) {
        let instance = self.objects.instances.get(machine);
        if instance.is_some_and(|instance| instance.meta.deleting) {
            self.complain(format!(
                "{machine} was put into the endpoint while it goes off"
            ));
        }
    }

    fn machine_of(&self, object: &Victim) -> Option<String> {
        let objects = &self.objects;
        let meta = match object.kind {
            Kind::VirtualMachine => objects.vms.get(&object.name).map(|o| &o.meta),
            Kind::Instance => objects.instances.get(&object.name).map(|o| &o.meta),
            Kind::Migration => objects
                .migrations
                .get(&object.name)
                .map(|t| &t.migration.meta),
            Kind::MigrationPolicy => None,
            Kind::DataVolume => objects.disks.get(&object.name).map(|o| &o.meta),
            Kind::Claim => objects.claims.get(&object.name),
            Kind::Service => objects.services.get(&object.name).map(|o| &o.meta),
            Kind::EndpointSlice => objects.slices.get(&object.name).map(|o| &o.meta),
            Kind::Secret => objects.secrets.get(&object.name).map(|o| &o.meta),
        };
        meta.and_then(|meta| meta.machine.clone())
    }

    fn check_removal(&mut self, id: u64, machine: &str) {
        let member = self
            .guest
            .members
            .iter()
            .find(|member| member.id == id)
            .cloned();
        let Some(member) = member else {
            return;
        };
        let node = self.guest.nodes.contains_key(&member.machine);
        let leaves = self.is_told_to_leave(&member.machine);
        if leaves && self.powered(&member.machine) {
            self.check_prepared(&member.machine);
        }
        if !member.learner && node && !leaves {
            self.complain(format!(
                "{machine}, which has joined, was taken out of etcd"
            ));
        }
    }

    /// What we do never costs the quorum.
    pub(super) fn check_quorum(&mut self, before: bool, action: &Action) {
        let deleting = self
            .cluster
            .as_ref()
            .is_none_or(|c| c.metadata.deletion_timestamp.is_some());
        let alone = self.guest.members.len() == 1
            && matches!(action, Action::Delete { object, .. }
            if object.kind == Kind::Instance);
        if before && !self.quorum() && !deleting && !alone {
            self.complain(format!(
                "{} {} cost the quorum",
                action.kind(),
                action.subject()
            ));
        }
    }

    /// Only one guest may ever answer at the endpoint.
    pub(super) fn check_init(&mut self, name: &str) {
        let other = |(other, machine): (&String, &super::guest::Machine)| {
            let serves = machine.stage >= Stage::Voter && self.powered(other);
            (other != name && serves).then(|| other.clone())
        };
        let other = self.machines.iter().find_map(other);
        if let Some(other) = other {
            self.complain(format!(
                "{name} initialises while {other} answers at the endpoint"
            ));
        }
        if self.status().initialised {
            self.complain(format!("{name} initialises a guest that was there before"));
        }
    }
}
