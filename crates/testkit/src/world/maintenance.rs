//! Hosts that a HostMaintenance empties.

use guestcluster_api::host_maintenance::CapacityPolicy;
use guestcluster_planner::observed::Infra;

use super::World;

impl World {
    /// A HostMaintenance begins to empty a host: it is cordoned, and guests are told.
    pub fn empty_host(&mut self, host: &str, policy: CapacityPolicy) {
        self.note(format!("{host} is being emptied ({policy:?})"));
        self.emptied.insert(host.to_owned(), Some(policy));
    }

    /// The maintenance ends, and its host is uncordoned.
    pub fn end_maintenance(&mut self, host: &str) {
        self.note(format!("the maintenance of {host} ends"));
        self.emptied.insert(host.to_owned(), None);
    }

    /// A person takes back KubeVirt's mark for the eviction of a machine.
    pub fn cancel_eviction(&mut self, machine: &str) {
        self.note(format!("the eviction of {machine} is taken back"));
        if let Some(instance) = self.objects.instances.get_mut(machine) {
            instance.evicted_from = None;
            instance.evicted_since = None;
        }
    }

    /// No Pod is placed there.
    pub(super) fn is_cordoned(&self, host: &str) -> bool {
        self.draining.contains(host) || matches!(self.emptied.get(host), Some(Some(_)))
    }

    /// A maintenance wanted a host empty, now or when the operator last looked: a delete tells the
    /// version of the instance, not that of the maintenance.
    pub(super) fn was_emptied(&self, host: Option<&String>) -> bool {
        host.is_some_and(|host| self.emptied.contains_key(host))
    }

    pub(super) fn show_emptied(&self, infra: &mut Infra) {
        let all = self.emptied.iter();
        infra.emptied = all
            .filter_map(|(host, policy)| Some((host.clone(), (*policy)?)))
            .collect();
    }
}
