//! `cargo xtask e2e`: the end-to-end suite.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use crate::project::Project;
use crate::tally::Tally;
use crate::{build, operator, process};

/// Runs groups of end-to-end scenarios on the local infrastructure, which is brought up if it is not
/// and stays up. Ends with `N passed, N failed`. Needs root.
#[derive(Args)]
pub struct Options {
    /// Groups (`guest`), or single scenarios as GROUP/SCENARIO; all if none is named.
    names: Vec<String>,
    /// List the scenarios and run none.
    #[arg(long)]
    list: bool,
    /// Name of the local infrastructure.
    #[arg(long, default_value = "infra", conflicts_with = "kubeconfig")]
    infra: String,
    /// Run against this cluster with KubeVirt and an installed operator image instead.
    #[arg(long, requires = "image")]
    kubeconfig: Option<PathBuf>,
    /// With --kubeconfig: the guest node image, as in spec.image.registry.
    #[arg(long, requires = "kubeconfig")]
    image: Option<String>,
    /// Also the scenarios that take long, and the longer form of those that have one.
    #[arg(long)]
    full: bool,
}

/// Runs the verb.
pub fn run(project: &Project, options: &Options) -> Result<ExitCode> {
    let mut command = Command::new(build::e2e(project)?);
    command.current_dir(project.root()).args(&options.names);
    if options.list {
        command.arg("--list");
    } else if let (Some(kubeconfig), Some(image)) = (&options.kubeconfig, &options.image) {
        command
            .arg("--kubeconfig")
            .arg(kubeconfig.canonicalize()?)
            .args(["--image", image]);
    } else {
        command
            .args(["--infra", &options.infra, "--operator"])
            .arg(operator::build(project)?);
    }
    if options.full {
        command.arg("--full");
    }
    let status = command.status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs groups for `cargo xtask test` and counts their scenarios.
pub fn counted(project: &Project, names: &[&str], full: bool) -> Result<Tally> {
    let mut command = Command::new(build::e2e(project)?);
    command.current_dir(project.root()).args(names);
    command.arg("--operator").arg(operator::build(project)?);
    if full {
        command.arg("--full");
    }
    process::follow_tests(&mut command)
}
