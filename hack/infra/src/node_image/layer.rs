//! What the node image adds to its Debian root: programs, services, settings.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result};

use super::{sources, tree};
use crate::tools::Programs;

/// Where each program goes. The real kubeadm stands aside for the script of its name.
const PROGRAMS: &[(&str, &str)] = &[
    ("kubelet", "usr/bin/kubelet"),
    ("kubeadm", "usr/libexec/kubeadm"),
    ("kubectl", "usr/bin/kubectl"),
    ("containerd", "usr/local/bin/containerd"),
    (
        "containerd-shim-runc-v2",
        "usr/local/bin/containerd-shim-runc-v2",
    ),
    ("ctr", "usr/local/bin/ctr"),
    ("crictl", "usr/local/bin/crictl"),
    ("etcdctl", "usr/local/bin/etcdctl"),
];

/// The services that start at boot.
const ENABLED: &[&str] = &["containerd.service", "kubelet.service"];

/// Services of the distribution that a node does without: logins on screens, module loading (the host's kernel has
/// what it has), clocks (the host's), and timers that would wake an idle machine.
const MASKED: &[&str] = &[
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty.target",
    "proc-sys-fs-binfmt_misc.automount",
    "systemd-modules-load.service",
    "systemd-networkd-wait-online.service",
    "systemd-pstore.service",
    "systemd-timesyncd.service",
];

/// Writes the layer. The reference is that of the image that holds a Pod's namespaces open.
pub(super) fn write(layer: &Path, built: &Programs, debian: &Path, pause: &str) -> Result<()> {
    create_folder(layer)?;
    copy_files(&sources().join("root"), layer)?;
    for (program, target) in PROGRAMS {
        let target = layer.join(target);
        create_parent(&target, layer)?;
        // A link: the cache holds one copy of each program.
        fs::hard_link(built.path(program), &target)
            .with_context(|| format!("link {}", target.display()))?;
    }
    write_file(
        layer,
        "etc/containerd/conf.d/pause.toml",
        &sandbox_settings(pause),
    )?;
    // Empty, and filled by the first boot: a machine id in an image would be the same on all machines.
    write_file(layer, "etc/machine-id", "")?;
    link_units(layer)?;
    link_plugins(layer, debian)
}

fn sandbox_settings(pause: &str) -> String {
    format!(
        "version = 3\n\n[plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox = '{pause}'\n"
    )
}

fn link_units(layer: &Path) -> Result<()> {
    for unit in ENABLED {
        let target = format!("/etc/systemd/system/{unit}");
        link(
            layer,
            &format!("etc/systemd/system/multi-user.target.wants/{unit}"),
            &target,
        )?;
    }
    MASKED
        .iter()
        .try_for_each(|unit| link(layer, &format!("etc/systemd/system/{unit}"), "/dev/null"))
}

/// Puts the standard CNI plugins where Kubernetes looks for them. A folder of links instead of one link to the
/// folder: whoever adds a plugin must not add it to Debian's.
fn link_plugins(layer: &Path, debian: &Path) -> Result<()> {
    for (plugin, _) in tree::list(&debian.join("usr/lib/cni"))? {
        let plugin = plugin.display();
        link(
            layer,
            &format!("opt/cni/bin/{plugin}"),
            &format!("/usr/lib/cni/{plugin}"),
        )?;
    }
    Ok(())
}

/// Copies a folder of this checkout. Of the modes only the right to execute counts: the rest is the user's umask.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for (path, metadata) in tree::list(from)? {
        let target = to.join(&path);
        if metadata.is_dir() {
            create_folder(&target)?;
            continue;
        }
        fs::copy(from.join(&path), &target)
            .with_context(|| format!("write {}", target.display()))?;
        let executable = metadata.permissions().mode() & 0o100 != 0;
        fs::set_permissions(
            &target,
            PermissionsExt::from_mode(if executable { 0o755 } else { 0o644 }),
        )?;
    }
    Ok(())
}

fn write_file(layer: &Path, path: &str, text: &str) -> Result<()> {
    let target = layer.join(path);
    create_parent(&target, layer)?;
    fs::write(&target, text).with_context(|| format!("write {}", target.display()))?;
    Ok(fs::set_permissions(
        &target,
        PermissionsExt::from_mode(0o644),
    )?)
}

fn link(layer: &Path, path: &str, target: &str) -> Result<()> {
    let path = layer.join(path);
    create_parent(&path, layer)?;
    symlink(target, &path).with_context(|| format!("link {}", path.display()))
}

/// Creates the missing folders above a path, each with the mode of a system folder.
fn create_parent(path: &Path, layer: &Path) -> Result<()> {
    let Some(parent) = path
        .parent()
        .filter(|parent| *parent != layer && !parent.is_dir())
    else {
        return Ok(());
    };
    create_parent(parent, layer)?;
    create_folder(parent)
}

fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir(folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(fs::set_permissions(
        folder,
        PermissionsExt::from_mode(0o755),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_enabled_service_is_one_of_ours_or_a_mask() {
        for unit in ENABLED {
            assert!(
                sources()
                    .join("root/etc/systemd/system")
                    .join(unit)
                    .is_file(),
                "{unit}"
            );
            assert!(!MASKED.contains(unit), "{unit}");
        }
    }

    #[test]
    fn the_pause_image_is_the_one_that_kubeadm_names() {
        assert!(
            sandbox_settings("registry.example/pause:1")
                .contains("sandbox = 'registry.example/pause:1'")
        );
    }
}
