//! A Cluster of Cluster API as CAPK's release leaves it: one control-plane machine and one worker, at rest.

use std::collections::BTreeMap;

use guestcluster_bridge::adopt::seen::{EtcdPod, GuestNode};
use guestcluster_bridge::adopt::{Guest, Kind, Seen};
use guestcluster_planner::observed::Probe;
use serde_json::{Value, json};

/// Version of the guest.
pub const VERSION: &str = "v1.36.3";
/// Its two machines: Machine, and what CAPK calls all else of it. Their names differ, as after an upgrade of
/// old clusters.
pub const MACHINES: [(&str, &str); 2] = [("prod-x1", "prod-cp-abc"), ("prod-w-y1", "prod-w-def")];

/// Nothing stands against it.
pub fn at_rest() -> Seen {
    let objects = [
        vec![cluster(), kubeadm(), infrastructure(), deployment(), set()],
        vec![
            template("prod"),
            template("prod-w"),
            config_template(),
            service(),
        ],
        machine(0),
        machine(1),
    ];
    let mut by_kind: BTreeMap<Kind, Vec<Value>> = BTreeMap::new();
    for kind in Kind::ALL {
        by_kind.insert(kind, Vec::new());
    }
    for object in objects.into_iter().flatten() {
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| object["kind"] == kind.as_str());
        by_kind.entry(kind.unwrap()).or_default().push(object);
    }
    Seen {
        namespace: "tenant-a".to_owned(),
        name: "prod".to_owned(),
        objects: by_kind
            .into_iter()
            .map(|(kind, all)| (kind, Probe::Known(all)))
            .collect(),
        secrets: Probe::Known(secrets()),
        namespace_labels: Probe::Known(BTreeMap::new()),
        guest: Probe::Known(guest()),
    }
}

/// The first object of that kind, to be changed.
pub fn first(seen: &mut Seen, kind: Kind) -> &mut Value {
    &mut all(seen, kind)[0]
}

/// Objects of a kind, to be changed.
pub fn all(seen: &mut Seen, kind: Kind) -> &mut Vec<Value> {
    match seen.objects.get_mut(&kind) {
        Some(Probe::Known(all)) => all,
        other => panic!("{other:?}"),
    }
}

/// The guest, to be changed.
pub fn guest_of(seen: &mut Seen) -> &mut Guest {
    match &mut seen.guest {
        Probe::Known(guest) => guest,
        other => panic!("{other:?}"),
    }
}

fn object(kind: Kind, name: &str, spec: &Value) -> Value {
    let (group, version) = kind.group_version();
    let group = if group.is_empty() {
        String::new()
    } else {
        format!("{group}/")
    };
    json!({
        "apiVersion": format!("{group}{version}"), "kind": kind.as_str(),
        "metadata": {
            "name": name, "namespace": "tenant-a", "uid": format!("uid-{name}"), "generation": 2,
            "labels": { "cluster.x-k8s.io/cluster-name": "prod" },
        },
        "spec": spec,
    })
}

fn cluster() -> Value {
    let reference =
        |group: &str, kind: &str| json!({ "apiGroup": group, "kind": kind, "name": "prod" });
    let mut cluster = object(
        Kind::Cluster,
        "prod",
        &json!({
            "clusterNetwork": {
                "pods": { "cidrBlocks": ["10.243.0.0/16"] },
                "services": { "cidrBlocks": ["10.95.0.0/16"] },
                "serviceDomain": "cluster.local",
            },
            "controlPlaneEndpoint": { "host": "203.0.113.7", "port": 6443 },
            "infrastructureRef": reference("infrastructure.cluster.x-k8s.io", "KubevirtCluster"),
            "controlPlaneRef": reference("controlplane.cluster.x-k8s.io", "KubeadmControlPlane"),
        }),
    );
    cluster["metadata"]["finalizers"] = json!(["cluster.cluster.x-k8s.io"]);
    cluster
}

/// One machine is wanted, and it is there.
fn settled(mut object: Value) -> Value {
    object["status"] = json!({
        "observedGeneration": 2, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "upToDateReplicas": 1,
    });
    object
}

