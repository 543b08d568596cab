//! `cargo xtask`: the single list of verbs of this project. Each explains itself with `--help`.

mod bench;
mod build;
mod check;
mod crash;
mod demo;
mod e2e;
mod generate;
mod infra;
mod operator;
mod process;
mod project;
mod tally;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::project::Project;

/// Everything that a developer does with this project, each as one command.
#[derive(Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    version,
    about,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the main job on this machine: a GuestCluster applied, its nodes Ready.
    Demo(demo::Options),
    /// Run everything that must hold: unit tests, laws, snapshots and the e2e suite.
    Test(test::Options),
    /// Run the end-to-end suite, or groups of it.
    E2e(e2e::Options),
    /// Let the operator die at its writes, and see that the same is left.
    Crash(crash::Options),
    /// Measure, and print figures.
    Bench(bench::Options),
    /// Build, bring up, look at, break and take down the local infrastructure.
    Infra(infra::Options),
    /// Check format, lints, layers, sizes, generated files, docs and licences.
    Check(check::Options),
    /// Write the generated files: CRD, chart templates and reference pages.
    Gen,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<ExitCode> {
    let project = Project::of_this_checkout()?;
    match verb {
        Verb::Demo(options) => demo::run(&project, &options),
        Verb::Test(options) => test::run(&project, &options),
        Verb::E2e(options) => e2e::run(&project, &options),
        Verb::Crash(options) => crash::run(&project, &options),
        Verb::Bench(options) => bench::run(&project, &options),
        Verb::Infra(options) => infra::run(&project, options),
        Verb::Check(options) => Ok(check::run(&project, &options)),
        Verb::Gen => generate::write(&project),
    }
}
