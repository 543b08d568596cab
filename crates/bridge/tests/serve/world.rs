//! A world in which each write takes effect at once, and everything else when the test says so.

use std::collections::BTreeMap;

use guestcluster_bridge::capi;
use guestcluster_bridge::serve::{
    Action, Dialect, Guest, Machine, Owner, Refusal, Seen, UserData, plan,
};
use guestcluster_foreign::capi as core;
use guestcluster_foreign::capk::{KubevirtCluster, KubevirtMachine, KubevirtMachineStatus};
use guestcluster_foreign::core::SlimService;
use guestcluster_foreign::kubevirt::{VirtualMachine, VirtualMachineInstance};
use guestcluster_planner::observed::{GuestNode, GuestPod, Probe};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// One Cluster `c` in namespace `ns`.
pub struct World {
    pub seen: Seen,
    pub now: Timestamp,
    /// The Service as last applied.
    pub applied: Value,
    /// What the API server says against new virtual machines.
    pub refuses: Option<String>,
    made: BTreeMap<String, Value>,
    guest: Guest,
}

impl World {
    pub fn new(dialect: Dialect) -> Self {
        let infra = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "KubevirtCluster",
            "metadata": { "name": "c", "namespace": "ns", "uid": "infra" },
            "spec": { "controlPlaneServiceTemplate": { "spec": { "type": "LoadBalancer" } } },
        });
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "name": "c", "namespace": "ns" },
            "spec": { "infrastructureRef": { "kind": "KubevirtCluster", "name": "c" } },
            "status": {},
        });
        Self {
            seen: Seen {
                dialect,
                namespace: "ns".to_owned(),
                name: "c".to_owned(),
                cluster: Some(read(cluster)),
                infra: Some(read(infra)),
                ..Seen::default()
            },
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            applied: Value::Null,
            refuses: None,
            made: BTreeMap::new(),
            guest: Guest::default(),
        }
    }

    /// One in which nothing is left to do.
    pub fn settled(dialect: Dialect, control_plane: usize, workers: usize) -> Self {
        let mut world = Self::new(dialect);
        world.step();
        world.load_balancer("10.9.9.9");
        world.step();
        world.infrastructure_is_provisioned();
        let masters = (1..=control_plane).map(|n| (format!("c-cp-{n}"), true));
        let others = (1..=workers).map(|n| (format!("c-w-{n}"), false));
        for (name, is_control_plane) in masters.chain(others).collect::<Vec<_>>() {
            world.add_machine(&name, is_control_plane);
            world.boot_document(&name);
            world.step();
            world.runs(&name, &format!("host-of-{name}"));
            world.joins(&name);
            world.step();
            world.is_known(&name);
            world.step();
        }
        while !world.step().is_empty() {}
        world
    }

    /// Plans and lets everything planned take effect.
    pub fn step(&mut self) -> Vec<Action> {
        let asks = guestcluster_bridge::serve::asks_guest(&self.seen);
        if !matches!(self.seen.guest, Probe::Unreachable(_)) {
            let guest = asks.then(|| Probe::Known(self.guest.clone()));
            self.seen.guest = guest.unwrap_or_default();
        }
        let plan = plan(&self.seen, self.now);
        for action in &plan.actions {
            self.takes_effect(action);
        }
        if let (Some(infra), Some(status)) = (&mut self.seen.infra, plan.cluster) {
            infra.status = Some(status);
        }
        for (name, status) in plan.machines {
            self.machine(&name).object.status = Some(status);
        }
        plan.actions
    }

    fn takes_effect(&mut self, action: &Action) {
        match action {
            Action::AddFinalizer(owner) => self.finalizers(owner, Vec::push),
            Action::RemoveFinalizer(owner) => {
                self.finalizers(owner, |all, one| all.retain(|other| *other != one));
            }
            Action::ApplyService(body) => {
                self.applied = body.clone();
                let before = self.seen.service.take();
                let mut service: SlimService = read(body.clone());
                service.metadata.uid = Some("service".to_owned());
                service.metadata.resource_version = Some("1".to_owned());
                service.status = before.map(|before| before.status).unwrap_or_default();
                self.seen.service = Some(service);
            }
            Action::DeleteService(_) => self.seen.service = None,
            Action::SetEndpoint(endpoint) => {
                let infra = self.seen.infra.as_mut().unwrap();
                infra.spec.control_plane_endpoint = Some(endpoint.clone());
            }
            Action::WriteUserData {
                machine, bootstrap, ..
            } => {
                self.machine(machine).user_data = Some(UserData {
                    name: capi::user_data_secret(bootstrap),
                    uid: "secret".to_owned(),
                    resource_version: "1".to_owned(),
                    is_scrubbed: false,
                });
            }
            Action::ScrubUserData { machine, .. } => {
                self.machine(machine)
                    .user_data
                    .as_mut()
                    .unwrap()
                    .is_scrubbed = true;
            }
            Action::DeleteUserData { machine, .. } => self.machine(machine).user_data = None,
            Action::CreateVm { machine, body } => self.create(machine, body),
            Action::DeleteVm(target) => {
                let vm = self.machine(&target.name).vm.as_mut().unwrap();
                vm.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            }
            Action::DeleteInstance(target) => self.instance_is_gone(&target.name),
            Action::SetProviderId { machine, id } => {
                self.machine(machine).object.spec.provider_id = Some(id.clone());
            }
            Action::SetNodeProviderId { node, id, .. } => self.provider_id(node, id),
            Action::SetDrain { node, since, .. } => {
                let node = self.guest.nodes.get_mut(node).unwrap();
                node.drained_since = *since;
                node.unschedulable = since.is_some();
            }
            Action::Evict { .. } => {}
        }
    }

    fn create(&mut self, machine: &str, body: &Value) {
        if self.refuses.is_some() {
            let why = self.refuses.clone().unwrap();
            self.machine(machine).refused = Some(Refusal { why, is_due: false });
            return;
        }
        let mut vm: VirtualMachine = read(body.clone());
        vm.metadata.uid = Some(format!("vm-{machine}"));
        vm.metadata.resource_version = Some("1".to_owned());
        self.machine(machine).vm = Some(vm);
        self.made.insert(machine.to_owned(), body.clone());
    }

    fn finalizers(&mut self, owner: &Owner, change: impl Fn(&mut Vec<String>, String)) {
        let (meta, finalizer) = match owner {
            Owner::Cluster => (
                &mut self.seen.infra.as_mut().unwrap().metadata,
                capi::CLUSTER_FINALIZER,
            ),
            Owner::Machine(name) => (
                &mut self.machine(name).object.metadata,
                capi::MACHINE_FINALIZER,
            ),
        };
        change(
            meta.finalizers.get_or_insert_default(),
            finalizer.to_owned(),
        );
    }

    fn machine(&mut self, name: &str) -> &mut Machine {
        self.seen.machines.get_mut(name).unwrap()
    }

    pub fn add_machine(&mut self, name: &str, is_control_plane: bool) {
        let mut labels = json!({ capi::CLUSTER_NAME: "c" });
        if is_control_plane {
            labels[capi::CONTROL_PLANE_MACHINE] = json!("");
        }
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "KubevirtMachine",
            "metadata": { "name": name, "namespace": "ns", "uid": name, "labels": labels },
            "spec": { "virtualMachineTemplate": { "spec": {
                "runStrategy": "Always",
                "template": { "spec": {
                    "evictionStrategy": "External",
                    "domain": {
                        "cpu": { "cores": 2 }, "memory": { "guest": "4Gi" },
                        "devices": { "interfaces": [{ "name": "default", "bridge": {} }] },
                    },
                    "networks": [{ "name": "default", "pod": {} }],
                }},
            }}},
        });
        let owner = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": { "name": name, "namespace": "ns" }, "spec": { "clusterName": "c" },
        });
        let machine = Machine {
            object: read::<KubevirtMachine>(object),
            owner: Some(read::<core::Machine>(owner)),
            ..Machine::default()
        };
        self.seen.machines.insert(name.to_owned(), machine);
    }

    pub fn service_type(&mut self, type_: &str) {
        let infra: &mut KubevirtCluster = self.seen.infra.as_mut().unwrap();
        infra.spec.control_plane_service_template.spec.type_ = Some(type_.to_owned());
    }

    pub fn load_balancer(&mut self, ip: &str) {
        let status = json!({ "loadBalancer": { "ingress": [{ "ip": ip }] } });
        self.seen.service.as_mut().unwrap().status = read(status);
    }

    pub fn infrastructure_is_provisioned(&mut self) {
        let cluster = self.seen.cluster.as_mut().unwrap();
        cluster.status.get_or_insert_default().initialization = core::ClusterInitialization {
            infrastructure_provisioned: true,
            control_plane_initialized: true,
        };
    }

    pub fn boot_document(&mut self, name: &str) {
        let owner = self.machine(name).owner.as_mut().unwrap();
        owner.spec.bootstrap.data_secret_name = Some(format!("{name}-boot"));
    }

    pub fn runs(&mut self, name: &str, host: &str) {
        let instance = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": name, "namespace": "ns", "uid": "i", "resourceVersion": "1" },
            "spec": {},
            "status": {
                "phase": "Running", "nodeName": host,
                "interfaces": [{ "name": "default", "ipAddress": "10.0.0.1" }],
                "conditions": [
                    { "type": "Ready", "status": "True" },
                    { "type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable" },
                ],
            },
        });
        self.machine(name).instance = Some(read::<VirtualMachineInstance>(instance));
    }

    pub fn is_not_ready(&mut self, name: &str) {
        let instance = self.machine(name).instance.as_mut().unwrap();
        let status = instance.status.as_mut().unwrap();
        status.conditions.retain(|one| one.type_ != "Ready");
    }

    pub fn joins(&mut self, name: &str) {
        let node = GuestNode {
            uid: name.to_owned(),
            ready: true,
            ..GuestNode::default()
        };
        self.guest.nodes.insert(name.to_owned(), node);
    }

    pub fn provider_id(&mut self, name: &str, id: &str) {
        self.guest.nodes.get_mut(name).unwrap().provider_id = Some(id.to_owned());
    }

    /// Cluster API has found the Node.
    pub fn is_known(&mut self, name: &str) {
        let owner = self.machine(name).owner.as_mut().unwrap();
        owner.status.get_or_insert_default().node_ref = Some(core::NodeReference {
            name: name.to_owned(),
        });
    }

    pub fn must_leave(&mut self, name: &str) {
        let status = self
            .machine(name)
            .instance
            .as_mut()
            .unwrap()
            .status
            .as_mut()
            .unwrap();
        status.evacuation_node_name.clone_from(&status.node_name);
    }

    pub fn pods(&mut self, node: &str, pods: Vec<GuestPod>) {
        self.guest.pods.insert(node.to_owned(), pods);
    }

    pub fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub fn delete(&mut self, name: &str) {
        let meta = &mut self.machine(name).object.metadata;
        meta.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    }

    pub fn delete_cluster(&mut self) {
        let meta = &mut self.seen.infra.as_mut().unwrap().metadata;
        meta.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    }

    pub fn vm_is_gone(&mut self, name: &str) {
        self.machine(name).vm = None;
    }

    pub fn instance_is_gone(&mut self, name: &str) {
        self.machine(name).instance = None;
    }

    /// Objects that are to go and that nobody holds are gone.
    pub fn forget_gone(&mut self) {
        self.seen.machines.retain(|_, machine| {
            let meta = &machine.object.metadata;
            let is_held = meta.finalizers.as_ref().is_some_and(|all| !all.is_empty());
            meta.deletion_timestamp.is_none() || is_held
        });
    }

    /// Labels of the virtual machine that is there.
    pub fn labels_of_vm(&mut self, name: &str) -> &mut BTreeMap<String, String> {
        let vm = self.machine(name).vm.as_mut().unwrap();
        vm.metadata.labels.get_or_insert_default()
    }

    pub fn vm(&self, name: &str) -> &Value {
        &self.made[name]
    }

    pub fn node(&self, name: &str) -> &GuestNode {
        &self.guest.nodes[name]
    }

    pub fn status(&self, name: &str) -> KubevirtMachineStatus {
        self.seen.machines[name]
            .object
            .status
            .clone()
            .unwrap_or_default()
    }

    pub fn reason(&self, name: &str, type_: &str) -> String {
        self.told(name, type_, "reason")
    }

    pub fn message(&self, name: &str, type_: &str) -> String {
        self.told(name, type_, "message")
    }

    fn told(&self, name: &str, type_: &str, field: &str) -> String {
        let found = condition(Some(&self.status(name)), type_).unwrap_or_default();
        found[field].as_str().unwrap_or_default().to_owned()
    }

    pub fn cluster_reason(&self) -> String {
        self.of_cluster("reason")
    }

    pub fn cluster_message(&self) -> String {
        self.of_cluster("message")
    }

    fn of_cluster(&self, field: &str) -> String {
        let status = self.seen.infra.as_ref().unwrap().status.clone();
        let found = condition(status.as_ref(), "LoadBalancerAvailable").unwrap_or_default();
        found[field].as_str().unwrap_or_default().to_owned()
    }
}

/// A condition of a status.
pub fn condition<S: Serialize>(status: Option<&S>, type_: &str) -> Option<Value> {
    let status = serde_json::to_value(status).unwrap();
    let all = status["conditions"].as_array()?;
    all.iter().find(|one| one["type"] == type_).cloned()
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
