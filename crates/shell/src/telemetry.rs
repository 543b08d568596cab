//! Logs: one JSON object per line on standard error.
//!
//! Names of fields are part of what operators build on. They are the same everywhere: `timestamp`,
//! `level`, `target`, `message`, and where they apply `object` (namespace and name), `class`,
//! `failures`, `retry`, `error`.

use std::io::IsTerminal;

use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer};

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
    tracing_subscriber::registry()
        .with(lines(std::io::stderr, format).with_filter(filter))
        .try_init()
        .map_err(TelemetryError::Installed)
}

/// What turns events into lines.
fn lines<S, W>(writer: W, format: Format) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .boxed(),
        Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_one_json_object_with_the_names_that_are_promised() {
        let written = Lines::default();
        let writer = written.clone();
        let layer = lines(move || writer.clone(), Format::Json);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!(object = %"n/guest", failures = 2, "reconcile failed");
        });
        let bytes = written.0.lock().unwrap().clone();
        let line: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert!(line["timestamp"].is_string());
        for (key, value) in [
            ("level", "WARN".into()),
            ("target", module_path!().into()),
            ("message", "reconcile failed".into()),
            ("object", "n/guest".into()),
            ("failures", serde_json::Value::from(2)),
        ] {
            assert_eq!(line[key], value, "{line}");
        }
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let error = init("info,=nonsense=", Format::Json).unwrap_err();
        assert!(error.to_string().contains("\"info,=nonsense=\""), "{error}");
    }
}
