//! The VirtualMachine of a machine.

use guestcluster_api::labels::{self, Role};
use guestcluster_api::names;
use guestcluster_api::spec::{DeviceKind, Machine, Profile, Topology};
use serde_json::{Map, Value, json};

use super::{digest, machine_labels, metadata, role_selector};
use crate::action::{Kind, Object};
use crate::wanted::{Pool, Wanted};

/// Seconds that a machine has to shut down before its plug is pulled: a guest's Pods with the
/// default grace of 30 s end well within it.
const TERMINATION_GRACE_SECONDS: u32 = 120;

/// A machine's firmware UUID, which the guest shows as its system UUID and cloud-init takes for the
/// instance: a function of the cluster's UID and the machine's name, so that a machine keeps it
/// whatever else happens and no two machines share one.
pub fn firmware_uuid(wanted: &Wanted, machine: &str) -> String {
    let hash = digest(&format!("{}/{machine}", wanted.identity.uid), 32);
    // Version 8 (RFC 9562): a value made by rules of our own.
    let parts = [&hash[..8], &hash[8..12], &format!("8{}", &hash[13..16])];
    format!("{}-a{}-{}", parts.join("-"), &hash[17..20], &hash[20..])
}

/// Digest of all that makes a machine of this pool what it is. It is taken over the specification,
/// never over the rendered object, so that another release of the operator with other defaults
/// finds no machine outdated.
pub fn template_hash(wanted: &Wanted, pool: &Pool) -> String {
    let mut template = json!({
        "version": wanted.version,
        "image": wanted.image,
        "machine": pool.machine,
        "placement": pool.placement,
        "network": wanted.network.machine,
    });
    // What a pool has none of is not written: machines older than this field keep their hash.
    if pool.has_devices() {
        template["devices"] = json!(pool.devices);
    }
    if pool.role == Role::ControlPlane {
        let control_plane = &wanted.control_plane;
        template["components"] = json!([
            control_plane.api_server,
            control_plane.controller_manager,
            control_plane.scheduler,
            control_plane.etcd,
        ]);
        // What is as it always was is not written: machines older than these fields keep their hash.
        if wanted.topology != Topology::default() {
            template["topology"] = json!(wanted.topology);
        }
        if wanted.profile != Profile::default() {
            template["profile"] = json!(wanted.profile);
        }
    }
    digest(&template.to_string(), 16)
}

/// Digest of kubeadm's configuration in the guest, taken over what it is rendered from.
pub fn configuration_digest(wanted: &Wanted, endpoint: &(String, u16), names: &[String]) -> String {
    let control_plane = &wanted.control_plane;
    let configuration = json!({
        "version": wanted.version,
        "endpoint": endpoint,
        "certSANs": names,
        "certificateValidityPeriod": control_plane.certificate_validity_period,
        "network": wanted.network,
        "components": [
            control_plane.api_server,
            control_plane.controller_manager,
            control_plane.scheduler,
            control_plane.etcd,
        ],
    });
    digest(&configuration.to_string(), 16)
}

/// The VirtualMachine of a machine: written once, when the machine is made. Where a person deleted it
/// and it comes back on its disk, the disk tells which template the machine was made from.
pub fn vm(wanted: &Wanted, pool: &Pool, (machine, made_from): (&str, Option<&str>)) -> Object {
    let mut labels = machine_labels(wanted, pool, machine);
    if wanted.is_masqueraded() {
        labels.insert(
            labels::STABLE_ADDRESS.to_owned(),
            labels::STABLE_ADDRESS_SERVICE.to_owned(),
        );
    }
    if pool.role == Role::ControlPlane && wanted.profile == Profile::Lab {
        // Admission asks a control plane for a host of its own, unless it says that it needs none.
        labels.insert(labels::PROFILE.to_owned(), labels::PROFILE_LAB.to_owned());
    }
    let mut own_labels = labels.clone();
    let hash = made_from.map_or_else(|| template_hash(wanted, pool), str::to_owned);
    own_labels.insert(labels::TEMPLATE_HASH.to_owned(), hash);
    let mut template_labels = labels;
    if pool.role == Role::ControlPlane {
        template_labels.insert(
            labels::ENDPOINT.to_owned(),
            labels::ENDPOINT_SERVING.to_owned(),
        );
    }
    let body = json!({
        "apiVersion": Kind::VirtualMachine.api_version(),
        "kind": Kind::VirtualMachine.name(),
        "metadata": metadata(wanted, machine, &own_labels),
        "spec": {
            "runStrategy": "Always",
            "template": {
                "metadata": {
                    "labels": template_labels,
                    // KubeVirt would add it; a map that we own in part loses what we do not state.
                    "annotations": { "kubevirt.io/pci-topology-version": "v3" },
                },
                "spec": template_spec(wanted, pool, machine),
            },
        },
    });
    Object {
        kind: Kind::VirtualMachine,
        name: machine.to_owned(),
        body,
    }
}

fn template_spec(wanted: &Wanted, pool: &Pool, machine: &str) -> Value {
    let mut spec = Map::new();
    let mut set = |key: &str, value: Value| spec.insert(key.to_owned(), value);
    set("evictionStrategy", json!("External"));
    set(
        "terminationGracePeriodSeconds",
        json!(TERMINATION_GRACE_SECONDS),
    );
    set("topologySpreadConstraints", spread(wanted, pool));
    set("domain", domain(wanted, pool, machine));
    set("networks", json!([{ "name": "default", "pod": {} }]));
    set("volumes", volumes(&pool.machine, machine));
    if !pool.placement.node_selector.is_empty() {
        set("nodeSelector", json!(pool.placement.node_selector));
    }
    if !pool.placement.tolerations.is_empty() {
        set("tolerations", json!(pool.placement.tolerations));
    }
    if let Some(class) = &pool.machine.priority_class_name {
        set("priorityClassName", json!(class));
    }
    if pool.role == Role::ControlPlane {
        if wanted.profile == Profile::Production {
            set("affinity", anti_affinity(wanted));
        }
        set("readinessProbe", readiness());
    }
    Value::Object(spec)
}

