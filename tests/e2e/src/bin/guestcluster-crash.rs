//! Crash tables on paper guests: see `guestcluster_e2e::crash`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use guestcluster_e2e::crash;
use guestcluster_e2e::stage::{Place, Stage, again_inside};
use guestcluster_infra::progress::Progress;
use guestcluster_infra::up::{Infra, UpOptions, down, up};

/// Lets something go wrong at writes of a guest's life, and ends with `N passed, N failed`.
#[derive(Parser)]
struct Arguments {
    /// Columns of the table; all if none is named.
    #[arg(value_parser = PossibleValuesParser::new(crash::COLUMNS))]
    columns: Vec<String>,
    /// One life for each write, instead of a few in which much goes wrong.
    #[arg(long)]
    full: bool,
    /// The operator's binary.
    #[arg(long)]
    operator: PathBuf,
    /// The project's folder, for the chart.
    #[arg(long, default_value = ".")]
    project: PathBuf,
    /// Which local infrastructure; it is brought up, and taken down if all is well.
    #[arg(long, default_value = "paper")]
    infra: String,
    /// Leave the infrastructure up.
    #[arg(long)]
    keep: bool,
    /// Already inside its network.
    #[arg(long, hide = true)]
    inside: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if !arguments.inside {
        return enter(&arguments).await;
    }
    let infra = Infra::open(&arguments.infra).await?;
    let stage = Stage::set(
        Place::Local(Box::new(infra)),
        &arguments.project,
        arguments.full,
    )
    .await?;
    let (passed, failed) = crash::run(&stage, &arguments.operator, &arguments.columns).await?;
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Brings the infrastructure up and starts again inside its network.
async fn enter(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let options = UpOptions {
        name: arguments.infra.clone(),
        hosts: 5,
        paper: true,
        operator_binary: None,
    };
    let infra = up(options, &Progress::detect()).await?;
    let status = again_inside(&infra)?;
    if !status.success() {
        return Ok(ExitCode::FAILURE);
    }
    if !arguments.keep {
        down(&arguments.infra).await?;
    }
    Ok(ExitCode::SUCCESS)
}
