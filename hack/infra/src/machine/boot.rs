//! What the helper program is told about the machine it boots: the one document between the two.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::cgroup::Hierarchy;

/// Everything that pid 1 needs to turn folders into a machine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Boot {
    /// The machine's name in its own UTS namespace.
    pub(super) hostname: String,
    /// CPUs that the machine shows and may use.
    pub(super) cpus: u32,
    /// Its memory, in bytes.
    pub(super) memory_bytes: u64,
    /// Its machine ID: 32 hexadecimal digits.
    pub(super) machine_id: String,
    /// The file that names its network namespace.
    pub(super) network: PathBuf,
    /// Its own folder in each control group hierarchy, and how the hierarchy is mounted.
    pub(super) cgroups: Vec<(Hierarchy, PathBuf)>,
    /// Read-only layers of its root, topmost first.
    pub(super) lower: Vec<PathBuf>,
    /// Its writable layer.
    pub(super) upper: PathBuf,
    /// The work folder that overlayfs needs beside `upper`.
    pub(super) work: PathBuf,
    /// State folders that cannot lie on an overlay, with their place in the machine.
    pub(super) state: Vec<(PathBuf, PathBuf)>,
    /// An empty folder to mount the root on.
    pub(super) root: PathBuf,
    /// A folder for the machine's own versions of kernel files, made anew at every start.
    pub(super) files: PathBuf,
    /// Where its console's output is appended.
    pub(super) console: PathBuf,
    /// The name server it is told of.
    pub(super) name_server: Ipv4Addr,
}

impl Boot {
    /// Writes the document.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads it again.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not valid", path.display()))
    }
}