fn kubeadm() -> Value {
    let template = json!({
        "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "KubevirtMachineTemplate", "name": "prod",
    });
    let mut kubeadm = settled(object(
        Kind::KubeadmControlPlane,
        "prod",
        &json!({
            "replicas": 1, "version": VERSION,
            "machineTemplate": { "spec": { "infrastructureRef": template } },
            "kubeadmConfigSpec": {},
        }),
    ));
    kubeadm["metadata"]["finalizers"] = json!(["kubeadm.controlplane.cluster.x-k8s.io"]);
    kubeadm["status"]["conditions"] = json!([{ "type": "EtcdClusterHealthy", "status": "True" }]);
    kubeadm
}

fn infrastructure() -> Value {
    let mut object = object(
        Kind::KubevirtCluster,
        "prod",
        &json!({
            "controlPlaneServiceTemplate": { "spec": { "type": "LoadBalancer" } },
            "controlPlaneEndpoint": { "host": "203.0.113.7", "port": 6443 },
        }),
    );
    object["metadata"]["finalizers"] = json!(["kubevirtcluster.infrastructure.cluster.x-k8s.io"]);
    object
}

fn deployment() -> Value {
    let reference = |kind: &str| json!({ "kind": kind, "name": "prod-w" });
    settled(object(
        Kind::MachineDeployment,
        "prod-w",
        &json!({
            "clusterName": "prod", "replicas": 1,
            "template": { "spec": {
                "clusterName": "prod", "version": VERSION,
                "bootstrap": { "configRef": reference("KubeadmConfigTemplate") },
                "infrastructureRef": reference("KubevirtMachineTemplate"),
            } },
        }),
    ))
}

fn set() -> Value {
    let spec = json!({ "clusterName": "prod", "replicas": 1 });
    let mut set = object(Kind::MachineSet, "prod-w-5x", &spec);
    set["metadata"]["labels"]["cluster.x-k8s.io/deployment-name"] = json!("prod-w");
    set
}

fn template(name: &str) -> Value {
    let disk = json!({
        "metadata": { "name": "root" },
        "spec": {
            "source": { "registry": { "url": "docker://r.example.com/node:v1" } },
            "storage": { "resources": { "requests": { "storage": "20Gi" } } },
        },
    });
    let instance = json!({
        "domain": { "cpu": { "cores": 2 }, "memory": { "guest": "4Gi" } },
        "networks": [{ "name": "default", "pod": {} }],
    });
    let vm = json!({ "spec": { "dataVolumeTemplates": [disk], "template": { "spec": instance } } });
    let spec = json!({ "template": { "spec": { "virtualMachineTemplate": vm } } });
    object(Kind::KubevirtMachineTemplate, name, &spec)
}

fn config_template() -> Value {
    let spec = json!({ "template": { "spec": { "joinConfiguration": {} } } });
    object(Kind::KubeadmConfigTemplate, "prod-w", &spec)
}

