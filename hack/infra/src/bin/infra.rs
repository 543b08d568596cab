//! The program that a local infrastructure runs as. People use `cargo xtask infra`, which starts it.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use guestcluster_infra::{kubelet, runner};
use tracing_subscriber::EnvFilter;

/// Started by the local infrastructure itself; people use `cargo xtask infra`.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// The first process of the runner's namespace.
    Init {
        /// Name of the infrastructure.
        name: String,
    },
    /// The runner.
    Run {
        /// Name of the infrastructure.
        name: String,
    },
    /// The program of a Pod's container, in its namespaces.
    Container {
        /// What it is to become.
        document: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // kube's client logs every refused connection as an error, and outages are made on purpose here.
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("warn,kube_client=off,guestcluster_infra=info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    match act(arguments.role) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act(role: Role) -> anyhow::Result<ExitCode> {
    match role {
        Role::Init { name } => runner::init(&name),
        Role::Run { name } => runner::run(&name).map(|()| ExitCode::SUCCESS),
        Role::Container { document } => match kubelet::container::become_it(&document)? {},
    }
}
