//! Controllers of the infrastructure cluster: disks, VMs and their instances, load balancer.

use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_api::spec::{Binding, EndpointType};
use guestcluster_planner::action::Kind;
use guestcluster_planner::observed::{Instance, Launcher, Migratable, Vm};

use super::{Fault, World};

impl World {
    pub(super) fn run_kubevirt(&mut self) {
        self.fill_disks();
        self.remove_disks();
        self.evict();
        self.stop_instances();
        self.start_instances();
        self.move_instances();
        self.migrate_machines();
        self.balance();
    }

    /// Imports the image, and clones it once it is there.
    pub(super) fn fill_disks(&mut self) {
        let empty = |(name, disk): (&String, &guestcluster_planner::observed::Disk)| {
            let open = disk.phase.as_deref() != Some("Succeeded") && !disk.meta.deleting;
            open.then(|| {
                (
                    name.clone(),
                    disk.meta.machine.clone(),
                    disk.meta.pool.clone(),
                )
            })
        };
        let empty: Vec<_> = self.objects.disks.iter().filter_map(empty).collect();
        for (name, machine, pool) in empty {
            if self.chance.one_in(3) {
                continue;
            }
            let is_image = machine.is_none();
            if is_image && self.has(Fault::ImageBroken) {
                self.set_disk(&name, "ImportInProgress", Some("manifest unknown"));
            } else if is_image || (self.image_is_there() && !self.has(Fault::ClonesHang)) {
                self.set_disk(&name, "Succeeded", None);
                if !is_image {
                    let claim = self.new_meta(machine, pool);
                    self.objects.claims.insert(name, claim);
                }
            } else {
                self.set_disk(&name, "Pending", None);
            }
        }
    }

    fn image_is_there(&self) -> bool {
        let mut images = self
            .objects
            .disks
            .values()
            .filter(|disk| disk.meta.machine.is_none());
        images.any(|disk| disk.phase.as_deref() == Some("Succeeded"))
    }

    fn set_disk(&mut self, name: &str, phase: &str, message: Option<&str>) {
        let Some(disk) = self.objects.disks.get_mut(name) else {
            return;
        };
        if disk.phase.as_deref() != Some(phase) || disk.message.as_deref() != message {
            disk.phase = Some(phase.to_owned());
            disk.message = message.map(str::to_owned);
            self.touch(Kind::DataVolume, name);
        }
    }

    /// A DataVolume goes at once; its claim goes once no Pod uses it, and the data with it.
    pub(super) fn remove_disks(&mut self) {
        self.objects.disks.retain(|_, disk| !disk.meta.deleting);
        let objects = &self.objects;
        let gone = |(name, meta): (&String, &guestcluster_planner::observed::Meta)| {
            let used = meta
                .machine
                .as_ref()
                .is_some_and(|m| objects.instances.contains_key(m));
            (!objects.disks.contains_key(name) && !used)
                .then(|| (name.clone(), meta.machine.clone()))
        };
        let gone: Vec<_> = objects.claims.iter().filter_map(gone).collect();
        for (name, machine) in gone {
            self.objects.claims.remove(&name);
            if let Some(machine) = machine {
                self.machines.remove(&machine);
            }
        }
    }

    /// `kubectl drain` asks for each machine on a host again and again.
    pub(super) fn evict(&mut self) {
        for instance in self.objects.instances.values_mut() {
            let host = instance
                .host
                .as_ref()
                .filter(|host| self.draining.contains(*host));
            if instance.evicted_from.is_none() && instance.phase == "Running" {
                instance.evicted_from = host.cloned();
                instance.evicted_since = host.map(|_| self.now);
            }
        }
    }

    /// Stops what is not to run. A host that is down stops nothing: it must be fenced first, which
    /// takes long.
    fn stop_instances(&mut self) {
        let names: Vec<String> = self.objects.instances.keys().cloned().collect();
        for name in names {
            let stranded = self.is_stranded(&name);
            let fenced = stranded && self.chance.one_in(60);
            if fenced || (self.has_to_stop(&name) && !self.chance.one_in(3)) {
                self.power_off(&name);
            }
        }
        self.remove_vms();
    }

    /// Its instance is not to run any more, and its host can stop it.
    pub(super) fn has_to_stop(&self, name: &str) -> bool {
        let objects = &self.objects;
        let instance = objects.instances.get(name);
        let vm = objects.vms.get(name);
        let stays =
            |i: &Instance| !i.meta.deleting && vm.is_some_and(|vm| !vm.meta.deleting && runs(vm));
        instance.is_some_and(|instance| !stays(instance)) && !self.is_stranded(name)
    }

    /// A VM goes once its instance is gone.
    pub(super) fn remove_vms(&mut self) {
        let objects = &mut self.objects;
        objects
            .vms
            .retain(|name, vm| !vm.meta.deleting || objects.instances.contains_key(name));
    }

    /// Its instance is gone; a VM that is to run gets another one.
    pub(super) fn power_off(&mut self, name: &str) {
        if self.objects.instances.remove(name).is_some() {
            self.frozen.remove(name);
            self.note(format!("{name} goes off"));
            self.set_vm_ready(name, false);
        }
    }

    pub(super) fn set_vm_ready(&mut self, name: &str, ready: bool) {
        if let Some(vm) = self.objects.vms.get_mut(name)
            && vm.ready != ready
        {
            vm.ready = ready;
            self.touch(Kind::VirtualMachine, name);
        }
    }

    /// It runs on a host that is down.
    pub(super) fn is_stranded(&self, name: &str) -> bool {
        let host = self
            .objects
            .instances
            .get(name)
            .and_then(|i| i.host.as_ref());
        host.is_some_and(|host| self.hosts_down.contains(host))
    }

