//! `cargo xtask bench`: figures.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use crate::project::Project;
use crate::{build, operator, process};

/// Measures groups and prints their figures; asserts nothing. Each group brings up an infrastructure
/// of its own and takes it down. Needs root, and a box that does nothing else.
#[derive(Args)]
pub struct Options {
    /// Groups: guest (time to a Ready guest, beside a yardstick driven by hand), fleet (memory and
    /// pace with 200 guests on paper); all if none is named.
    names: Vec<String>,
    /// How often group guest measures each size; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Write the figures as a flat JSON object as well.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(project: &Project, options: &Options) -> Result<ExitCode> {
    let mut command = Command::new(build::bench(project)?);
    command.args(&options.names);
    command.arg("--project").arg(project.root());
    command.arg("--rounds").arg(options.rounds.to_string());
    command.arg("--operator").arg(operator::build(project)?);
    if let Some(json) = &options.json {
        command.arg("--json").arg(json);
    }
    process::run(&mut command)?;
    Ok(ExitCode::SUCCESS)
}
