//! The checkout that this program was built from, and the folders that belong to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// A checkout of the project.
pub struct Project {
    root: PathBuf,
}

impl Project {
    /// The checkout whose `cargo xtask` is running.
    pub fn of_this_checkout() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root
            .canonicalize()
            .with_context(|| format!("find the checkout at {}", root.display()))?;
        Ok(Self { root })
    }

    /// The folder that holds the workspace's `Cargo.toml`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path inside the checkout.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The same `cargo` that runs us, started in the checkout.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root);
        command
    }

    /// Where cargo puts what it builds.
    pub fn target_folder(&self) -> Result<PathBuf> {
        #[derive(serde::Deserialize)]
        struct Metadata {
            target_directory: PathBuf,
        }
        let mut command = self.cargo();
        let metadata =
            process::output(command.args(["metadata", "--no-deps", "--format-version=1"]))?;
        let metadata: Metadata =
            serde_json::from_str(&metadata).context("read `cargo metadata`")?;
        Ok(metadata.target_directory)
    }

    /// Files of the checkout whose name ends with `suffix`, sorted; build results and hidden folders
    /// are left out.
    pub fn files(&self, suffix: &str) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        collect(&self.root, suffix, &mut found)?;
        found.sort();
        Ok(found)
    }

    /// A path as a reader of this checkout writes it.
    pub fn shown<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}

fn collect(folder: &Path, suffix: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && name != "target" {
                collect(&entry.path(), suffix, found)?;
            }
        } else if name.ends_with(suffix) {
            found.push(entry.path());
        }
    }
    Ok(())
}
