//! Programs of the workspace that other verbs start.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::process;
use crate::project::Project;

/// The runner and the helper of the local infrastructure. They lie beside this program, where the
/// library looks for them.
pub fn infra(project: &Project) -> Result<()> {
    binaries(project, "guestcluster-infra")
}

/// The end-to-end suite.
pub fn e2e(project: &Project) -> Result<PathBuf> {
    suite(project, "guestcluster-e2e")
}

/// The crash tables.
pub fn crash(project: &Project) -> Result<PathBuf> {
    suite(project, "guestcluster-crash")
}

/// The benchmarks.
pub fn bench(project: &Project) -> Result<PathBuf> {
    suite(project, "guestcluster-bench")
}

fn suite(project: &Project, program: &str) -> Result<PathBuf> {
    infra(project)?;
    binaries(project, "guestcluster-e2e")?;
    // The plugin for kubectl lies beside the suite, which runs it.
    binaries(project, "guestcluster-cli")?;
    Ok(project.target_folder()?.join("debug").join(program))
}

fn binaries(project: &Project, package: &str) -> Result<()> {
    process::say(&format!("build {package}"));
    process::run(project.cargo().args([
        "build",
        "--quiet",
        "--locked",
        "--bins",
        "--package",
        package,
    ]))
    .with_context(|| format!("build the programs of {package}"))
}
