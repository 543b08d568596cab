//! `cargo xtask check`: what a machine can say about the state of the source.

mod alerts;
mod argocd;
mod chart;
mod docs;
mod layers;
mod length;
mod licences;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::project::Project;
use crate::{generate, process};

/// Checks the source. Without arguments all checks run, quick ones first; each that fails says what to do.
#[derive(Args)]
pub struct Options {
    /// The checks to run.
    #[arg(value_enum)]
    gates: Vec<Gate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Gate {
    /// Sources are formatted as rustfmt does it.
    Fmt,
    /// No crate uses another that the table of layers does not give it.
    Layers,
    /// No file is so long that a reader gets lost in it.
    Length,
    /// Committed generated files are what `cargo xtask gen` writes.
    Generated,
    /// Licences, sources and doubled versions of dependencies.
    Licences,
    /// The chart lints, renders and refuses nonsense.
    Chart,
    /// Alert rules are valid, explained, and seen to fire and to keep quiet.
    Alerts,
    /// Argo CD's health check says what the conditions mean.
    Argocd,
    /// No lint of clippy or rustc fires.
    Clippy,
    /// API docs build without a warning, links lead somewhere and each invariant names its tests.
    Docs,
}

impl Gate {
    fn check(self, project: &Project) -> Result<()> {
        match self {
            Self::Fmt => process::run(project.cargo().args(["fmt", "--all", "--check"])),
            Self::Layers => layers::check(project),
            Self::Length => length::check(project),
            Self::Generated => generate::check(project),
            Self::Licences => licences::check(project),
            Self::Chart => chart::check(project),
            Self::Alerts => alerts::check(project),
            Self::Argocd => argocd::check(project),
            Self::Clippy => process::run(project.cargo().args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "-D",
                "warnings",
            ])),
            Self::Docs => docs::check(project),
        }
    }

    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Runs the verb: all checks asked for, also after one has failed.
pub fn run(project: &Project, options: &Options) -> ExitCode {
    let gates = if options.gates.is_empty() {
        Gate::value_variants()
    } else {
        &options.gates
    };
    let mut failed = Vec::new();
    for gate in gates {
        process::say(&format!("check {}", gate.name()));
        if let Err(error) = gate.check(project) {
            eprintln!("check {} failed: {error:#}", gate.name());
            failed.push(gate.name());
        }
    }
    if failed.is_empty() {
        process::say("all checks passed");
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "failed checks: {}; run one alone with `cargo xtask check NAME`",
        failed.join(", ")
    );
    ExitCode::FAILURE
}
