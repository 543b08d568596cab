//! The disk under a machine's etcd: a file system of its own in a sparse file, so that it has an end of its own.
//!
//! A folder of the box ends where the box's file system does: it could be filled only together with everything else.
//! The file takes no more of the box than what is written, and filling it takes nothing.
//!
//! # Guarantees
//! - What is written survives the machine, however that ends: the file system is unmounted cleanly, since the kernel
//!   under it goes on. That is why it has no journal, without which a write to it costs what it costs in a folder.
//! - A full disk stays full over restarts, as a real one does.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::mount::{MntFlags, umount2};
use tokio::process::Command;

use super::disk::create_folder;
use crate::process;

/// The file in a disk's folder that holds the file system.
const IMAGE: &str = "etcd.img";
/// The folder in it that the machine sees: beside it is room for what fills the disk, which no machine should meet.
const DATA: &str = "data";
/// What fills the disk.
const FILLER: &str = "filler";

/// Its size: more than etcd's own quota of 2 GiB and its log, so that nothing but a fault fills it.
const CAPACITY: u64 = 8 << 30;
/// How much is claimed at a time to fill the disk. The last one is a block: nothing smaller can be free.
const PORTIONS: [i64; 3] = [1 << 30, 1 << 20, 1 << 12];

/// The disk of one machine that runs.
#[derive(Debug, Clone)]
pub(super) struct EtcdDisk {
    /// The file.
    image: PathBuf,
    /// Where it is mounted, in the runner's mount namespace.
    place: PathBuf,
}

impl EtcdDisk {
    /// The disk that lies in `folder` and is to be used at `place`.
    pub(super) fn new(folder: &Path, place: PathBuf) -> Self {
        Self {
            image: folder.join(IMAGE),
            place,
        }
    }

    /// The folder that becomes the machine's `/var/lib/etcd`.
    pub(super) fn data(&self) -> PathBuf {
        self.place.join(DATA)
    }

    /// Attaches the disk, and formats it the first time.
    pub(super) async fn attach(&self) -> Result<()> {
        if !self.image.exists() {
            self.format().await?;
        }
        create_folder(&self.place)?;
        // A loop device that a machine's end has not quite released yet is taken over as it is.
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop,noatime"]);
        process::run(mount.arg(&self.image).arg(&self.place)).await?;
        let data = self.data();
        create_folder(&data)?;
        // etcd wants its folder closed to others.
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("cannot close {}", data.display()))
    }

    /// Under another name until it is complete: a half-made file system would look like a broken one.
    async fn format(&self) -> Result<()> {
        let partial = self.image.with_extension("partial");
        let file = File::create(&partial)
            .with_context(|| format!("cannot create {}", partial.display()))?;
        file.set_len(CAPACITY)?;
        let mut format = Command::new("mkfs.ext4");
        // Nothing kept back for root, who is everybody here; and nothing written that need not be.
        format.args(["-q", "-F", "-m", "0", "-O", "^has_journal"]);
        format.args(["-E", "lazy_itable_init=1"]);
        process::run(format.arg(&partial)).await?;
        fs::rename(&partial, &self.image).context("cannot finish the etcd disk")
    }

    /// Detaches the disk; one that is detached already is fine. The last process that has a file open keeps it.
    pub(super) fn detach(&self) -> Result<()> {
        match umount2(&self.place, MntFlags::MNT_DETACH) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("unmount {}", self.place.display())),
        }
    }

    /// Leaves no block free: the next write that needs one fails with ENOSPC.
    ///
    /// What etcd has claimed before it can still write: the rest of its log, and pages of its database that it uses
    /// again. So it may go on for a while, as on a real disk.
    pub(super) fn fill(&self) -> Result<()> {
        let filler = self.place.join(FILLER);
        let file = File::options()
            .create(true)
            .append(true)
            .open(&filler)
            .with_context(|| format!("cannot open {}", filler.display()))?;
        for portion in PORTIONS {
            loop {
                let end = i64::try_from(file.metadata()?.len())?;
                match fallocate(&file, FallocateFlags::empty(), end, portion) {
                    Ok(()) => {}
                    Err(Errno::ENOSPC) => break,
                    Err(error) => return Err(error).context("cannot fill the etcd disk"),
                }
            }
        }
        Ok(())
    }

    /// Gives back what [`EtcdDisk::fill`] took; what was not filled is fine.
    pub(super) fn free(&self) -> Result<()> {
        match fs::remove_file(self.place.join(FILLER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context("cannot free the etcd disk")
            }
            _ => Ok(()),
        }
    }

    /// Whether it was filled.
    pub(super) fn is_full(&self) -> bool {
        self.place.join(FILLER).exists()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Mounting takes root, and loop devices: a box that has neither boots no machines.
    #[tokio::test]
    async fn a_full_disk_refuses_writes_until_it_is_freed_and_takes_nothing_of_the_box() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let folder = std::env::temp_dir().join(format!("etcd-disk-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let disk = EtcdDisk::new(&folder, folder.join("mount"));
        disk.attach().await.unwrap();
        let write = |name: &str| fs::write(disk.data().join(name), vec![1; 1 << 16]);
        write("before").unwrap();
        disk.fill().unwrap();
        assert!(disk.is_full());
        let refused = write("while").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ENOSPC as i32));
        // Still full after a restart of the machine.
        disk.detach().unwrap();
        disk.attach().await.unwrap();
        assert!(write("again").is_err());
        disk.free().unwrap();
        write("after").unwrap();
        assert!(disk.data().join("before").exists());
        let blocks = fs::metadata(&disk.image).unwrap().blocks();
        assert!(blocks * 512 < 64 << 20, "{blocks} blocks of the box");
        disk.detach().unwrap();
        disk.detach().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}
