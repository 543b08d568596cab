//! What the operator sees of the world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_planner::Wanted;
use guestcluster_planner::foresight::{Fleet, FleetView};
use guestcluster_planner::observed::{
    Certificate, Etcd, EtcdMember, Guest, GuestNode, GuestPod, Holding, Infra, Observed, Probe, Vm,
};
use guestcluster_planner::wanted::Settings;
use k8s_openapi::jiff::Timestamp;

use super::guest::{Machine, Member};
use super::kubevirt::role_of;
use super::{Fault, World};

impl World {
    /// The world as the operator sees it.
    pub fn observe(&self) -> Observed {
        let objects = &self.objects;
        let mut infra = self.infra.clone();
        for host in &mut infra.hosts {
            host.ready = !self.hosts_down.contains(&host.name);
            host.unschedulable |= self.is_cordoned(&host.name);
        }
        self.show_emptied(&mut infra);
        self.place(&mut infra);
        let fleet = self.fleet_view(&infra);
        let asked = self.is_asked();
        Observed {
            infra,
            secrets: objects.secrets.clone(),
            services: objects.services.clone(),
            slices: objects.slices.clone(),
            disks: objects.disks.clone(),
            claims: objects.claims.clone(),
            volumes: self.volumes(),
            vms: objects.vms.clone(),
            instances: objects.instances.clone(),
            migrations: objects
                .migrations
                .iter()
                .map(|(name, transfer)| (name.clone(), transfer.migration.clone()))
                .collect(),
            migration_policies: (!self.has(Fault::NoMigrationPolicies))
                .then(|| objects.migration_policies.clone()),
            image_shared: self.image_shared,
            stale_images: BTreeMap::new(),
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
            endpoint: Probe::NotAsked,
            fleet,
            consoles: self.consoles(),
            certificates: self.certificates(),
            serving: self.served_addresses(),
            quorum_lost: asked && !self.has(Fault::GuestCut) && self.has_lost_quorum(),
        }
    }

    /// What the machines hold on their hosts.
    fn place(&self, infra: &mut Infra) {
        let parsed = self
            .cluster
            .as_ref()
            .map(|c| Wanted::parse(c, &Settings::default()));
        let Some(Ok(wanted)) = parsed else {
            return;
        };
        for (name, instance) in &self.objects.instances {
            let pool = instance
                .meta
                .pool
                .as_ref()
                .and_then(|pool| wanted.pool(pool));
            if let (Some(host), Some(pool)) = (&instance.host, pool) {
                let requests = pool.requests();
                infra.usage.hold(host, &requests);
                infra.holdings.push(Holding {
                    machine: name.clone(),
                    host: host.clone(),
                    requests,
                });
            }
        }
        self.place_targets(infra);
    }

    /// What the loss of each host would mean, if it is worked out in this world.
    fn fleet_view(&self, infra: &Infra) -> Option<FleetView> {
        let cluster = self.cluster.as_ref().filter(|_| self.foresees)?;
        let wanted = Wanted::parse(cluster, &Settings::default()).ok()?;
        let mut fleet = Fleet::default();
        fleet.add(&wanted, &self.status(), &infra.holdings);
        let mut answers = fleet.ask(&infra.hosts, &infra.usage);
        let guest = format!("{}/{}", wanted.identity.namespace, wanted.identity.name);
        Some(FleetView {
            outlook: answers.guests.remove(&guest),
            fleet: Arc::new(fleet),
        })
    }

    /// The operator asks a guest that was initialised, or whose control plane serves.
    fn is_asked(&self) -> bool {
        let Some(cluster) = &self.cluster else {
            return false;
        };
        let serves = |(name, vm): (&String, &Vm)| vm.ready && role_of(name) == Role::ControlPlane;
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
            configuration: self.guest.configuration.clone(),
            server: self.guest.server.clone(),
            addons: self.guest.addons.clone(),
            pods: self.pods_of_drained_nodes(),
        })
    }

    fn pods_of_drained_nodes(&self) -> BTreeMap<String, Vec<GuestPod>> {
        let drained = |(name, node): (&String, &GuestNode)| {
            node.drained_since?;
            Some((
                name.clone(),
                self.guest.pods.get(name).cloned().unwrap_or_default(),
            ))
        };
        self.guest.nodes.iter().filter_map(drained).collect()
    }

    /// Of every control-plane machine that serves.
    fn certificates(&self) -> BTreeMap<String, Certificate> {
        let shown = |(name, machine): (&String, &Machine)| {
            let vm = self.objects.vms.get(name)?;
            let shows = vm.ready && role_of(name) == Role::ControlPlane;
            let certificate = Certificate {
                ends: Timestamp::MAX,
                names: machine.names.clone(),
            };
            shows.then(|| (name.clone(), certificate))
        };
        self.machines.iter().filter_map(shown).collect()
    }

    fn served_addresses(&self) -> BTreeSet<String> {
        let instances = self.objects.instances.iter();
        // The endpoint selects control-plane machines alone.
        let served = instances
            .filter(|(name, _)| role_of(name) == Role::ControlPlane && self.is_served(name));
        served
            .filter_map(|(_, instance)| instance.address.clone())
            .collect()
    }

    /// Some member answers, and there is no leader.
    fn has_lost_quorum(&self) -> bool {
        let mut members = self.guest.members.iter();
        !self.quorum() && members.any(|member| self.etcd_runs(member))
    }

    fn ask_etcd(&self) -> Probe<Etcd> {
        let control_plane = |name: &&String| role_of(name) == Role::ControlPlane;
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
        let leader = self.leader().map(|member| member.id);
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

    fn consoles(&self) -> BTreeMap<String, Vec<String>> {
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
