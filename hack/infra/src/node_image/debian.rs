//! The Debian root of the node image.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::build_command::{Confined, run};
use crate::cache::{Cache, KeyBuilder, remove_folder};
use crate::host_packages;
use crate::progress::{Progress, mebibytes};

use super::tree;

/// The release.
const SUITE: &str = "bookworm";

/// What a node needs besides the smallest Debian.
const PACKAGES: &[&str] = &[
    // Boots and reads user data.
    "systemd",
    "systemd-sysv",
    "dbus",
    "cloud-init",
    // Runs containers. This runc is built with seccomp, and these are the standard CNI plugins.
    "runc",
    "containernetworking-plugins",
    // What kubeadm, kubelet and kube-proxy call.
    "conntrack",
    "ethtool",
    "iproute2",
    "iptables",
    "kmod",
    "mount",
    "nftables",
    "procps",
    "socat",
    "util-linux",
    // Certificates, names of ports, and tools to look around with.
    "busybox-static",
    "ca-certificates",
    "curl",
    "netbase",
];

/// Documentation and translations, which no node reads; and no waiting for the disk, which the build can repeat.
const PACKAGE_SETTINGS: &str = "force-unsafe-io
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/man/*
";

/// Keeps packages from starting services while they are installed.
const START_NOTHING: &str = "#!/bin/sh\nexit 101\n";

/// A Debian root, built.
pub(super) struct Debian {
    /// Its root folder.
    pub(super) root: PathBuf,
    /// Its packages with their versions, one a line.
    pub(super) packages: String,
}

/// Builds the root if the cache has none for this list of packages.
///
/// The key cannot hold the versions that the mirror will serve: they are read from the result.
pub(super) fn ensure(cache: &Cache, progress: &Progress) -> Result<Debian> {
    let key = KeyBuilder::default()
        .input("recipe", include_str!("debian.rs"))
        .input("architecture", std::env::consts::ARCH)
        .key();
    let folder = cache.ensure("debian", &key, progress, |folder| {
        host_packages::require_root("build a Debian root")?;
        build(folder, progress)
    })?;
    let file = folder.join("packages");
    Ok(Debian {
        root: folder.join("root"),
        packages: fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?,
    })
}

fn build(folder: &Path, progress: &Progress) -> Result<()> {
    let root = folder.join("root");
    let step = progress.step(format!("build a Debian {SUITE} root"));
    run(Confined::Host
        .command("debootstrap")
        .args(["--variant=minbase", SUITE])
        .arg(&root))?;
    step.done("");

    let step = progress.step(format!("install {} packages into it", PACKAGES.len()));
    fs::write(
        root.join("etc/dpkg/dpkg.cfg.d/node-image"),
        PACKAGE_SETTINGS,
    )?;
    let policy = root.join("usr/sbin/policy-rc.d");
    fs::write(&policy, START_NOTHING)?;
    fs::set_permissions(&policy, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    // The host's way to look up names, for as long as packages are fetched.
    let names = ["etc/resolv.conf", "etc/hosts"];
    for file in names {
        fs::copy(Path::new("/").join(file), root.join(file))
            .with_context(|| format!("copy /{file}"))?;
    }
    let apt = |arguments: &[&str]| {
        let mut command = Confined::Root(&root).command("apt-get");
        run(command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(arguments))
    };
    apt(&["-q", "update"])?;
    let install: Vec<&str> = ["-q", "-y", "--no-install-recommends", "install"]
        .iter()
        .chain(PACKAGES)
        .copied()
        .collect();
    apt(&install)?;
    apt(&["clean"])?;
    // Who a machine is, its first boot says; debootstrap has taken the builder's name.
    for file in names.iter().chain(&["etc/hostname", "etc/machine-id"]) {
        fs::remove_file(root.join(file)).with_context(|| format!("remove /{file} of the root"))?;
    }
    fs::remove_file(policy)?;
    for folder in [
        "var/lib/apt/lists",
        "usr/share/doc",
        "usr/share/info",
        "usr/share/locale",
        "usr/share/man",
    ] {
        remove_folder(&root.join(folder))?;
    }
    let packages = run(Confined::Root(&root).command("dpkg-query").args([
        "-W",
        "-f",
        "${Package}=${Version}\\n",
    ]))?;
    fs::write(folder.join("packages"), &packages)?;
    step.done(&format!(
        "{}, {} packages in all",
        mebibytes(tree::size(&root)?),
        packages.lines().count()
    ));
    Ok(())
}
