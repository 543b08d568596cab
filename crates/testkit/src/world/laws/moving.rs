//! Laws about machines that go to another host.

use std::collections::BTreeMap;

use guestcluster_api::labels::Role;
use guestcluster_planner::observed::{Instance, Progress};

use super::super::World;
use super::super::kubevirt::role_of;

impl World {
    /// A machine goes off for a while: only from a host that is being drained or that it
    /// shares with another of the control plane, out of the endpoint,
    /// without leading.
    pub(super) fn check_move(&mut self, machine: &str) {
        let evicted = |i: &Instance| i.evicted_from.is_some() || self.was_emptied(i.host.as_ref());
        let is_evicted = self.objects.instances.get(machine).is_some_and(evicted);
        if !is_evicted && !shares_host(&self.objects.instances, machine) {
            self.complain(format!(
                "{machine} was stopped though its host is not drained"
            ));
        }
        self.check_prepared(machine);
    }

    /// Whoever can be spared serves nobody any more when it goes.
    pub(super) fn check_prepared(&mut self, machine: &str) {
        if role_of(machine) == Role::Worker || self.guest.members.len() < 2 {
            return;
        }
        let leads = self
            .leader()
            .is_some_and(|leader| leader.machine == machine);
        if leads {
            self.complain(format!("{machine} went while it led etcd"));
        }
        if self.is_served(machine) {
            self.complain(format!("{machine} went while the endpoint led to it"));
        }
    }

    /// A machine is moved while it runs for the same reasons, as well prepared, and alone.
    pub(super) fn check_migration(&mut self, machine: &str) {
        self.check_move(machine);
        let own = Some(machine);
        let open = |t: &&super::super::alive::Transfer| {
            let migration = &t.migration;
            migration.progress == Progress::Moves && migration.meta.machine.as_deref() != own
        };
        let other = self.objects.migrations.values().find(open);
        let other = other.and_then(|t| t.migration.meta.machine.clone());
        if let Some(other) = other.filter(|other| role_of(other) == role_of(machine)) {
            self.complain(format!("{machine} moves while {other} moves"));
        }
    }
}

/// Another control-plane machine is on its host, as somebody bound them by hand.
pub(super) fn shares_host(instances: &BTreeMap<String, Instance>, machine: &str) -> bool {
    let host = |name: &str| instances.get(name).and_then(|i| i.host.as_ref());
    let is_member = |name: &str| role_of(name) == Role::ControlPlane;
    let shares =
        |other: &String| other != machine && is_member(other) && host(other) == host(machine);
    host(machine).is_some() && is_member(machine) && instances.keys().any(shares)
}
