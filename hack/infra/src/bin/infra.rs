//! The runner of a local infrastructure, and its commands for the command line.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use guestcluster_infra::faults::USAGE;
use guestcluster_infra::progress::Progress;
use guestcluster_infra::up::{Infra, UpOptions, down, up};
use guestcluster_infra::{kubelet, runner};
use tracing_subscriber::EnvFilter;

/// A local infrastructure cluster with KubeVirt, hosts and machines.
#[derive(Parser)]
struct Arguments {
    /// Which infrastructure.
    #[arg(long, default_value = "infra", global = true)]
    name: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Bring it up; does nothing when it is up.
    Up {
        /// How many hosts.
        #[arg(long, default_value_t = 4)]
        hosts: u8,
        /// Boot no machines.
        #[arg(long)]
        paper: bool,
        /// The static binary that Pods of the operator's image run.
        #[arg(long)]
        operator: Option<PathBuf>,
    },
    /// Take it down and remove everything of it.
    Down,
    /// Show hosts, machines and programs.
    Status,
    /// Break or mend something.
    #[command(after_help = faults())]
    Fault {
        /// The fault and what it hits.
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Run a command inside the network namespace.
    Exec {
        /// The command.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// The first process of the runner's namespace.
    #[command(hide = true)]
    Init { of: String },
    /// The runner.
    #[command(hide = true)]
    Run { of: String },
    /// The program of a Pod's container, in its namespaces.
    #[command(hide = true)]
    Container { document: PathBuf },
}

fn faults() -> String {
    format!("Faults:\n  {}", USAGE.join("\n  "))
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
    match act(arguments) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.verb {
        Verb::Init { of } => return runner::init(&of),
        Verb::Run { of } => runner::run(&of)?,
        Verb::Container { document } => match kubelet::container::become_it(&document)? {},
        verb => return tokio::runtime::Runtime::new()?.block_on(talk(arguments.name, verb)),
    }
    Ok(ExitCode::SUCCESS)
}

async fn talk(name: String, verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Up {
            hosts,
            paper,
            operator,
        } => {
            let options = UpOptions {
                name,
                hosts,
                paper,
                operator_binary: operator,
            };
            up(options, &Progress::detect()).await?;
        }
        Verb::Down => {
            let removed = down(&name).await?;
            for what in removed {
                say(&format!(
                    "removed {what}
"
                ))?;
            }
        }
        Verb::Status => say(&Infra::open(&name).await?.status().await?.to_string())?,
        Verb::Fault { words } => {
            let fault = words.join(" ").parse()?;
            Infra::open(&name).await?.fault(fault).await?;
        }
        Verb::Exec { command } => {
            let status = Infra::open(&name).await?.exec(&command)?;
            let code = status.code().context("the command was ended by a signal")?;
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
        Verb::Init { .. } | Verb::Run { .. } | Verb::Container { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints to standard output; a reader that has seen enough is no error.
fn say(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
