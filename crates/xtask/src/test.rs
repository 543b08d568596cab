//! `cargo xtask test`: everything that must hold.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::process;
use crate::project::Project;
use crate::tally::Tally;

/// Runs unit tests, laws and snapshots of all crates. The last line is `N passed, N failed`; the exit code tells whether any failed.
#[derive(Args)]
pub struct Options {
    /// Also run what takes longer than a CI run may: tests marked `ignored`.
    #[arg(long)]
    full: bool,
}

/// Runs the verb.
pub fn run(project: &Project, options: &Options) -> Result<ExitCode> {
    let tally = crates(project, options)?;
    println!("{tally}");
    Ok(if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The tests that cargo knows.
fn crates(project: &Project, options: &Options) -> Result<Tally> {
    process::say("tests of all crates");
    let mut command = project.cargo();
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    if options.full {
        command.args(["--", "--include-ignored"]);
    }
    let mut tally = Tally::default();
    let succeeded = process::follow(&mut command, |line| {
        if let Some(counts) = Tally::of_line(line) {
            tally += counts;
        }
    })?;
    // A crate that does not compile runs no test, and must not look like one without tests.
    if !succeeded && tally.failed == 0 {
        tally += Tally::FAILURE;
    }
    Ok(tally)
}
