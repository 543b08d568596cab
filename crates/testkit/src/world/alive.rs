//! KubeVirt's migration controller: machines that move to another host while they run.

use guestcluster_planner::action::Kind;
use guestcluster_planner::observed::{Holding, Infra, Meta, Migration, Progress};

use super::{Fault, World};

/// What a migration is about to do.
#[derive(Clone, Debug, Default)]
pub(super) struct Transfer {
    pub(super) migration: Migration,
    /// Where its target Pod is, once the scheduler found a host.
    pub(super) target: Option<String>,
}

impl Transfer {
    pub(super) fn new(name: &str, meta: Meta) -> Self {
        let migration = Migration {
            name: name.to_owned(),
            meta,
            ..Migration::default()
        };
        Self {
            migration,
            target: None,
        }
    }
}

impl World {
    /// Each migration finds a host, and then ends well or badly.
    pub(super) fn migrate_machines(&mut self) {
        let names: Vec<String> = self.objects.migrations.keys().cloned().collect();
        for name in names {
            let open = |t: &Transfer| t.migration.progress == Progress::Moves;
            let transfer = self.objects.migrations.get(&name).filter(|t| open(t));
            let Some(transfer) = transfer.cloned() else {
                continue;
            };
            if transfer.migration.meta.deleting {
                self.objects.migrations.remove(&name);
            } else if !self.chance.one_in(3) && !self.has(Fault::MigrationsHang) {
                self.go_on(&name, &transfer);
            }
        }
    }

    fn go_on(&mut self, name: &str, transfer: &Transfer) {
        let machine = transfer.migration.meta.machine.clone().unwrap_or_default();
        let instance = self.objects.instances.get(&machine);
        let runs = instance.is_some_and(|i| i.phase == "Running" && !i.meta.deleting);
        let fails = !runs
            || self.has(Fault::MigrationsFail)
            || self.is_stranded(&machine)
            || self.chance.one_in(9);
        let progress = match &transfer.target {
            _ if fails => Progress::Failed,
            None => {
                let target = self.target(&machine);
                if let Some(kept) = self.objects.migrations.get_mut(name) {
                    kept.target = target;
                }
                return;
            }
            Some(target) => {
                let target = target.clone();
                self.arrive(&machine, target);
                Progress::Succeeded
            }
        };
        if let Some(kept) = self.objects.migrations.get_mut(name) {
            kept.migration.progress = progress;
            kept.target = None;
        }
        self.touch(Kind::Migration, name);
    }

    /// The machine moves to another host while it runs, if one takes it: another Pod, another address.
    pub fn migrate(&mut self, machine: &str) {
        if let Some(target) = self.target(machine) {
            self.arrive(machine, target);
        }
    }

    fn target(&self, machine: &str) -> Option<String> {
        let own = self.objects.instances.get(machine)?.host.as_ref();
        let mut hosts = self.free_hosts(machine).into_iter();
        hosts.find(|host| Some(host) != own)
    }

    fn arrive(&mut self, machine: &str, host: String) {
        let (address, launcher) = self.new_launcher(machine);
        if let Some(instance) = self.objects.instances.get_mut(machine) {
            instance.host = Some(host);
            instance.address = Some(address);
            instance.launcher = Some(launcher);
            instance.evicted_from = None;
            instance.evicted_since = None;
        }
        self.note(format!("{machine} moves while it runs"));
    }

    /// What target Pods hold.
    pub(super) fn place_targets(&self, infra: &mut Infra) {
        for transfer in self.objects.migrations.values() {
            let machine = transfer.migration.meta.machine.as_ref();
            let mut held = infra.holdings.iter();
            let own = held.find(|holding| Some(&holding.machine) == machine);
            if let (Some(host), Some(own)) = (&transfer.target, own.cloned()) {
                infra.usage.hold(host, &own.requests);
                infra.holdings.push(Holding {
                    host: host.clone(),
                    ..own
                });
            }
        }
    }

    /// Target Pods count as members of the control plane.
    pub(super) fn is_target(&self, host: &str) -> bool {
        let mut all = self.objects.migrations.values();
        all.any(|transfer| transfer.target.as_deref() == Some(host))
    }
}
