//! The machine that an instance asks for.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use serde_json::{Value, json};

use super::migratable::claim_of;
use crate::machine::{MachineSpec, Seed, SeedFormat};
use crate::network::{Binding, Port};
use crate::node_image::NodeImage;

/// Reads a value of a Secret, by name and the keys under which it may stand.
pub type SecretReader<'a> = &'a dyn Fn(&str, &[&str]) -> Option<Vec<u8>>;

/// Everything about an instance that stands elsewhere.
pub struct Surroundings<'a> {
    /// The namespace of the instance.
    pub namespace: &'a str,
    /// The address of its Pod.
    pub address: Ipv4Addr,
    /// The node image on a disk; an error says that nothing on it boots.
    pub image: &'a dyn Fn(&Path) -> anyhow::Result<NodeImage>,
    /// The folder of the disk behind a claim; none while the claim is not bound.
    pub disk: &'a dyn Fn(&str) -> Option<PathBuf>,
    /// The Secrets of its namespace.
    pub secret: SecretReader<'a>,
    /// The folder of this run.
    pub run: PathBuf,
}

/// The names of the Secrets that `instance` boots with.
pub fn secrets(instance: &Value) -> Vec<String> {
    let source = cloud_init(instance).map(|(_, source)| source);
    let names = ["/secretRef/name", "/networkDataSecretRef/name"].map(|path| {
        source
            .and_then(|source| source.pointer(path)?.as_str())
            .map(str::to_owned)
    });
    names.into_iter().flatten().collect()
}

/// The machine for `instance`, an object of KubeVirt's API.
///
/// The first disk with a claim is its root disk and the second its etcd disk, as they are listed.
pub fn machine(instance: &Value, around: &Surroundings<'_>) -> anyhow::Result<MachineSpec> {
    let name = text(instance, "/metadata/name").context("the instance has no name")?;
    let hostname = text(instance, "/spec/hostname").unwrap_or(name);
    let mut disks = disks(instance, around.disk)?.into_iter();
    let disk = disks
        .next()
        .context("the instance has no disk with a claim to boot from")?;
    Ok(MachineSpec {
        id: format!("{}.{name}", around.namespace),
        hostname: hostname.to_owned(),
        cpus: cpus(instance),
        memory_bytes: memory(instance)?,
        address: around.address,
        binding: binding(instance)?,
        mac: text(instance, "/spec/domain/devices/interfaces/0/macAddress")
            .map_or_else(|| mac_of(around.address), str::to_owned),
        image: (around.image)(&disk)?,
        disk,
        etcd_disk: disks.next(),
        seed: seed(instance, hostname, around)?,
        run: around.run.clone(),
    })
}

/// How the first interface is bound. Any binding that is not played is refused: one that is played wrong shows
/// nothing.
pub fn binding(instance: &Value) -> anyhow::Result<Binding> {
    let Some(interface) = instance.pointer("/spec/domain/devices/interfaces/0") else {
        return Ok(Binding::Bridge);
    };
    if interface.get("bridge").is_some() {
        return Ok(Binding::Bridge);
    }
    anyhow::ensure!(
        interface.get("masquerade").is_some(),
        "the machine host has no network binding but bridge and masquerade"
    );
    let ports = interface["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let port = |port: &Value| {
        let number = port["port"].as_u64().and_then(|n| u16::try_from(n).ok());
        Some(Port {
            udp: port["protocol"] == "UDP",
            number: number?,
        })
    };
    Ok(Binding::Masquerade(ports.iter().filter_map(port).collect()))
}

/// Virtual CPUs: sockets × cores × threads.
fn cpus(instance: &Value) -> u32 {
    ["sockets", "cores", "threads"]
        .iter()
        .filter_map(|part| instance.pointer("/spec/domain/cpu")?.get(part)?.as_u64())
        .filter_map(|count| u32::try_from(count).ok())
        .filter(|count| *count > 0)
        .product()
}

fn memory(instance: &Value) -> anyhow::Result<u64> {
    let stated = text(instance, "/spec/domain/memory/guest")
        .or_else(|| text(instance, "/spec/domain/resources/requests/memory"))
        .context("the instance states no memory")?;
    bytes(stated).with_context(|| format!("{stated} is no amount of memory"))
}

