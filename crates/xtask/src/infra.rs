//! `cargo xtask infra`: the local infrastructure.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use guestcluster_infra::faults::{Fault, USAGE};
use guestcluster_infra::progress::Progress;
use guestcluster_infra::tools::Release;
use guestcluster_infra::up::{self, Infra, UpOptions};
use guestcluster_infra::{cluster_api, node_image, tools};

use crate::project::Project;
use crate::{build, operator};

/// Looks after an infrastructure cluster on this box: real Kubernetes and KubeVirt programs, four
/// hosts, and machines that really boot. Needs root for all but `build`.
#[derive(Args)]
pub struct Options {
    /// Name of the local infrastructure; several stand side by side.
    #[arg(long, global = true, default_value = "infra")]
    name: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build its programs and the node images; what is cached is not built again.
    Build,
    /// Bring it up, building what is missing; one that is up stays.
    Up {
        /// Number of hosts, in two zones.
        #[arg(long, default_value_t = UpOptions::default().hosts)]
        hosts: u8,
        /// Boot no machines: instances run as soon as they are scheduled.
        #[arg(long)]
        paper: bool,
        /// Build the operator too, so that Pods of its image run.
        #[arg(long)]
        operator: bool,
    },
    /// Take it down and remove everything of it.
    Down,
    /// Show hosts and the machines on them, programs and logs.
    Status,
    /// Break or mend something.
    #[command(after_help = faults())]
    Fault {
        /// The fault, as listed below.
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Install Cluster API's controllers on one that is up; done again, it brings back what was changed.
    ClusterApi {
        /// Who provides its machines.
        #[arg(long, value_enum, default_value_t = Provider::Capk)]
        provider: Provider,
    },
    /// Run a command where the cluster can be reached, with KUBECONFIG set: exec -- kubectl get nodes
    Exec {
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

/// Who provides machines for Cluster API.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Provider {
    /// The KubeVirt provider of the Cluster API project.
    Capk,
    /// Nobody: its kinds are defined only.
    None,
}

impl From<Provider> for cluster_api::Provider {
    fn from(provider: Provider) -> Self {
        match provider {
            Provider::Capk => Self::Capk,
            Provider::None => Self::None,
        }
    }
}

fn faults() -> String {
    format!("Faults:\n  {}", USAGE.join("\n  "))
}

/// Runs the verb.
pub fn run(project: &Project, options: Options) -> Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(perform(project, options))
}

async fn perform(project: &Project, Options { name, verb }: Options) -> Result<ExitCode> {
    match verb {
        Verb::Build => {
            let progress = Progress::detect();
            let tools = tools::ensure(&progress)?;
            println!("programs: {}", tools.programs.bin.display());
            for release in [Release::Current, Release::Next] {
                let image = node_image::ensure(release, &progress)?;
                println!("node image: {}", image.reference);
            }
        }
        Verb::Up {
            hosts,
            paper,
            operator,
        } => {
            build::infra(project)?;
            let operator_binary = operator.then(|| operator::build(project)).transpose()?;
            let wanted = UpOptions {
                name,
                hosts,
                paper,
                operator_binary,
            };
            let infra = up::up(wanted, &Progress::detect()).await?;
            println!("{}", infra.status().await?);
        }
        Verb::Down => {
            for removed in up::down(&name).await? {
                println!("removed {removed}");
            }
        }
        Verb::Status => println!("{}", Infra::open(&name).await?.status().await?),
        Verb::Fault { words } => {
            let fault: Fault = words.join(" ").parse()?;
            Infra::open(&name).await?.fault(fault).await?;
        }
        Verb::ClusterApi { provider } => {
            let built = tools::ensure_cluster_api(&Progress::detect())?;
            let infra = Infra::open(&name).await?;
            infra.install_cluster_api(&built, provider.into()).await?;
            println!("programs: {}", built.bin.display());
        }
        Verb::Exec { command } => {
            let status = Infra::open(&name).await?.exec(&command)?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(ExitCode::from(code.unwrap_or(1)));
        }
    }
    Ok(ExitCode::SUCCESS)
}
