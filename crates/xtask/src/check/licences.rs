//! Licences, sources and doubled versions of dependencies, by cargo-deny.

use std::path::PathBuf;

use anyhow::Result;

use crate::process;
use crate::project::{Project, cache_root};

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
    let root = cache_root()?.join(format!("cargo-deny-{VERSION}"));
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        process::say(&format!(
            "install cargo-deny {VERSION}, once, into {}",
            root.display()
        ));
        let mut command = project.cargo();
        // A target folder of its own would be kept for a program that is built once.
        command.env_remove("CARGO_TARGET_DIR");
        command.args([
            "install",
            "cargo-deny",
            "--locked",
            "--version",
            VERSION,
            "--root",
        ]);
        process::run(command.arg(&root))?;
    }
    Ok(program)
}
