//! A machine's disk: a folder that outlives the machine.
//!
//! | folder | holds |
//! |---|---|
//! | `image` | the digest of the node image that was imported into it |
//! | `upper`, `work` | what the machine changed of its root, for overlayfs |
//! | `containerd` | the image store, at first hard links to the node image's |
//! | `kubelet` | its state |
//! | `etcd.img` | the file system of etcd's state, here or on a disk of its own |
//!
//! A disk starts with the name of its image: importing and cloning cost nothing until the first boot.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::process::Command;

use super::{Seed, SeedFormat};
use crate::node_image::NodeImage;
use crate::process;

/// Folders of a disk that are mounted at `/var/lib/<name>`: containerd's snapshots are overlays, which
/// cannot lie on another overlay; the others are written much and read by nobody else.
pub(super) const STATE: [&str; 2] = ["containerd", "kubelet"];

/// Where cloud-init's sources look for their seeds, a folder each.
const SEEDS: &str = "upper/var/lib/cloud/seed";
/// Which source cloud-init uses: on a VM the label of the disk with the documents tells, and here is no disk.
const SOURCE: &str = "upper/etc/cloud/cloud.cfg.d/91-source.cfg";

impl SeedFormat {
    /// The name of the source, and its documents below [`SEEDS`]: user-data, meta-data and network configuration.
    fn files(self) -> (&'static str, [&'static str; 3]) {
        match self {
            Self::NoCloud => (
                "NoCloud",
                [
                    "nocloud/user-data",
                    "nocloud/meta-data",
                    "nocloud/network-config",
                ],
            ),
            Self::ConfigDrive => (
                "ConfigDrive",
                [
                    "config_drive/openstack/latest/user_data",
                    "config_drive/openstack/latest/meta_data.json",
                    "config_drive/openstack/latest/network_data.json",
                ],
            ),
        }
    }
}

/// The file that names the image.
const IMAGE: &str = "image";

/// Puts a node image on an empty disk.
///
/// # Errors
/// When the disk cannot be written.
pub fn import_image(disk: &Path, image: &NodeImage) -> Result<()> {
    create_folder(disk)?;
    write(&disk.join(IMAGE), image.digest.as_bytes())
}

/// The digest of the node image on a disk; none when nothing was ever imported into it.
///
/// # Errors
/// When the disk cannot be read.
pub fn imported_image(disk: &Path) -> Result<Option<String>> {
    match fs::read_to_string(disk.join(IMAGE)) {
        Ok(digest) => Ok(Some(digest)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", disk.display())),
    }
}

/// Makes the disk bootable: its folders, and at the first boot the image's container images.
pub(super) async fn prepare(disk: &Path, image: &NodeImage) -> Result<()> {
    for folder in ["upper", "work", "kubelet"] {
        create_folder(&disk.join(folder))?;
    }
    let store = disk.join("containerd");
    if !store.exists() {
        // Under another name until it is complete: a half-filled store would look like a whole one.
        let partial = disk.join("containerd.partial");
        delete_disk(&partial)?;
        copy_store(&image.containerd, &partial).await?;
        fs::rename(&partial, &store).context("cannot finish the image store")?;
    }
    Ok(())
}

/// Puts the first-boot documents where cloud-init looks for them, in place of those of the last boot.
pub(super) fn write_seed(disk: &Path, seed: &Seed) -> Result<()> {
    let (source, files) = seed.format.files();
    let [user_data, meta_data, network] = files.map(|file| disk.join(SEEDS).join(file));
    for file in [&user_data, &disk.join(SOURCE)] {
        create_folder(file.parent().unwrap_or(disk))?;
    }
    let list = format!("datasource_list: [{source}, None]\n");
    write(&disk.join(SOURCE), list.as_bytes())?;
    write(&user_data, &seed.user_data)?;
    // It holds keys and tokens.
    fs::set_permissions(user_data, fs::Permissions::from_mode(0o600))?;
    write(&meta_data, seed.meta_data.as_bytes())?;
    match &seed.network_config {
        Some(config) => write(&network, config.as_bytes()),
        None => delete_disk(&network),
    }
}

/// Deletes a disk with everything on it. One that is gone already is fine.
///
/// # Errors
/// When something on it cannot be removed, such as a folder that is still mounted.
pub fn delete_disk(disk: &Path) -> Result<()> {
    let removed = if disk.is_dir() {
        fs::remove_dir_all(disk)
    } else {
        fs::remove_file(disk)
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot delete {}", disk.display()))
        }
        _ => Ok(()),
    }
}

