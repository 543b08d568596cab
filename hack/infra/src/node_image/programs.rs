//! Takes programs of the Debian root into container images, with the shared libraries that they load.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::oci::Files;
use super::tree;
use crate::build_command::{Confined, run};

/// Adds busybox with a link for everything that it can do. The container has Debian's merged `/usr`.
pub(super) fn add_busybox(files: &mut Files, debian: &Path) -> Result<()> {
    let names = run(Confined::Root(debian).command("busybox").arg("--list"))?;
    for name in names.lines() {
        files.link(&format!("usr/bin/{name}"), "busybox");
    }
    // After the links: it lists itself.
    files.copy("usr/bin/busybox", debian.join("usr/bin/busybox"));
    files.link("bin", "usr/bin");
    files.link("sbin", "usr/sbin");
    Ok(())
}

/// The programs that set up packet filters, routes and links.
const NETWORK: &[&str] = &[
    "usr/sbin/xtables-nft-multi",
    "usr/sbin/nft",
    "usr/sbin/conntrack",
    "usr/bin/ip",
];

/// The names under which one program does iptables' work.
const IPTABLES: &[&str] = &[
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
];

/// Adds iptables, nft, conntrack and ip.
pub(super) fn add_network(files: &mut Files, debian: &Path) -> Result<()> {
    let mut dynamic: Vec<String> = NETWORK.iter().map(|&path| path.to_owned()).collect();
    // iptables loads its matches and targets by name, and many names are links to others.
    for (path, metadata) in tree::list(&debian.join("usr/lib"))? {
        let path = format!("usr/lib/{}", path.display());
        if !path.contains("/xtables/") {
            continue;
        }
        if metadata.is_symlink() {
            let target = fs::read_link(debian.join(&path))?;
            files.link(&path, &target.to_string_lossy());
        } else {
            dynamic.push(path);
        }
    }
    for path in &dynamic {
        files.copy(path, debian.join(path));
    }
    for name in IPTABLES {
        files.link(&format!("usr/sbin/{name}"), "xtables-nft-multi");
    }
    for (library, source) in libraries_of(&dynamic, debian)? {
        // Programs name /lib and /lib64, which are links into /usr here as there.
        files.copy(&format!("usr{library}"), source);
    }
    files.link("lib", "usr/lib");
    files.link("lib64", "usr/lib64");
    Ok(())
}

/// The libraries that these files of the root load: their paths in it, and where the host finds the content.
///
/// The path is often a link to a file with a longer version, and such links may be absolute: only a look from inside
/// the root follows them right.
fn libraries_of(paths: &[String], debian: &Path) -> Result<Vec<(String, PathBuf)>> {
    let inside = Confined::Root(debian);
    let paths = paths.iter().map(|path| format!("/{path}"));
    let libraries = loaded(&run(inside.command("ldd").args(paths))?);
    let files = run(inside.command("readlink").arg("-e").args(&libraries))?;
    let files = files
        .lines()
        .map(|file| debian.join(file.trim_start_matches('/')));
    Ok(libraries.into_iter().zip(files).collect())
}

/// Reads the paths from what ldd prints: `name => /path (address)` or `/path (address)`.
fn loaded(printed: &str) -> BTreeSet<String> {
    printed
        .lines()
        .filter(|line| line.trim_end().ends_with(')'))
        .filter_map(|line| {
            line.split_whitespace()
                .find(|word| word.starts_with("/lib"))
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_prints() {
        let printed = "/usr/sbin/nft:\n\
            \tlinux-vdso.so.1 (0x00007ffe)\n\
            \tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found: Vec<String> = loaded(printed).into_iter().collect();
        assert_eq!(
            found,
            [
                "/lib/x86_64-linux-gnu/libmnl.so.0",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
    }
}
