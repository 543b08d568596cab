//! The end-to-end suite: the operator, its chart and its CRDs together, on the local infrastructure
//! or on any cluster with KubeVirt.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use guestcluster_e2e::stage::{Place, Stage, again_inside};
use guestcluster_e2e::suite::{self, Selection};
use guestcluster_infra::progress::Progress;
use guestcluster_infra::tools::ensure_cluster_api;
use guestcluster_infra::up::{Infra, UpOptions, up};

/// Runs groups of end-to-end scenarios and ends with `N passed, N failed`.
#[derive(Parser)]
struct Arguments {
    /// Groups, or single scenarios as GROUP/SCENARIO; all groups if none is named.
    names: Vec<String>,
    /// List the scenarios and run none.
    #[arg(long)]
    list: bool,
    /// The operator's static binary, for the local infrastructure.
    #[arg(long, required_unless_present_any = ["list", "kubeconfig"])]
    operator: Option<PathBuf>,
    /// The project's folder, for chart and examples.
    #[arg(long, default_value = ".")]
    project: PathBuf,
    /// Which local infrastructure; it is brought up if it is not.
    #[arg(long, default_value = "infra")]
    infra: String,
    /// Run against this cluster with KubeVirt instead; scenarios that break hosts are skipped.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Guest node image for --kubeconfig, as in spec.image.registry.
    #[arg(long, requires = "kubeconfig")]
    image: Option<String>,
    /// Also the scenarios that take long, and the longer forms of those that have one.
    #[arg(long)]
    full: bool,
    /// Already inside the local infrastructure's network.
    #[arg(long, hide = true)]
    inside: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let selection = Selection::new(&arguments.names, arguments.full);
    if arguments.list {
        suite::list(&selection);
        return ExitCode::SUCCESS;
    }
    let outcome = tokio::runtime::Runtime::new()
        .context("cannot start")
        .and_then(|runtime| runtime.block_on(run(&arguments, &selection)));
    match outcome {
        Ok(code) => code,
        Err(error) => {
            println!("error: {error:#}\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments, selection: &Selection) -> anyhow::Result<ExitCode> {
    selection.check()?;
    let place = match &arguments.kubeconfig {
        Some(kubeconfig) => Place::Real {
            kubeconfig: kubeconfig.clone(),
            image: arguments
                .image
                .clone()
                .context("--kubeconfig needs --image")?,
        },
        None if arguments.inside => Place::Local(Box::new(Infra::open(&arguments.infra).await?)),
        None => return enter(arguments, selection).await,
    };
    let stage = Stage::set(place, &arguments.project, arguments.full).await?;
    Ok(suite::run(selection, &stage).await)
}

/// Brings the local infrastructure up and starts again inside its network.
async fn enter(arguments: &Arguments, selection: &Selection) -> anyhow::Result<ExitCode> {
    let options = UpOptions {
        name: arguments.infra.clone(),
        // A control plane of five needs as many.
        hosts: 5,
        operator_binary: arguments.operator.clone(),
        ..UpOptions::default()
    };
    let progress = Progress::detect();
    if selection.needs_peers() {
        // It asks the module registry, which is not to be reached from inside.
        let progress = progress.clone();
        tokio::task::spawn_blocking(move || ensure_cluster_api(&progress)).await??;
    }
    let infra = up(options, &progress).await?;
    let status = again_inside(&infra)?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