/// Hard links for what never changes (blobs, unpacked layers), copies of the databases.
async fn copy_store(from: &Path, to: &Path) -> Result<()> {
    let source = from.join(".");
    let linked = process::run(cp().args(["--link", "--"]).arg(&source).arg(to)).await;
    if linked.is_err() {
        // On another file system than the image cache: slower, but the same.
        delete_disk(to)?;
        process::run(cp().args(["--reflink=auto", "--"]).arg(&source).arg(to)).await?;
        return Ok(());
    }
    for database in databases(from)? {
        let relative = database.strip_prefix(from)?;
        let own = to.join(relative);
        fs::remove_file(&own)?;
        fs::copy(&database, &own).with_context(|| format!("cannot copy {}", database.display()))?;
    }
    Ok(())
}

fn cp() -> Command {
    let mut command = Command::new("cp");
    command.arg("--archive");
    command
}

/// The bolt databases of a containerd store: `<plugin>/*.db`.
fn databases(store: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for plugin in fs::read_dir(store).with_context(|| format!("cannot read {}", store.display()))? {
        let plugin = plugin?.path();
        if !plugin.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&plugin)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "db") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

pub(super) fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn write(file: &Path, content: &[u8]) -> Result<()> {
    fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("disk-{name}-{}", std::process::id()));
        delete_disk(&folder).unwrap();
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[tokio::test]
    async fn a_store_shares_its_blobs_and_has_its_own_databases() {
        let folder = scratch("store");
        let image = folder.join("image");
        fs::create_dir_all(image.join("meta")).unwrap();
        fs::write(image.join("meta/meta.db"), "index").unwrap();
        fs::write(image.join("meta/blob"), "layer").unwrap();
        copy_store(&image, &folder.join("disk")).await.unwrap();
        let inode = |path: &str| fs::metadata(folder.join(path)).unwrap().ino();
        assert_eq!(inode("image/meta/blob"), inode("disk/meta/blob"));
        assert_ne!(inode("image/meta/meta.db"), inode("disk/meta/meta.db"));
        assert_eq!(
            fs::read_to_string(folder.join("disk/meta/meta.db")).unwrap(),
            "index"
        );
        delete_disk(&folder).unwrap();
    }

    #[test]
    fn a_seed_replaces_the_last_one_whole() {
        let disk = scratch("seed");
        let mut seed = Seed {
            format: SeedFormat::NoCloud,
            user_data: b"secret".to_vec(),
            meta_data: "instance-id: a".to_owned(),
            network_config: Some("version: 2".to_owned()),
        };
        write_seed(&disk, &seed).unwrap();
        seed.user_data = b"#cloud-config".to_vec();
        seed.network_config = None;
        write_seed(&disk, &seed).unwrap();
        let folder = disk.join(SEEDS).join("nocloud");
        assert_eq!(
            fs::read(folder.join("user-data")).unwrap(),
            b"#cloud-config"
        );
        assert!(!folder.join("network-config").exists());
        delete_disk(&disk).unwrap();
    }

    #[test]
    fn a_config_drive_has_the_layout_of_openstack() {
        let disk = scratch("config-drive");
        let seed = Seed {
            format: SeedFormat::ConfigDrive,
            user_data: b"#cloud-config".to_vec(),
            meta_data: "{}".to_owned(),
            network_config: None,
        };
        write_seed(&disk, &seed).unwrap();
        let folder = disk.join(SEEDS).join("config_drive/openstack/latest");
        for file in ["user_data", "meta_data.json"] {
            assert!(folder.join(file).is_file(), "{file}");
        }
        let source = fs::read_to_string(disk.join(SOURCE)).unwrap();
        assert_eq!(source, "datasource_list: [ConfigDrive, None]\n");
        delete_disk(&disk).unwrap();
    }

    #[test]
    fn a_disk_knows_the_image_that_was_imported_into_it() {
        let disk = scratch("image");
        assert_eq!(imported_image(&disk).unwrap(), None);
        let image = NodeImage {
            kubernetes: "v1.37.2".into(),
            digest: "sha256:abc".into(),
            reference: "registry.local/guest/node:v1.37.2@sha256:abc".into(),
            base: "/".into(),
            layer: "/".into(),
            containerd: "/".into(),
        };
        import_image(&disk, &image).unwrap();
        assert_eq!(imported_image(&disk).unwrap(), Some("sha256:abc".into()));
        delete_disk(&disk).unwrap();
    }

    #[test]
    fn a_disk_can_be_deleted_twice() {
        let disk = scratch("twice");
        delete_disk(&disk).unwrap();
        delete_disk(&disk).unwrap();
    }
}
