//! The Debian packages that the host needs, installed when their programs are missing.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::build_command::{bound, run};
use crate::progress::Progress;

/// How a package shows that it is installed.
enum Evidence {
    /// A program in the search path.
    Program(&'static str),
    /// A file.
    File(&'static str),
}

struct Package {
    name: &'static str,
    evidence: Evidence,
}

/// What building and running need, with what shows that it is there.
const PACKAGES: &[Package] = &[
    // Builds the root of the guest machines.
    package("debootstrap", Evidence::Program("debootstrap")),
    // Link flanneld, the one program that has C code.
    package("gcc", Evidence::Program("gcc")),
    package("libc6-dev", Evidence::File("/usr/include/stdlib.h")),
    // Namespaces, their links and routes.
    package("iproute2", Evidence::Program("ip")),
    package("util-linux", Evidence::Program("nsenter")),
    // kube-proxy of the infrastructure runs these.
    package("iptables", Evidence::Program("iptables")),
    package("nftables", Evidence::Program("nft")),
    package("conntrack", Evidence::Program("conntrack")),
    // The disk under a machine's etcd is a file system of its own.
    package("e2fsprogs", Evidence::Program("mkfs.ext4")),
    // A disk that is slow is played by holding back system calls.
    package("strace", Evidence::Program("strace")),
];

const fn package(name: &'static str, evidence: Evidence) -> Package {
    Package { name, evidence }
}

/// Installs what is missing; returns at once when nothing is.
///
/// Fails, saying what to do, when something is missing and the caller is not root or the host has no apt-get.
pub fn ensure(progress: &Progress) -> Result<()> {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|package| !present(&package.evidence))
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if find_program("apt-get").is_none() {
        bail!(
            "this host lacks {names}, and has no apt-get to install them: the local infrastructure wants Debian"
        );
    }
    require_root(&format!("install {names}"))?;
    let step = progress.step(format!("install {names}"));
    // A package list that is missing or old makes the installation fail with names that nobody knows.
    run(bound("apt-get").args(["-q", "update"]))?;
    run(bound("apt-get")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args([
            "-q",
            "-y",
            "--no-install-recommends",
            "-o",
            "DPkg::Lock::Timeout=300",
            "install",
        ])
        .args(&missing))?;
    step.done("");
    Ok(())
}

/// Fails unless the caller is root, saying what root is needed for.
pub fn require_root(purpose: &str) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    bail!("root is needed to {purpose}: run this again as root, for example with sudo")
}

fn present(evidence: &Evidence) -> bool {
    match evidence {
        Evidence::Program(name) => find_program(name).is_some(),
        Evidence::File(path) => Path::new(path).exists(),
    }
}

/// Looks in the search path and where Debian keeps the administrator's programs, which a user's path may lack.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program").is_none());
        assert!(present(&Evidence::File("/")));
    }
}