fn service() -> Value {
    let mut service = object(
        Kind::Service,
        "prod-lb",
        &json!({
            "type": "LoadBalancer", "clusterIP": "10.96.0.9", "ports": [{ "port": 6443 }],
            "selector": {
                "cluster.x-k8s.io/role": "control-plane", "cluster.x-k8s.io/cluster-name": "prod",
            },
        }),
    );
    service["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "203.0.113.7" }] } });
    service
}

/// All objects of one machine.
fn machine(number: usize) -> Vec<Value> {
    let (machine, name) = MACHINES[number];
    let is_control_plane = number == 0;
    let mut of_core = object(
        Kind::Machine,
        machine,
        &json!({
            "clusterName": "prod",
            "bootstrap": {
                "configRef": { "kind": "KubeadmConfig", "name": machine }, "dataSecretName": machine,
            },
            "infrastructureRef": { "kind": "KubevirtMachine", "name": name },
        }),
    );
    of_core["metadata"]["finalizers"] = json!(["machine.cluster.x-k8s.io"]);
    of_core["status"] = json!({ "phase": "Running", "nodeRef": { "name": name } });
    let (label, owner) = if is_control_plane {
        (
            ("cluster.x-k8s.io/control-plane", ""),
            ("KubeadmControlPlane", "prod"),
        )
    } else {
        (
            ("cluster.x-k8s.io/deployment-name", "prod-w"),
            ("MachineSet", "prod-w-5x"),
        )
    };
    of_core["metadata"]["labels"][label.0] = json!(label.1);
    of_core["metadata"]["ownerReferences"] = json!([{ "kind": owner.0, "name": owner.1 }]);
    let config = object(Kind::KubeadmConfig, machine, &json!({}));
    let mut of_capk = object(
        Kind::KubevirtMachine,
        name,
        &json!({
            "virtualMachineTemplate": { "metadata": { "namespace": "tenant-a" } },
        }),
    );
    of_capk["metadata"]["finalizers"] = json!(["kubevirtmachine.infrastructure.cluster.x-k8s.io"]);
    let mut vm = object(
        Kind::VirtualMachine,
        name,
        &json!({
            "template": { "spec": { "networks": [{ "name": "default", "pod": {} }] } },
        }),
    );
    vm["metadata"]["labels"]["capk.cluster.x-k8s.io/kubevirt-machine-name"] = json!(name);
    vm["metadata"]["labels"]["capk.cluster.x-k8s.io/kubevirt-machine-namespace"] =
        json!("tenant-a");
    let mut instance = object(Kind::VirtualMachineInstance, name, &json!({}));
    instance["metadata"]["uid"] = json!(format!("run-of-{name}"));
    instance["status"] = json!({
        "phase": "Running", "nodeName": format!("host-{number}"),
        "conditions": [{ "type": "Ready", "status": "True" }],
    });
    vec![of_core, config, of_capk, vm, instance]
}

fn secrets() -> Vec<guestcluster_bridge::adopt::Secret> {
    let owned =
        |kind: &str| json!([{ "apiVersion": "x/v1", "kind": kind, "name": "prod", "uid": "1" }]);
    let mut all = Vec::new();
    for name in ["ca", "etcd", "proxy", "sa"] {
        all.push(json!({
            "metadata": { "name": format!("prod-{name}"), "ownerReferences": owned("KubeadmControlPlane") },
            "data": { "tls.crt": "c2VjcmV0", "tls.key": "c2VjcmV0" },
        }));
    }
    all.push(json!({
        "metadata": { "name": "prod-kubeconfig", "ownerReferences": owned("KubeadmControlPlane") },
        "data": { "value": "c2VjcmV0" },
    }));
    all.push(json!({
        "metadata": { "name": "prod-ssh-keys", "ownerReferences": owned("KubevirtCluster") },
        "data": { "pub": "c2VjcmV0", "key": "c2VjcmV0" },
    }));
    for (machine, _) in MACHINES {
        all.push(json!({
            "metadata": { "name": format!("{machine}-userdata") }, "data": { "userdata": "c2VjcmV0" },
        }));
    }
    all.into_iter()
        .map(|one| serde_json::from_value(one).unwrap())
        .collect()
}

fn guest() -> Guest {
    let node = |number: usize| {
        let name = MACHINES[number].1;
        let node = GuestNode {
            ready: true,
            cordoned: false,
            provider_id: Some(format!("kubevirt://{name}")),
            kubelet: VERSION.to_owned(),
        };
        (name.to_owned(), node)
    };
    Guest {
        server: "203.0.113.7:6443".to_owned(),
        nodes: [node(0), node(1)].into(),
        etcd: vec![EtcdPod {
            node: MACHINES[0].1.to_owned(),
            member: Some(MACHINES[0].1.to_owned()),
            ready: true,
        }],
        configuration: json!({ "networking": {
            "podSubnet": "10.243.0.0/16", "serviceSubnet": "10.95.0.0/16", "dnsDomain": "cluster.local",
        } }),
    }
}
