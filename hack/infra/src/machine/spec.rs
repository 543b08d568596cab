//! What a machine is made of, and how it can end.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::network::Binding;
use crate::node_image::NodeImage;

/// What a VM is made of.
#[derive(Debug, Clone)]
pub struct MachineSpec {
    /// Unique in the infrastructure, and a file name: `<namespace>.<vm>`.
    pub id: String,
    /// Host name.
    pub hostname: String,
    /// CPUs it shows and may use at most.
    pub cpus: u32,
    /// Memory in bytes; the machine's own kernel keeps a share, as on a VM.
    pub memory_bytes: u64,
    /// The address of its Pod, a /32 behind the router.
    pub address: Ipv4Addr,
    /// Whether it has that address itself.
    pub binding: Binding,
    /// MAC address of `eth0`.
    pub mac: String,
    /// What is on its root disk before the first boot.
    pub image: NodeImage,
    /// The folder of its root disk; persists over restarts, may be empty or missing before the first.
    pub disk: PathBuf,
    /// The folder of a disk for `/var/lib/etcd`, if it has one of its own.
    pub etcd_disk: Option<PathBuf>,
    /// First-boot documents.
    pub seed: Seed,
    /// A folder of this run of the machine: console log and what it is started with.
    pub run: PathBuf,
}

/// In which of cloud-init's formats the first-boot documents are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeedFormat {
    /// KubeVirt's `cloudInitNoCloud`.
    NoCloud,
    /// KubeVirt's `cloudInitConfigDrive`: the layout of OpenStack.
    ConfigDrive,
}

/// cloud-init's first-boot documents.
#[derive(Debug, Clone)]
pub struct Seed {
    /// Their format.
    pub format: SeedFormat,
    /// The user-data, as it is in the Secret.
    pub user_data: Vec<u8>,
    /// The meta-data. Its `instance-id`, or on a config drive its `uuid`, must be the VM's firmware UUID:
    /// with another one cloud-init takes the machine for a new one and runs everything again.
    pub meta_data: String,
    /// The network configuration, if there is one.
    pub network_config: Option<String>,
}

/// How a machine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerState {
    /// It switched itself off.
    PowerOff,
    /// It asked to be started again.
    Reboot,
    /// Its pid 1 was killed: the plug was pulled.
    Killed,
}

impl PowerState {
    /// The exit code by which the helper tells.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Self::PowerOff => 10,
            Self::Reboot => 11,
            Self::Killed => 12,
        }
    }

    /// Any other end of the helper ends the machine too: the machine host kills what is left of it.
    pub(super) fn from_exit_code(code: Option<i32>) -> Self {
        [Self::PowerOff, Self::Reboot]
            .into_iter()
            .find(|state| code == Some(i32::from(state.exit_code())))
            .unwrap_or(Self::Killed)
    }
}

impl MachineSpec {
    /// Refuses what would reach beyond the machine's own folders or cannot boot.
    pub(super) fn check(&self) -> Result<()> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        ensure!(
            !self.id.is_empty() && self.id.chars().all(fits) && !self.id.starts_with('.'),
            "machine id {:?} is not a plain file name",
            self.id
        );
        ensure!(self.cpus > 0, "machine {} has no CPU", self.id);
        Ok(())
    }
}

impl Seed {
    /// The firmware UUID out of the meta-data (YAML, or JSON as KubeVirt writes it), without dashes.
    pub(super) fn machine_id(&self) -> Option<String> {
        let key = match self.format {
            SeedFormat::NoCloud => "instance-id",
            SeedFormat::ConfigDrive => "\"uuid\"",
        };
        let (_, rest) = self.meta_data.split_once(key)?;
        let value = rest.trim_start_matches(['"', ':', ' ', '\'']);
        let uuid: String = value
            .chars()
            .take_while(|c| c.is_ascii_hexdigit() || *c == '-')
            .filter(char::is_ascii_hexdigit)
            .collect();
        (uuid.len() == 32).then(|| uuid.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(meta_data: &str) -> Seed {
        Seed {
            format: SeedFormat::NoCloud,
            user_data: Vec::new(),
            meta_data: meta_data.to_owned(),
            network_config: None,
        }
    }

    #[test]
    fn the_machine_id_is_the_firmware_uuid() {
        let id = Some("d6a1f3e2b0c94b1e8f3c0123456789ab".to_owned());
        for text in [
            "instance-id: D6A1F3E2-b0c9-4b1e-8f3c-0123456789ab\nlocal-hostname: a\n",
            r#"{"instance-id":"d6a1f3e2-b0c9-4b1e-8f3c-0123456789ab","local-hostname":"a"}"#,
        ] {
            assert_eq!(seed(text).machine_id(), id, "{text}");
        }
        assert_eq!(seed("instance-id: iid-local01\n").machine_id(), None);
        assert_eq!(seed("local-hostname: a\n").machine_id(), None);
        let drive = Seed {
            format: SeedFormat::ConfigDrive,
            ..seed(
                r#"{"hostname":"a","instance_id":"a.b","uuid":"d6a1f3e2-b0c9-4b1e-8f3c-0123456789ab"}"#,
            )
        };
        assert_eq!(drive.machine_id(), id);
    }

    #[test]
    fn power_states_survive_the_exit_code() {
        for state in [PowerState::PowerOff, PowerState::Reboot, PowerState::Killed] {
            assert_eq!(
                PowerState::from_exit_code(Some(state.exit_code().into())),
                state
            );
        }
        assert_eq!(PowerState::from_exit_code(None), PowerState::Killed);
        assert_eq!(PowerState::from_exit_code(Some(1)), PowerState::Killed);
    }
}
