//! The infrastructure cluster's API server, as far as the operator's objects go.

use std::collections::BTreeMap;

use guestcluster_api::labels;
use guestcluster_planner::action::{Kind, Object, UserData, Victim};
use guestcluster_planner::observed::{
    Disk, Instance, Meta, MigrationPolicy, Secret, Service, Slice, Vm,
};
use guestcluster_planner::render;
use serde_json::Value;

use super::World;
use super::alive::Transfer;

/// Objects of the cluster, in the form in which the planner sees them.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) secrets: BTreeMap<String, Secret>,
    /// What first-boot Secrets were made from, by Secret name.
    pub(super) recipes: BTreeMap<String, UserData>,
    pub(super) services: BTreeMap<String, Service>,
    pub(super) slices: BTreeMap<String, Slice>,
    pub(super) disks: BTreeMap<String, Disk>,
    pub(super) claims: BTreeMap<String, Meta>,
    pub(super) vms: BTreeMap<String, Vm>,
    pub(super) instances: BTreeMap<String, Instance>,
    pub(super) migrations: BTreeMap<String, Transfer>,
    pub(super) migration_policies: BTreeMap<String, MigrationPolicy>,
}

impl Objects {
    pub(super) fn names(&self) -> Vec<String> {
        let all = [
            ("Secret", self.secrets.keys().collect::<Vec<_>>()),
            ("Service", self.services.keys().collect()),
            ("EndpointSlice", self.slices.keys().collect()),
            ("DataVolume", self.disks.keys().collect()),
            ("PersistentVolumeClaim", self.claims.keys().collect()),
            ("VirtualMachine", self.vms.keys().collect()),
            ("VirtualMachineInstance", self.instances.keys().collect()),
            ("MigrationPolicy", self.migration_policies.keys().collect()),
        ];
        let named = |(kind, names): (&str, Vec<&String>)| {
            names
                .into_iter()
                .map(|name| format!("{kind} {name}"))
                .collect::<Vec<_>>()
        };
        all.into_iter().flat_map(named).collect()
    }

    /// Names of machines of which any object is there.
    pub(super) fn machines(&self) -> impl Iterator<Item = &String> {
        let metas = self
            .secrets
            .values()
            .map(|secret| &secret.meta)
            .chain(self.services.values().map(|service| &service.meta))
            .chain(self.slices.values().map(|slice| &slice.meta))
            .chain(self.disks.values().map(|disk| &disk.meta))
            .chain(self.claims.values())
            .chain(self.vms.values().map(|vm| &vm.meta))
            .chain(self.instances.values().map(|instance| &instance.meta));
        metas.filter_map(|meta| meta.machine.as_ref())
    }

    fn meta(&mut self, kind: Kind, name: &str) -> Option<&mut Meta> {
        match kind {
            Kind::VirtualMachine => self.vms.get_mut(name).map(|vm| &mut vm.meta),
            Kind::Instance => self.instances.get_mut(name).map(|i| &mut i.meta),
            Kind::Migration => self.migrations.get_mut(name).map(|t| &mut t.migration.meta),
            Kind::MigrationPolicy => self.migration_policies.get_mut(name).map(|p| &mut p.meta),
            Kind::DataVolume => self.disks.get_mut(name).map(|disk| &mut disk.meta),
            Kind::Claim => self.claims.get_mut(name),
            Kind::Service => self.services.get_mut(name).map(|service| &mut service.meta),
            Kind::EndpointSlice => self.slices.get_mut(name).map(|slice| &mut slice.meta),
            Kind::Secret => self.secrets.get_mut(name).map(|secret| &mut secret.meta),
        }
    }
}

/// What a Secret of ours carries besides keys.
#[derive(Default)]
pub(super) struct Carries {
    pub(super) token_id: Option<String>,
    pub(super) server: Option<String>,
}

impl World {
    pub(super) fn new_meta(&mut self, machine: Option<String>, pool: Option<String>) -> Meta {
        let id = self.id();
        Meta {
            uid: format!("uid-{id}"),
            resource_version: id.to_string(),
            created: Some(self.now),
            machine,
            pool,
            ..Meta::default()
        }
    }

    fn meta_of(&mut self, metadata: &Value) -> Meta {
        let label = |key: &str| metadata["labels"][key].as_str().map(str::to_owned);
        self.new_meta(label(labels::MACHINE), label(labels::POOL))
    }

    /// Gives an object a new resource version.
    pub(super) fn touch(&mut self, kind: Kind, name: &str) {
        let version = self.id().to_string();
        if let Some(meta) = self.objects.meta(kind, name) {
            meta.resource_version = version;
        }
    }