    fn start_instances(&mut self) {
        let names: Vec<String> = self.objects.vms.keys().cloned().collect();
        for name in names {
            self.start_instance(&name);
        }
    }

    /// A VM that is to run and has none gets an instance.
    pub(super) fn start_instance(&mut self, name: &str) {
        let Some(vm) = self.objects.vms.get(name).filter(|_| self.may_start(name)) else {
            return;
        };
        let (machine, pool) = (vm.meta.machine.clone(), vm.meta.pool.clone());
        let meta = self.new_meta(machine, pool);
        let phase = "Pending".to_owned();
        self.objects.instances.insert(
            name.to_owned(),
            Instance {
                meta,
                phase,
                ..Instance::default()
            },
        );
    }

    pub(super) fn may_start(&self, name: &str) -> bool {
        let objects = &self.objects;
        let disk = objects.disks.get(&names::root_disk(name));
        let has_disk = disk.is_some_and(|disk| disk.phase.as_deref() == Some("Succeeded"));
        let has_data = objects.secrets.contains_key(&names::user_data_secret(name));
        let is_new = !objects.instances.contains_key(name);
        let is_on = |vm: &Vm| runs(vm) && !vm.meta.deleting;
        is_new && has_disk && has_data && objects.vms.get(name).is_some_and(is_on)
    }

    fn move_instances(&mut self) {
        let names: Vec<String> = self.objects.instances.keys().cloned().collect();
        for name in names {
            if self.chance.one_in(3) || self.is_stranded(&name) {
                continue;
            }
            self.move_instance(&name);
        }
    }

    /// An instance comes one phase further.
    pub(super) fn move_instance(&mut self, name: &str) {
        let phase = self.objects.instances.get(name).map(|i| i.phase.clone());
        match phase.as_deref() {
            Some("Pending") => self.set_phase(name, "Scheduling"),
            Some("Scheduling") => self.schedule(name),
            Some("Scheduled") => {
                let (address, launcher) = self.new_launcher(name);
                let migratable = self.judge(name);
                if let Some(instance) = self.objects.instances.get_mut(name) {
                    instance.address = Some(address);
                    instance.launcher = Some(launcher);
                    instance.migratable = migratable;
                }
                self.set_phase(name, "Running");
                self.power_on(name);
            }
            _ => {}
        }
    }

    /// A Pod for the machine to run in, and its address.
    pub(super) fn new_launcher(&mut self, name: &str) -> (String, Launcher) {
        let address = format!("10.77.0.{}", self.id());
        let launcher = Launcher {
            name: format!("virt-launcher-{name}-{}", self.id()),
            meta: self.new_meta(None, None),
            serving: true,
            ..Launcher::default()
        };
        (address, launcher)
    }

    /// Whether a machine can move while it runs, as KubeVirt tells it.
    fn judge(&self, name: &str) -> Migratable {
        if !self.devices_of(name).is_empty() {
            return Migratable::No("VMI uses a PCI host devices".to_owned());
        }
        let spec = self.cluster.as_ref().map(|cluster| &cluster.spec);
        let masquerade = spec.is_some_and(|s| s.network.machine.binding == Binding::Masquerade);
        if masquerade {
            Migratable::Yes
        } else {
            Migratable::No("its interface is a bridge".to_owned())
        }
    }

    fn set_phase(&mut self, name: &str, phase: &str) {
        if let Some(instance) = self.objects.instances.get_mut(name) {
            phase.clone_into(&mut instance.phase);
        }
    }

    fn schedule(&mut self, name: &str) {
        let host = self.free_host(name);
        let hosts = self.infra.hosts.len();
        if let Some(instance) = self.objects.instances.get_mut(name) {
            instance.unschedulable = match &host {
                None => Some(format!("0/{hosts} nodes are available")),
                Some(_) => None,
            };
            instance.host = host;
            if instance.host.is_some() {
                "Scheduled".clone_into(&mut instance.phase);
            }
        }
    }

    pub(super) fn free_host(&self, name: &str) -> Option<String> {
        self.free_hosts(name).into_iter().next()
    }

    /// Required anti-affinity: no two control-plane machines on one host.
    pub(super) fn free_hosts(&self, name: &str) -> Vec<String> {
        let control_plane = |machine: &str| role_of(machine) == Role::ControlPlane;
        let taken = |host: &str| {
            control_plane(name) && self.is_target(host)
                || control_plane(name)
                    && self.objects.instances.iter().any(|(other, instance)| {
                        control_plane(other) && instance.host.as_deref() == Some(host)
                    })
        };
        let fits = |host: &&guestcluster_planner::observed::Host| {
            let closed = self.hosts_down.contains(&host.name) || self.is_cordoned(&host.name);
            !closed && !taken(&host.name) && self.has_devices(host, name)
        };
        let hosts = self.infra.hosts.iter().filter(fits);
        hosts.map(|host| host.name.clone()).collect()
    }

    /// Gives the endpoint Service an address.
    fn balance(&mut self) {
        let Some(cluster) = &self.cluster else {
            return;
        };
        let is_balanced = cluster.spec.control_plane.endpoint.type_ == EndpointType::LoadBalancer;
        if self.has(Fault::NoBalancer) || !is_balanced {
            return;
        }
        let name = names::endpoint_service(cluster.metadata.name.as_deref().unwrap_or_default());
        if let Some(service) = self.objects.services.get_mut(&name) {
            service.load_balancer = Some("10.79.0.1".to_owned());
        }
    }
}

fn runs(vm: &Vm) -> bool {
    vm.run_strategy.as_deref() == Some("Always")
}

/// Control-plane machines are those of pool `cp`.
pub(super) fn role_of(machine: &str) -> Role {
    if machine.contains("-cp-") {
        Role::ControlPlane
    } else {
        Role::Worker
    }
}
