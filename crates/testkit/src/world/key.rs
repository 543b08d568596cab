//! What tells one world from another, for whoever walks them all.
//!
//! Two worlds with the same key go on alike. Identities count by what they are compared with (an
//! instance with the one that first booted, an address with the one that its Service leads to), and
//! times by the minutes that are left until they matter. Conditions are left out: no plan reads them.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use guestcluster_api::status::MachineStatus;
use guestcluster_planner::machines::recorded;
use guestcluster_planner::observed::{GuestNode, GuestPod, Instance, Vm};
use guestcluster_planner::wanted::Settings;
use k8s_openapi::jiff::Timestamp;

use super::World;
use super::guest::{Machine, Stage};
use super::moves::AFTERGLOW;

/// Long enough that no two of some millions of worlds meet by chance.
#[derive(Default)]
struct Twin(DefaultHasher, DefaultHasher);

impl Hasher for Twin {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl World {
    /// Equal for worlds that go on alike.
    pub fn key(&self) -> u128 {
        let mut twin = Twin::default();
        twin.1.write_u8(1);
        self.write_wish(&mut twin);
        self.write_objects(&mut twin);
        self.write_guest(&mut twin);
        self.laws.hash(&mut twin);
        (u128::from(twin.0.finish()) << 64) | u128::from(twin.1.finish())
    }

    /// What is wanted, and what status remembers.
    fn write_wish(&self, to: &mut impl Hasher) {
        let Some(cluster) = &self.cluster else {
            return;
        };
        let control_plane = &cluster.spec.control_plane;
        (control_plane.replicas, &cluster.spec.version).hash(to);
        let Some(status) = &cluster.status else {
            return;
        };
        let known = &status.control_plane;
        let last_repair = known.last_repair.as_ref().map(|time| time.0);
        let since_repair = last_repair.map(|time| self.minutes_since(time, 60));
        (known.last_ordinal, known.repairs, since_repair).hash(to);
        (status.initialised, &status.version).hash(to);
        for machine in recorded(status) {
            self.write_recorded(machine, to);
        }
    }

    fn write_recorded(&self, machine: &MachineStatus, to: &mut impl Hasher) {
        let instance = self.objects.instances.get(&machine.name);
        let instance = instance.map(|instance| &instance.meta.uid);
        let first = machine.boot_instance.as_ref();
        let patience = Settings::UNHEALTHY_AFTER.as_mins();
        let since = machine.unhealthy_since.as_ref();
        let since = since.map(|since| self.minutes_since(since.0, patience));
        (&machine.name, &machine.phase, &machine.leaving).hash(to);
        (&machine.version, first.is_some(), first == instance, since).hash(to);
    }

    fn write_objects(&self, to: &mut impl Hasher) {
        let objects = &self.objects;
        for (name, secret) in &objects.secrets {
            let token = secret.token_id.as_ref();
            let left = token.and_then(|id| self.guest.tokens.get(id));
            let left = left.map(|expiry| expiry.duration_since(self.now).as_mins().max(-1));
            (name, secret.scrubbed, token.is_some(), left).hash(to);
        }
        let claims = objects.claims.keys();
        for name in objects.services.keys().chain(claims) {
            name.hash(to);
        }
        for (name, slice) in &objects.slices {
            let address = objects.instances.get(name);
            let address = address.and_then(|instance| instance.address.as_ref());
            let leads = slice.addresses.first();
            (name, leads.is_some(), leads == address).hash(to);
        }
        for (name, disk) in &objects.disks {
            (name, &disk.phase, &disk.template_hash).hash(to);
        }
        for (name, policy) in &objects.migration_policies {
            (name, &policy.render).hash(to);
        }
        for (name, vm) in &objects.vms {
            write_vm(name, vm, to);
        }
        for (name, instance) in &objects.instances {
            self.write_instance(name, instance, to);
        }
        for (name, transfer) in &objects.migrations {
            let (migration, target) = (&transfer.migration, &transfer.target);
            (
                name,
                migration.progress as u8,
                migration.meta.deleting,
                target,
            )
                .hash(to);
        }
        (&self.hosts_down, &self.draining, &self.frozen).hash(to);
        self.emptied.hash(to);
        self.images.hash(to);
    }

    fn write_instance(&self, name: &str, instance: &Instance, to: &mut impl Hasher) {
        let (host, evicted) = (&instance.host, &instance.evicted_from);
        (name, &instance.phase, host, evicted).hash(to);
        (instance.meta.deleting, &instance.unschedulable).hash(to);
        let launcher = instance.launcher.as_ref();
        let glows = |time| self.now.duration_since(time) < AFTERGLOW;
        let out = launcher.map(|pod| {
            (
                pod.serving,
                pod.out_since.map(glows),
                pod.migration_ruled_out,
            )
        });
        let boots = self.machines.get(name).is_none_or(Machine::has_not_joined);
        let made = instance.meta.created.filter(|_| boots);
        (out, made.map(|made| self.minutes_since(made, 31))).hash(to);
    }

    fn write_guest(&self, to: &mut impl Hasher) {
        let guest = &self.guest;
        for member in &guest.members {
            let leads = guest.leader == Some(member.id);
            (&member.machine, member.learner, member.started, leads).hash(to);
        }
        (&guest.cni, &guest.configuration, &guest.addons).hash(to);
        (&guest.names, &guest.server).hash(to);
        for (name, node) in &guest.nodes {
            write_node(name, node, to);
        }
        for (name, pods) in &guest.pods {
            name.hash(to);
            for pod in pods {
                write_pod(pod, to);
            }
        }
        for (name, machine) in &self.machines {
            self.write_machine(name, machine, to);
        }
    }

    fn write_machine(&self, name: &str, machine: &Machine, to: &mut impl Hasher) {
        let is_of_guest = machine.epoch == self.guest.epoch;
        (name, machine.stage as u8, machine.kubeadm, is_of_guest).hash(to);
        (&machine.version, &machine.names, machine.console.last()).hash(to);
        let expiry = machine.token.as_ref();
        let expiry = expiry.and_then(|token| self.guest.tokens.get(token));
        (machine.stage < Stage::Node && expiry.is_some()).hash(to);
        if machine.stage == Stage::Started {
            self.minutes_since(machine.since, 11).hash(to);
        }
    }

    fn minutes_since(&self, time: Timestamp, most: i64) -> i64 {
        self.now.duration_since(time).as_mins().min(most)
    }
}

fn write_vm(name: &str, vm: &Vm, to: &mut impl Hasher) {
    (name, &vm.template_hash, &vm.run_strategy).hash(to);
    (vm.ready, vm.meta.deleting).hash(to);
}

fn write_node(name: &str, node: &GuestNode, to: &mut impl Hasher) {
    (name, node.ready, &node.kubelet_version, &node.labels).hash(to);
    let drained = node.drained_since.is_some();
    (&node.taints, node.unschedulable, drained).hash(to);
}

fn write_pod(pod: &GuestPod, to: &mut impl Hasher) {
    (&pod.name, pod.deleting, pod.refused.is_some()).hash(to);
}