    /// Creates an object; one that is there already stays as it is.
    pub(super) fn create(&mut self, object: &Object) {
        if self.objects.meta(object.kind, &object.name).is_some() {
            return;
        }
        let (name, body) = (object.name.clone(), &object.body);
        let meta = self.meta_of(&body["metadata"]);
        match object.kind {
            Kind::VirtualMachine => {
                let vm = Vm {
                    meta,
                    template_hash: text(&body["metadata"]["labels"][labels::TEMPLATE_HASH]),
                    run_strategy: text(&body["spec"]["runStrategy"]),
                    ..Vm::default()
                };
                self.objects.vms.insert(name, vm);
            }
            Kind::DataVolume => {
                let version = self.cluster.as_ref().map(|c| c.spec.version.clone());
                let machine = meta.machine.clone();
                self.images.extend(machine.zip(version));
                self.objects.disks.insert(
                    name,
                    Disk {
                        meta,
                        template_hash: text(&body["metadata"]["labels"][labels::TEMPLATE_HASH]),
                        ..Disk::default()
                    },
                );
            }
            Kind::Service => {
                let cluster_ip = Some(format!("10.98.0.{}", self.id()));
                let render = text(&body["metadata"]["annotations"][render::RENDER]);
                let service = Service {
                    meta,
                    cluster_ip,
                    render,
                    ..Service::default()
                };
                self.objects.services.insert(name, service);
            }
            Kind::EndpointSlice => {
                self.objects.slices.insert(
                    name,
                    Slice {
                        meta,
                        addresses: addresses(body),
                    },
                );
            }
            Kind::Migration => {
                let transfer = Transfer::new(&name, meta);
                self.objects.migrations.insert(name, transfer);
            }
            Kind::MigrationPolicy => {
                let render = text(&body["metadata"]["annotations"][render::RENDER]);
                let policy = MigrationPolicy { meta, render };
                self.objects.migration_policies.insert(name, policy);
            }
            Kind::Claim | Kind::Secret | Kind::Instance => {}
        }
    }

    /// Applies an object: makes it, or sets what the operator applies of it.
    pub(super) fn apply(&mut self, object: &Object) {
        if self.objects.meta(object.kind, &object.name).is_none() {
            return self.create(object);
        }
        self.touch(object.kind, &object.name);
        if let Some(slice) = self.objects.slices.get_mut(&object.name)
            && object.kind == Kind::EndpointSlice
        {
            slice.addresses = addresses(&object.body);
        }
        if let Some(service) = self.objects.services.get_mut(&object.name)
            && object.kind == Kind::Service
        {
            service.render = text(&object.body["metadata"]["annotations"][render::RENDER]);
        }
        if let Some(policy) = self.objects.migration_policies.get_mut(&object.name)
            && object.kind == Kind::MigrationPolicy
        {
            policy.render = text(&object.body["metadata"]["annotations"][render::RENDER]);
        }
    }

    /// Makes a Secret of ours; says whether this call made it.
    pub(super) fn create_secret(&mut self, metadata: &Value, carries: Carries) -> bool {
        let Some(name) = text(&metadata["name"]) else {
            return false;
        };
        if self.objects.secrets.contains_key(&name) {
            return false;
        }
        let meta = self.meta_of(metadata);
        self.objects.secrets.insert(
            name,
            Secret {
                meta,
                token_id: carries.token_id,
                scrubbed: false,
                renew_at: None,
                server: carries.server,
            },
        );
        true
    }

    /// Whether the object is still exactly the one that was seen; `None` if it is gone.
    pub(super) fn is_same(&mut self, victim: &Victim) -> Option<bool> {
        let meta = self.objects.meta(victim.kind, &victim.name)?;
        Some(meta.uid == victim.uid && meta.resource_version == victim.resource_version)
    }

    /// Deletes an object: at once, or, where controllers hold it, marked until they let go.
    pub(super) fn delete(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::VirtualMachine
            | Kind::Instance
            | Kind::Migration
            | Kind::DataVolume
            | Kind::Claim => {
                if let Some(meta) = self.objects.meta(kind, name) {
                    meta.deleting = true;
                }
                self.touch(kind, name);
            }
            Kind::MigrationPolicy => drop(self.objects.migration_policies.remove(name)),
            Kind::Service => drop(self.objects.services.remove(name)),
            Kind::EndpointSlice => drop(self.objects.slices.remove(name)),
            Kind::Secret => {
                self.objects.secrets.remove(name);
                self.objects.recipes.remove(name);
            }
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn addresses(slice: &Value) -> Vec<String> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints
        .filter_map(|endpoint| text(&endpoint["addresses"][0]))
        .collect()
}
