//! Licences, sources and doubled versions of dependencies, by cargo-deny.

use std::path::PathBuf;

use anyhow::Result;
use guestcluster_infra::cache::{Cache, KeyBuilder};
use guestcluster_infra::progress::Progress;

use crate::process;
use crate::project::Project;

/// The release of cargo-deny that `deny.toml` is written for.
const VERSION: &str = "0.20.2";

/// Fails on whatever `deny.toml` denies. Advisories are left out: their database is not in the
/// crates registry.
pub fn check(project: &Project) -> Result<()> {
    let program = program(project)?;
    let mut command = std::process::Command::new(program);
    command.current_dir(project.root());
    command.args([
        "--locked",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]);
    process::run(&mut command)
}

/// The program, installed into the cache on first use.
fn program(project: &Project) -> Result<PathBuf> {
    let key = KeyBuilder::default().input("version", VERSION).key();
    let progress = Progress::detect();
    let folder = Cache::open()?.ensure("cargo-deny", &key, &progress, |folder| {
        let step = progress.step(format!("install cargo-deny {VERSION}"));
        let mut command = project.cargo();
        // Without a target folder of its own, so that cargo removes what is built on the way.
        command.env_remove("CARGO_TARGET_DIR");
        command.args([
            "install",
            "cargo-deny",
            "--quiet",
            "--locked",
            "--version",
            VERSION,
            "--root",
        ]);
        process::quiet(command.arg(folder))?;
        step.done("");
        Ok(())
    })?;
    Ok(folder.join("bin/cargo-deny"))
}
