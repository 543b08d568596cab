//! Renders the first-boot document of one machine from typed inputs.
//!
//! A machine is made a node by kubeadm, which cloud-init starts from the document rendered here:
//! `#cloud-config` with the files that kubeadm needs and one script that runs it. Nothing in it
//! is particular to an operating system beyond cloud-init, systemd and kubeadm.
//!
//! - [`render`]: the document for the first boot; holds keys and a token.
//! - [`scrubbed`]: what takes its place once the machine has joined; holds no secret.
//! - [`console`]: the lines that the scripts write to the machine's console, and how to read them.
//!
//! # Guarantees
//! - Equal inputs give equal bytes.
//! - What cannot work is refused with an [`Error`] that says what to change, before a machine is
//!   made.
//! - No secret reaches the console; files with secrets belong to root and are readable by no one
//!   else; workers get no private key at all.
//! - No user and no SSH key is added.
//!
//! # Assumes
//! The image carries cloud-init, systemd, containerd, kubelet and kubeadm of the wanted version,
//! and iproute2; for an etcd disk also util-linux and e2fsprogs. A control-plane machine (with
//! masquerade: every machine) has a Service of its own whose cluster address is known.

mod check;
mod cloud_config;
mod config;
pub mod console;
mod error;
mod files;
mod kubeadm;
mod patches;
mod reservation;
mod version;

pub use check::{is_domain, is_kubelet_label};
use cloud_config::CloudConfig;
pub use cloud_config::{USER_DATA_KEY, UserData};
pub use config::{
    API_SERVER_PORT, Binding, ClusterConfig, Components, Endpoint, MachineConfig, Role, Secrets,
    Taint, TaintEffect,
};
pub use error::Error;
pub use files::{PlainFile, converged_files, kernel_files};
pub use kubeadm::{ENCRYPTION_ALGORITHM, TOKEN_LIFETIME, cluster_configuration};
pub use patches::DIRECTORY as PATCHES;
pub use reservation::{Amount, Reservation, Size};
pub use version::Version;

/// The document for the first boot of a machine.
pub fn render(config: &MachineConfig, secrets: &Secrets<'_>) -> Result<UserData, Error> {
    check::check(config)?;
    let mut write_files = files::machine(config);
    write_files.extend(files::secret(config, secrets)?);
    let verb = match config.role {
        Role::Init { .. } => "init",
        Role::JoinControlPlane { .. } | Role::JoinWorker => "join",
    };
    let command = vec!["/bin/sh", files::BOOTSTRAP, verb];
    CloudConfig::new(&config.name, write_files, command).to_user_data()
}

/// The document that takes the first one's place once the machine has joined: free of keys and
/// tokens.
///
/// A restart of the machine needs nothing from it, because everything is on the disk by then. If
/// cloud-init runs it all the same (a new disk, or a new instance id), it tells the two cases
/// apart: with the state on the disk it says so and goes on, on a fresh disk it fails with a
/// line on the console, for a machine cannot join twice under one name.
pub fn scrubbed(config: &MachineConfig) -> Result<UserData, Error> {
    check::check(config)?;
    let command = vec!["/bin/sh", files::RESTART];
    CloudConfig::new(&config.name, files::restart(), command).to_user_data()
}

/// The meta-data that belongs to a document (NoCloud). KubeVirt makes the same by itself, with
/// the firmware UUID as `instance_id`; a machine host that has no KubeVirt needs it from here.
pub fn meta_data(config: &MachineConfig, instance_id: &str) -> String {
    format!(
        "instance-id: {instance_id}\nlocal-hostname: {}\n",
        config.name
    )
}
