//! KubevirtMachineTemplate: size, disks, devices and hosts.

use guestcluster_api::labels;
use guestcluster_api::spec::{
    Binding, Device, DeviceKind, Disk, Image, ImageHttp, ImagePvc, Machine, MachineNetwork, Numa,
    Placement,
};
use serde_json::Value;

use super::value::{list, number, parsed, text};

const VM: &str = "/spec/template/spec/virtualMachineTemplate";

/// The specification of the instance.
pub(super) fn instance(template: &Value) -> &Value {
    let path = format!("{VM}/spec/template/spec");
    template.pointer(&path).unwrap_or(&Value::Null)
}

/// The tenant that machines are labelled with.
pub(super) fn tenant(template: &Value) -> Option<String> {
    let labels = template.pointer(&format!("{VM}/metadata/labels"))?;
    labels[labels::TENANT].as_str().map(str::to_owned)
}

/// Size and disks.
pub(super) fn machine(template: &Value) -> Machine {
    let own = Machine::default();
    let instance = instance(template);
    let cpu = |key: &str| number(instance, &format!("/domain/cpu/{key}")).unwrap_or(1);
    let memory = text(instance, "/domain/memory/guest")
        .or_else(|| text(instance, "/domain/resources/requests/memory"));
    let passes = instance.pointer("/domain/cpu/numa/guestMappingPassthrough");
    let isolates = instance.pointer("/domain/cpu/isolateEmulatorThread");
    Machine {
        cpu: cpu("cores") * cpu("sockets") * cpu("threads"),
        memory: memory.unwrap_or(own.memory),
        root_disk: disk(template, 0).unwrap_or_default(),
        etcd_disk: disk(template, 1),
        hugepages: text(instance, "/domain/memory/hugepages/pageSize"),
        numa: passes.map(|_| Numa::Passthrough),
        isolate_emulator_thread: isolates == Some(&Value::Bool(true)),
        priority_class_name: text(instance, "/priorityClassName"),
    }
}

/// The root disk comes first, etcd's second.
fn disk(template: &Value, number: usize) -> Option<Disk> {
    let disks = list(template, &format!("{VM}/spec/dataVolumeTemplates"));
    let spec = disks.get(number)?.get("spec")?;
    let storage = spec.get("storage").or_else(|| spec.get("pvc"))?;
    Some(Disk {
        size: text(storage, "/resources/requests/storage")?,
        storage_class_name: text(storage, "/storageClassName"),
        access_mode: parsed(storage, "/accessModes/0"),
    })
}

/// Where root disks come from.
pub(super) fn image(template: &Value) -> Image {
    let disks = list(template, &format!("{VM}/spec/dataVolumeTemplates"));
    let source = disks.first().map(|disk| &disk["spec"]["source"]);
    let at = |path: &str| source.and_then(|source| text(source, path));
    let of_container = || {
        let mut volumes = list(instance(template), "/volumes").iter();
        volumes.find_map(|volume| text(volume, "/containerDisk/image"))
    };
    let registry = at("/registry/url").or_else(of_container);
    Image {
        registry: registry.map(|url| url.strip_prefix("docker://").unwrap_or(&url).to_owned()),
        pvc: at("/pvc/name").map(|name| ImagePvc { name }),
        http: at("/http/url").map(|url| ImageHttp {
            url,
            checksum: String::new(),
        }),
    }
}

/// Which hosts.
pub(super) fn placement(instance: &Value) -> Placement {
    Placement {
        node_selector: parsed(instance, "/nodeSelector"),
        tolerations: parsed(instance, "/tolerations"),
    }
}

/// How machines are attached.
pub(super) fn network(instance: &Value) -> MachineNetwork {
    let interface = list(instance, "/domain/devices/interfaces").first();
    let is_masqueraded = interface.is_some_and(|interface| interface.get("masquerade").is_some());
    MachineNetwork {
        binding: if is_masqueraded {
            Binding::Masquerade
        } else {
            Binding::Bridge
        },
    }
}

/// Devices of hosts, each name once.
pub(super) fn devices(instance: &Value) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for (path, kind) in [
        ("/domain/devices/gpus", DeviceKind::Gpu),
        ("/domain/devices/hostDevices", DeviceKind::HostDevice),
    ] {
        for held in list(instance, path) {
            let Some(name) = text(held, "/deviceName") else {
                continue;
            };
            let known = devices.iter_mut().find(|one| one.device_name == name);
            match known {
                Some(device) => device.count += 1,
                None => devices.push(Device {
                    device_name: name,
                    kind,
                    count: 1,
                }),
            }
        }
    }
    devices
}
