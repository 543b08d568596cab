//! The files that a machine is given.

use guestcluster_pki::{CertificateAuthority, ClusterPki};

use crate::{
    Error, MachineConfig, Reservation, Secrets, Size, cloud_config::File, kubeadm, patches,
};

/// Makes the machine a node; its argument is `init` or `join`.
pub(crate) const BOOTSTRAP: &str = "/usr/local/lib/guestcluster/bootstrap";
/// Says at every later boot what became of the first.
pub(crate) const RESTART: &str = "/usr/local/lib/guestcluster/restart";
const CONSOLE: &str = "/usr/local/lib/guestcluster/console";
const ETCD_DISK: &str = "/usr/local/lib/guestcluster/etcd-disk";

const KUBEADM_CONFIG: &str = "/run/kubeadm/kubeadm.yaml";
const UNITS: &str = "/etc/systemd/system";
const PKI: &str = "/etc/kubernetes/pki";

/// What kubeadm and pod networks need of the kernel, at every boot.
const KERNEL: [(&str, &str); 2] = [
    ("/etc/modules-load.d/guestcluster.conf", "br_netfilter\n"),
    (
        "/etc/sysctl.d/99-guestcluster.conf",
        include_str!("units/sysctl.conf"),
    ),
];

/// A file that anybody may read, as another maker of first-boot documents needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainFile {
    /// Where it is written.
    pub path: String,
    /// What it holds.
    pub content: String,
}

/// What kubeadm and pod networks need of the kernel.
pub fn kernel_files() -> Vec<PlainFile> {
    let plain = |(path, content): (&str, &str)| PlainFile {
        path: path.to_owned(),
        content: content.to_owned(),
    };
    KERNEL.map(plain).into()
}

/// kubeadm's patches, in [`PATCHES`](crate::PATCHES), that keep room on a converged machine of that
/// size.
pub fn converged_files(size: Size) -> Vec<PlainFile> {
    let plain = |file: File| PlainFile {
        content: file.content.to_string(),
        path: file.path,
    };
    patches::files(Reservation::of(size)).map(plain).into()
}

/// Files without secrets for the first boot.
pub(crate) fn machine(config: &MachineConfig) -> Vec<File> {
    let mut files = restart();
    files.push(File::public(
        BOOTSTRAP,
        include_str!("scripts/bootstrap.sh"),
    ));
    files.push(unit(
        "guestcluster-restart.service",
        include_str!("units/restart.service"),
    ));
    files.extend(KERNEL.map(|(path, text)| File::public(path, text)));
    files.push(unit(
        "kubelet.service.d/20-guestcluster.conf",
        include_str!("units/kubelet.conf"),
    ));
    if let Some(address) = config.service_address {
        let text = include_str!("units/address.service").replace("ADDRESS", &address.to_string());
        files.push(unit("guestcluster-address.service", &text));
    }
    if let Some(size) = config.converged {
        files.extend(patches::files(Reservation::of(size)));
    }
    if config.role.has_etcd_disk() {
        files.push(File::public(
            ETCD_DISK,
            include_str!("scripts/etcd-disk.sh"),
        ));
        files.push(unit(
            "guestcluster-etcd-disk.service",
            include_str!("units/etcd-disk.service"),
        ));
        files.push(unit(
            "kubelet.service.d/30-guestcluster-etcd-disk.conf",
            include_str!("units/kubelet-etcd-disk.conf"),
        ));
    }
    files
}

/// Files for the document that takes the first one's place.
pub(crate) fn restart() -> Vec<File> {
    vec![
        File::public(CONSOLE, include_str!("scripts/console.sh")),
        File::public(RESTART, include_str!("scripts/restart.sh")),
    ]
}

/// Files with secrets, or that come with them.
pub(crate) fn secret(config: &MachineConfig, secrets: &Secrets<'_>) -> Result<Vec<File>, Error> {
    let mut files = match secrets {
        Secrets::ControlPlane { pki, .. } => key_material(pki),
        Secrets::Worker { .. } => Vec::new(),
    };
    files.push(File::secret(
        KUBEADM_CONFIG,
        &kubeadm::documents(config, secrets)?,
    ));
    Ok(files)
}

fn unit(name: &str, content: &str) -> File {
    File::public(&format!("{UNITS}/{name}"), content)
}

fn key_material(pki: &ClusterPki) -> Vec<File> {
    let authority = |name: &str, authority: &CertificateAuthority| {
        [
            File::public(&format!("{PKI}/{name}.crt"), authority.certificate().pem()),
            File::secret(&format!("{PKI}/{name}.key"), authority.key().expose_pem()),
        ]
    };
    let mut files = Vec::new();
    files.extend(authority("ca", &pki.kubernetes));
    files.extend(authority("etcd/ca", &pki.etcd));
    files.extend(authority("front-proxy-ca", &pki.front_proxy));
    files.push(File::public(
        &format!("{PKI}/sa.pub"),
        pki.service_account.public_pem(),
    ));
    files.push(File::secret(
        &format!("{PKI}/sa.key"),
        pki.service_account.private().expose_pem(),
    ));
    files
}
