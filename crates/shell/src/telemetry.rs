//! Logs: one JSON object per line on standard error.
//!
//! Names of fields are part of what operators build on. They are the same everywhere: `timestamp`,
//! `level`, `target`, `message`, and where they apply `object` (namespace and name), `class`,
//! `failures`, `retry`, `error`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::TryInitError;
use tracing_subscriber::{Layer, layer::SubscriberExt, util::SubscriberInitExt};

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A JSON object, for machines.
    Json,
    /// Words and colours, for a person at a terminal.
    Text,
}

/// Why logs cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not `level` or `target=level,…`.
    #[error("log filter {filter:?} cannot be read: {source}")]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Something else in the process writes the logs already.
    #[error("logs are set up already")]
    Installed(#[source] TryInitError),
}

/// Begins to write logs for the whole process. `filter` is what `RUST_LOG` would hold, for example
/// `info,kube=warn`.
pub fn init(filter: &str, format: Format) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(filter).map_err(|source| TelemetryError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .boxed(),
        Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .try_init()
        .map_err(TelemetryError::Installed)
}
