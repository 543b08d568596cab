//! The operator's program.

use std::process::{ExitCode, Termination};

use clap::Parser;
use guestcluster_operator::args::{Args, LogFormat};
use guestcluster_operator::run::run;
use guestcluster_shell::telemetry::{self, Format};
use tracing::error;

/// Threads for the watches, the visits and the calls: the operator waits far more than it works.
const THREADS: usize = 2;

fn main() -> ExitCode {
    match start(Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            error!(error = format!("{error:#}"), "the operator cannot run");
            // Logs may not be set up yet.
            eprintln!("guestcluster-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> anyhow::Result<ExitCode> {
    let format = match args.log_format {
        LogFormat::Json => Format::Json,
        LogFormat::Text => Format::Text,
    };
    // kube's client logs each failed connection, which for a guest is an answer, and the whole text
    // of what it cannot decode, which may be a Secret. Both come back to us as errors.
    telemetry::init(&format!("{},kube_client=off", args.log_level), format)?;
    // The one provider of the whole tree; a second call cannot happen before this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?;
    let cause = runtime.block_on(run(args))?;
    Ok(cause.report())
}
