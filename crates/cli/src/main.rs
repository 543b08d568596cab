//! `kubectl guestcluster`: a plugin of kubectl. One file for each verb.

mod adopt;
mod aligned;
mod connection;
mod export;
mod map;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use connection::Connection;

/// Shows guest clusters and the infrastructure that carries them together.
#[derive(Parser)]
#[command(
    name = "kubectl-guestcluster",
    bin_name = "kubectl guestcluster",
    version,
    about
)]
struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Adopt(adopt::Options),
    Export(export::Options),
    Map(map::Options),
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // The one provider of the whole tree; a second call cannot happen before this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match &arguments.verb {
            Verb::Adopt(options) => adopt::run(&arguments.connection, options).await,
            Verb::Export(options) => export::run(&arguments.connection, options).await,
            Verb::Map(options) => map::run(&arguments.connection, options).await,
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