/// A quantity of bytes with a binary or decimal suffix.
pub fn bytes(quantity: &str) -> Option<u64> {
    let split = quantity
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(split);
    let factor: u64 = match suffix {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn disks(
    instance: &Value,
    folder: &dyn Fn(&str) -> Option<PathBuf>,
) -> anyhow::Result<Vec<PathBuf>> {
    let list = |path: &str| instance.pointer(path).and_then(Value::as_array);
    let volumes = list("/spec/volumes").map_or(&[][..], Vec::as_slice);
    let listed = list("/spec/domain/devices/disks").map_or(&[][..], Vec::as_slice);
    listed
        .iter()
        .filter_map(|disk| volumes.iter().find(|volume| volume["name"] == disk["name"]))
        .filter_map(claim_of)
        .map(|claim| folder(claim).with_context(|| format!("claim {claim} is not bound")))
        .collect()
}

/// The source of the cloud-init documents, and their format.
fn cloud_init(instance: &Value) -> Option<(SeedFormat, &Value)> {
    let volumes = instance.pointer("/spec/volumes")?.as_array()?;
    volumes.iter().find_map(|volume| {
        let no_cloud = volume.get("cloudInitNoCloud");
        let drive = volume.get("cloudInitConfigDrive");
        let no_cloud = no_cloud.map(|source| (SeedFormat::NoCloud, source));
        no_cloud.or(drive.map(|source| (SeedFormat::ConfigDrive, source)))
    })
}

fn seed(instance: &Value, hostname: &str, around: &Surroundings<'_>) -> anyhow::Result<Seed> {
    let (namespace, secret) = (around.namespace, around.secret);
    let (format, source) = cloud_init(instance)
        .context("the instance has no cloudInitNoCloud or cloudInitConfigDrive volume")?;
    let read = |inline: &str, encoded: &str, reference: &str, keys: &[&str]| {
        if let Some(name) = text(source, reference) {
            let value = secret(name, keys);
            return value.with_context(|| format!("secret {name} has no {}", keys.join(" or ")));
        }
        if let Some(plain) = text(source, inline) {
            return Ok(plain.as_bytes().to_vec());
        }
        let coded = text(source, encoded).context("nothing is stated")?;
        Ok(base64::engine::general_purpose::STANDARD.decode(coded)?)
    };
    let user_data = read(
        "/userData",
        "/userDataBase64",
        "/secretRef/name",
        &["userdata", "userData"],
    )
    .context("cloud-init user-data")?;
    let network = read(
        "/networkData",
        "/networkDataBase64",
        "/networkDataSecretRef/name",
        &["networkdata", "networkData"],
    );
    let uuid = text(instance, "/spec/domain/firmware/uuid")
        .context("the instance has no firmware UUID")?;
    // As KubeVirt writes them.
    let meta_data = match format {
        SeedFormat::NoCloud => json!({"instance-id": uuid, "local-hostname": hostname}),
        SeedFormat::ConfigDrive => {
            let name = text(instance, "/metadata/name").unwrap_or(hostname);
            let id = format!("{name}.{namespace}");
            json!({"instance_id": id, "hostname": hostname, "uuid": uuid})
        }
    };
    Ok(Seed {
        format,
        user_data,
        meta_data: meta_data.to_string(),
        network_config: network.ok().and_then(|bytes| String::from_utf8(bytes).ok()),
    })
}

/// The address that KubeVirt would take over from the Pod's interface: any, but one per Pod.
fn mac_of(address: Ipv4Addr) -> String {
    let [_, _, high, low] = address.octets();
    format!("02:67:63:4d:{high:02x}:{low:02x}")
}

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::{Surroundings, bytes, machine, secrets};
    use crate::network::{Binding, Port};
    use crate::node_image::NodeImage;
    use rstest::rstest;
    use serde_json::{Value, json};
    use std::net::Ipv4Addr;
    use std::path::PathBuf;

    fn image() -> NodeImage {
        let folder = || PathBuf::from("/image");
        NodeImage {
            kubernetes: "v1.36.3".into(),
            digest: "sha256:0".into(),
            reference: "registry.local/guest/node:v1.36.3@sha256:0".into(),
            base: folder(),
            layer: folder(),
            containerd: folder(),
        }
    }

    fn instance() -> Value {
        json!({
            "metadata": {"name": "prod-cp-1"},
            "spec": {
                "domain": {
                    "cpu": {"sockets": 1, "cores": 2, "threads": 1},
                    "memory": {"guest": "4Gi"},
                    "firmware": {"uuid": "d6a1f3e2-b0c9-4b1e-8f3c-0123456789ab"},
                    "devices": {"disks": [{"name": "root"}, {"name": "seed"}, {"name": "etcd"}]},
                },
                "volumes": [
                    {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "s"}}},
                    {"name": "etcd", "dataVolume": {"name": "prod-cp-1-etcd"}},
                    {"name": "root", "dataVolume": {"name": "prod-cp-1"}},
                ],
            },
        })
    }

    fn plan(instance: &Value, bound: bool) -> anyhow::Result<crate::machine::MachineSpec> {
        machine(
            instance,
            &Surroundings {
                namespace: "guests",
                address: Ipv4Addr::new(10, 244, 1, 10),
                image: &|_| Ok(image()),
                disk: &|claim| bound.then(|| PathBuf::from(claim)),
                secret: &|_, keys| (keys[0] == "userdata").then(|| b"#cloud-config".to_vec()),
                run: "/run".into(),
            },
        )
    }

    #[test]
    fn the_machine_is_what_the_instance_says() {
        let machine = plan(&instance(), true).unwrap();
        assert_eq!((machine.id.as_str(), machine.cpus), ("guests.prod-cp-1", 2));
        assert_eq!(machine.memory_bytes, 4 << 30);
        assert_eq!(machine.disk, PathBuf::from("prod-cp-1"));
        assert_eq!(machine.etcd_disk, Some(PathBuf::from("prod-cp-1-etcd")));
        assert!(
            machine
                .seed
                .meta_data
                .contains("d6a1f3e2-b0c9-4b1e-8f3c-0123456789ab")
        );
        assert_eq!(secrets(&instance()), ["s"]);
    }

    #[test]
    fn a_config_drive_tells_the_uuid_and_the_host_name() {
        let mut instance = instance();
        instance["spec"]["volumes"][0] =
            json!({"name": "seed", "cloudInitConfigDrive": {"secretRef": {"name": "s"}}});
        let seed = plan(&instance, true).unwrap().seed;
        assert_eq!(seed.format, crate::machine::SeedFormat::ConfigDrive);
        let expected = json!({
            "hostname": "prod-cp-1",
            "instance_id": "prod-cp-1.guests",
            "uuid": "d6a1f3e2-b0c9-4b1e-8f3c-0123456789ab",
        });
        assert_eq!(seed.meta_data, expected.to_string());
        assert_eq!(secrets(&instance), ["s"]);
    }

    #[test]
    fn a_claim_that_is_not_bound_is_named() {
        let error = plan(&instance(), false).unwrap_err();
        assert_eq!(error.to_string(), "claim prod-cp-1 is not bound");
    }

    #[rstest]
    #[case::bridge(json!({"bridge": {}}), Some(Binding::Bridge))]
    #[case::all_ports(json!({"masquerade": {}}), Some(Binding::Masquerade(vec![])))]
    #[case::listed_ports(
        json!({"masquerade": {}, "ports": [{"port": 6443}, {"port": 53, "protocol": "UDP"}]}),
        Some(Binding::Masquerade(vec![
            Port { udp: false, number: 6443 },
            Port { udp: true, number: 53 },
        ])))]
    #[case::not_played(json!({"sriov": {}}), None)]
    fn a_machine_is_bound_as_its_first_interface_says(
        #[case] interface: Value,
        #[case] expected: Option<Binding>,
    ) {
        let mut instance = instance();
        instance["spec"]["domain"]["devices"]["interfaces"] = json!([interface]);
        let binding = plan(&instance, true).map(|machine| machine.binding);
        assert_eq!(binding.ok(), expected);
    }

    #[test]
    fn amounts_of_memory_are_read() {
        assert_eq!(bytes("4Gi"), Some(4 << 30));
        assert_eq!(bytes("512M"), Some(512_000_000));
        assert_eq!(bytes("7"), Some(7));
        assert_eq!(bytes("8G1"), None);
    }
}