/// No two control-plane machines of a cluster on one host: required, not wished for.
fn anti_affinity(wanted: &Wanted) -> Value {
    json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": { "matchLabels": role_selector(wanted, Role::ControlPlane) },
    }]}})
}

/// Zones are spread over where hosts have them, and workers over hosts; a preference, so that the
/// loss of a zone does not hinder recovery.
fn spread(wanted: &Wanted, pool: &Pool) -> Value {
    let mut selector = role_selector(wanted, pool.role);
    let constraint = |key: &str, selector: &Value| {
        json!({
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": selector },
        })
    };
    if pool.role == Role::ControlPlane {
        return json!([constraint(labels::ZONE, &selector)]);
    }
    selector[labels::POOL] = json!(pool.name);
    json!([
        constraint(labels::ZONE, &selector),
        constraint("kubernetes.io/hostname", &selector),
    ])
}

/// Ready means that the machine's own API server says so. The period is short because a Service
/// sends an equal share of new connections to every endpoint until a dead one is taken out.
fn readiness() -> Value {
    json!({
        "httpGet": { "path": "/readyz", "port": 6443, "scheme": "HTTPS" },
        "periodSeconds": 2,
        "timeoutSeconds": 2,
        "failureThreshold": 2,
        "successThreshold": 1,
    })
}

fn domain(wanted: &Wanted, pool: &Pool, name: &str) -> Value {
    let machine = &pool.machine;
    let mut cpu = json!({
        "sockets": 1,
        "cores": machine.cpu,
        "threads": 1,
        "dedicatedCpuPlacement": true,
    });
    if machine.isolate_emulator_thread {
        cpu["isolateEmulatorThread"] = json!(true);
    }
    if machine.numa.is_some() {
        cpu["numa"] = json!({ "guestMappingPassthrough": {} });
    }
    let mut memory = json!({ "guest": machine.memory });
    if let Some(size) = &machine.hugepages {
        memory["hugepages"] = json!({ "pageSize": size });
    }
    // Requests are stated beside the guest's memory: KubeVirt's memoryOvercommit setting would
    // otherwise ask for less, and a pinned machine's limit would lie below its own size. The CPU
    // limit is stated because KubeVirt v1.8 looks there alone when it chooses how to migrate.
    let resources = json!({ "cpu": machine.cpu.to_string(), "memory": machine.memory });
    let uuid = firmware_uuid(wanted, name);
    json!({
        "cpu": cpu,
        "memory": memory,
        "resources": { "requests": resources, "limits": resources },
        "firmware": { "uuid": uuid, "serial": uuid },
        "devices": devices(wanted, pool),
    })
}

fn devices(wanted: &Wanted, pool: &Pool) -> Value {
    let mut devices = json!({
        "autoattachGraphicsDevice": false,
        "rng": {},
        "disks": disks(&pool.machine),
        "interfaces": [interface(wanted)],
    });
    let (gpus, others) = (
        held(pool, DeviceKind::Gpu),
        held(pool, DeviceKind::HostDevice),
    );
    if !gpus.is_empty() {
        devices["gpus"] = Value::Array(gpus);
    }
    if !others.is_empty() {
        devices["hostDevices"] = Value::Array(others);
    }
    devices
}

/// Devices of one kind, each under a name of its own. KubeVirt gives a vGPU a display unless it is
/// told not to, and such a machine does not start without a graphics device.
fn held(pool: &Pool, kind: DeviceKind) -> Vec<Value> {
    let of_kind = pool.devices.iter().filter(|device| device.kind == kind);
    let single = of_kind.flat_map(|device| (0..device.count).map(|_| &device.device_name));
    let rendered = single.zip(1..).map(|(device, number)| match kind {
        DeviceKind::Gpu => json!({
            "name": format!("gpu-{number}"),
            "deviceName": device,
            "virtualGPUOptions": { "display": { "enabled": false } },
        }),
        DeviceKind::HostDevice => {
            json!({ "name": format!("device-{number}"), "deviceName": device })
        }
    });
    rendered.collect()
}

/// Behind masquerade no port is listed: all of them lead to the machine.
fn interface(wanted: &Wanted) -> Value {
    let binding = if wanted.is_masqueraded() {
        "masquerade"
    } else {
        "bridge"
    };
    json!({ "name": "default", binding: {}, "model": "virtio" })
}

fn disks(machine: &Machine) -> Value {
    let mut disks = vec![json!({ "name": "root", "bootOrder": 1, "disk": { "bus": "virtio" } })];
    if machine.etcd_disk.is_some() {
        disks.push(json!({ "name": "etcd", "serial": "etcd", "disk": { "bus": "virtio" } }));
    }
    disks.push(json!({ "name": "cloud-init", "disk": { "bus": "virtio" } }));
    Value::Array(disks)
}

fn volumes(machine: &Machine, name: &str) -> Value {
    let mut volumes =
        vec![json!({ "name": "root", "dataVolume": { "name": names::root_disk(name) } })];
    if machine.etcd_disk.is_some() {
        volumes.push(json!({ "name": "etcd", "dataVolume": { "name": names::etcd_disk(name) } }));
    }
    volumes.push(json!({
        "name": "cloud-init",
        "cloudInitNoCloud": { "secretRef": { "name": names::user_data_secret(name) } },
    }));
    Value::Array(volumes)
}
