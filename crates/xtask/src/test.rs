//! `cargo xtask test`: everything that must hold.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use guestcluster_infra::progress::Progress;
use guestcluster_infra::tools;

use crate::project::Project;
use crate::tally::Tally;
use crate::{crash, e2e, process};

/// The end-to-end groups that a CI run has time for.
const GROUPS: &[&str] = &["guest", "life", "layers"];

/// Runs unit tests, laws and snapshots of all crates, then the end-to-end suite and the short crash
/// tables on the local infrastructure. The last line is `N passed, N failed`. Needs root.
#[derive(Args)]
pub struct Options {
    /// Also run what takes longer than a CI run may: tests that boot machines alone, all end-to-end
    /// groups with their long scenarios, and the longer form of those that have one.
    #[arg(long)]
    full: bool,
    /// Leave the end-to-end suite and the crash tables out.
    #[arg(long, conflicts_with = "full")]
    no_e2e: bool,
}

/// Runs the verb.
pub fn run(project: &Project, options: &Options) -> Result<ExitCode> {
    let mut tally = crates(project, options)?;
    if !options.no_e2e {
        process::say("end-to-end suite");
        let groups = if options.full { &[] } else { GROUPS };
        tally += e2e::counted(project, groups, options.full).unwrap_or_else(|error| {
            Tally::failure(format!("the end-to-end suite could not run: {error:#}"))
        });
        // Last: what they measure is no time, and a table that fails leaves its infrastructure up.
        process::say("crash tables");
        tally += crash::counted(project).unwrap_or_else(|error| {
            Tally::failure(format!("the crash tables could not be filled: {error:#}"))
        });
    }
    println!("{tally}");
    Ok(if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The tests that cargo knows; those that need real programs find them by these variables.
fn crates(project: &Project, options: &Options) -> Result<Tally> {
    let programs = tools::ensure(&Progress::detect())?.programs;
    process::say("tests of all crates");
    let mut command = project.cargo();
    command.env("GUESTCLUSTER_TOOLS", &programs.bin);
    command.env("GUESTCLUSTER_KUBEADM", programs.path("kubeadm"));
    if options.full {
        command.env("GUESTCLUSTER_TEST_MACHINES", "1");
    }
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    process::follow_tests(&mut command)
}
