//! `cargo xtask crash`: crash tables.

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use crate::project::Project;
use crate::tally::Tally;
use crate::{build, operator, process};

/// Lets something go wrong at the writes of a guest's life: the operator dies, is refused, waits in
/// vain, sees nothing new or stands still. The infrastructure is real, machines and guest are on
/// paper. Prints a table and ends with `N passed, N failed`. Needs root.
#[derive(Args)]
pub struct Options {
    /// Columns of the table, such as `death`, `late-request` or `freeze`; all if none is named.
    columns: Vec<String>,
    /// One life for each write and kind of mishap: half an hour or more for a column, a night for all.
    #[arg(long)]
    full: bool,
    /// Leave the infrastructure up.
    #[arg(long)]
    keep: bool,
    /// Name of the local infrastructure.
    #[arg(long, default_value = "paper")]
    infra: String,
}

/// Runs the verb.
pub fn run(project: &Project, options: &Options) -> Result<ExitCode> {
    let mut command = command(project)?;
    command.args(&options.columns);
    command.args(["--infra", &options.infra]);
    for (given, flag) in [(options.full, "--full"), (options.keep, "--keep")] {
        command.args(given.then_some(flag));
    }
    let status = command.status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Fills the short table for `cargo xtask test` and counts its cells.
pub fn counted(project: &Project) -> Result<Tally> {
    process::follow_tests(&mut command(project)?)
}

fn command(project: &Project) -> Result<Command> {
    let mut command = Command::new(build::crash(project)?);
    command.current_dir(project.root());
    command.arg("--operator").arg(operator::build(project)?);
    Ok(command)
}
