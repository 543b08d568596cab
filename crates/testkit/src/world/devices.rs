//! Devices of hosts that machines hold.

use std::collections::BTreeMap;

use guestcluster_planner::observed::{Host, Quantity};

use super::World;

impl World {
    /// How many of each device a machine holds, or will.
    pub(super) fn devices_of(&self, machine: &str) -> BTreeMap<String, u64> {
        let instance = self.objects.instances.get(machine);
        let pool = instance.and_then(|instance| instance.meta.pool.as_ref());
        let all = self.cluster.iter().flat_map(|one| &one.spec.workers);
        let own = all.filter(|one| Some(&one.name) == pool);
        let devices = own.flat_map(|one| &one.devices);
        let counted = devices.map(|device| (device.device_name.clone(), device.count));
        let counted = counted.filter_map(|(name, count)| Some((name, u64::try_from(count).ok()?)));
        counted.collect()
    }

    /// The host has as many free as the machine needs.
    pub(super) fn has_devices(&self, host: &Host, machine: &str) -> bool {
        let there = self.objects.instances.iter().filter(|(name, instance)| {
            *name != machine && instance.host.as_ref() == Some(&host.name)
        });
        let held: Vec<_> = there.map(|(name, _)| self.devices_of(name)).collect();
        self.devices_of(machine).iter().all(|(name, needs)| {
            let held: u64 = held.iter().filter_map(|devices| devices.get(name)).sum();
            let has = host.allocatable.get(name).copied().unwrap_or_default();
            Quantity::units(held + needs) <= has
        })
    }
}
