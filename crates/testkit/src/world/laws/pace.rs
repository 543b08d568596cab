//! Laws about what goes off by our own decision: told before, never unasked, one at a time.

use std::hash::{Hash, Hasher};

use guestcluster_api::labels::Role;
use guestcluster_planner::action::{Action, Kind, Victim};
use guestcluster_planner::machines::recorded;
use guestcluster_planner::observed::Observed;
use guestcluster_planner::{Plan, Wanted};

use super::super::World;
use super::super::guest::Member;
use super::super::kubevirt::role_of;
use super::Laws;

/// What later complaints depend on; what was broken before is none of it.
impl Hash for Laws {
    fn hash<H: Hasher>(&self, to: &mut H) {
        (&self.begun, &self.over, &self.down).hash(to);
    }
}

impl World {
    /// Nothing goes off as long as the guest, or for a control plane its etcd, has not answered.
    pub(super) fn check_unasked(&mut self, (wanted, seen): (&Wanted, &Observed), made: &Plan) {
        if wanted.identity.deleting || !self.status().initialised {
            return;
        }
        let silent = seen.guest.known().is_none();
        let etcd_silent = seen.etcd.known().is_none();
        for action in made.actions.iter().filter(|action| action.disruptive()) {
            let control_plane = match action {
                Action::Delete { object, .. } => role_of(&object.name) == Role::ControlPlane,
                _ => true,
            };
            if silent || (control_plane && etcd_silent) {
                let (kind, subject) = (action.kind(), action.subject());
                self.complain(format!("{kind} {subject} was planned unasked"));
            }
        }
    }

    /// Laws about one action, at the moment at which it is carried out.
    pub(super) fn check_pace(&mut self, seen: &Observed, action: &Action) {
        match action {
            Action::RemoveEtcdMember { id, .. } => {
                self.check_spared(*id);
                let mut members = self.guest.members.iter();
                let voter = members.find(|member| member.id == *id && !member.learner);
                if let Some(machine) = voter.map(|member| member.machine.clone()) {
                    self.check_alone(&machine);
                }
            }
            Action::Delete { object, .. } if self.is_same(object) == Some(true) => {
                self.check_power(object);
            }
            Action::SetServing {
                machine,
                out_since: Some(_),
                ..
            } => self.check_told(seen, machine),
            Action::SetDrain {
                node,
                since: Some(_),
                ..
            } => self.check_told(seen, node),
            _ => {}
        }
    }

    /// etcd itself refuses a removal that costs the quorum; none may be asked for.
    fn check_spared(&mut self, id: u64) {
        if !self.is_in_moves() || !self.quorum() {
            // Where faults come at any time, one may have come after the look.
            return;
        }
        let stays = |member: &&Member| member.id != id && !member.learner;
        let others = || self.guest.members.iter().filter(stays);
        let healthy = others().filter(|member| self.etcd_runs(member)).count();
        if healthy * 2 <= others().count() {
            self.complain(format!(
                "the removal of member {id:x} would cost the quorum"
            ));
        }
    }

    fn check_power(&mut self, object: &Victim) {
        let name = &object.name;
        let members = &self.guest.members;
        let is_member = members.iter().any(|member| member.machine == *name);
        if object.kind == Kind::VirtualMachine && is_member && self.status().initialised {
            self.complain(format!(
                "VM {name} was deleted while its member was in etcd"
            ));
        }
        if matches!(object.kind, Kind::VirtualMachine | Kind::Instance) {
            self.check_alone(name);
        }
    }

    /// Of the control plane, only one machine that serves is off by our decision.
    fn check_alone(&mut self, machine: &str) {
        let joined = self.guest.nodes.contains_key(machine) && self.serves(machine);
        if role_of(machine) == Role::Worker || !joined {
            return;
        }
        let mut others = self.laws.down.iter().filter(|other| *other != machine);
        if let Some(other) = others.find(|other| self.is_down(other)).cloned() {
            self.complain(format!("{machine} goes off while {other} is off"));
        }
        self.laws.down.insert(machine.to_owned());
    }

    /// Neither back nor gone, and not stuck on a dead host, for which nobody waits.
    fn is_down(&self, machine: &str) -> bool {
        let vm = self.objects.vms.get(machine);
        let instance = self.objects.instances.get(machine);
        let goes = vm.is_none_or(|vm| vm.meta.deleting) || instance.is_none_or(|i| i.meta.deleting);
        let is_there = (vm.is_some() || instance.is_some()) && !self.is_stranded(machine);
        is_there && (goes || !self.serves(machine))
    }

    /// Forgets what is back or gone.
    pub(in crate::world) fn follow_laws(&mut self) {
        let mut down = std::mem::take(&mut self.laws.down);
        down.retain(|machine| self.is_down(machine));
        self.laws.down = down;
    }

    /// A machine is made ready to go only if status tells that it leaves or was given up, or its host is
    /// drained or shared.
    fn check_told(&mut self, seen: &Observed, machine: &str) {
        let instance = seen.instances.get(machine);
        let evicted = instance.is_some_and(|instance| {
            instance.evicted_from.is_some() || self.was_emptied(instance.host.as_ref())
        });
        let status = self.status();
        let given_up = recorded(&status).any(|m| m.name == machine && m.phase == "Failed");
        let evicted = evicted || super::moving::shares_host(&seen.instances, machine);
        if !evicted && !given_up && !self.is_told_to_leave(machine) {
            self.complain(format!("{machine} was made ready to go untold"));
        }
    }
}
