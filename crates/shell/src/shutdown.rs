//! How the process is told to end, and what it says when it does.
//!
//! # Guarantees
//! - The first cause counts; later ones change nothing.
//! - Everyone who waits learns of it, also those who begin to wait afterwards.

use std::process::{ExitCode, Termination};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Why the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// SIGTERM or SIGINT: someone wants it so.
    Signal,
    /// The lease is lost: another replica may lead by now.
    LeaseLost,
    /// A part that everything needs has failed.
    Failure,
}

impl Cause {
    /// The code with which the process ends. A lost lease has its own, so that a restart for that
    /// reason can be told from a crash.
    pub const fn code(self) -> u8 {
        match self {
            Self::Signal => 0,
            Self::Failure => 1,
            Self::LeaseLost => 3,
        }
    }
}

impl From<Cause> for ExitCode {
    fn from(cause: Cause) -> Self {
        Self::from(cause.code())
    }
}

impl Termination for Cause {
    fn report(self) -> ExitCode {
        self.into()
    }
}

/// Asks for the end. Clones ask the same.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<Option<Cause>>);

/// Learns of the end. Clones learn of the same.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<Option<Cause>>);

/// The two ends of one shutdown.
pub fn channel() -> (Stop, Shutdown) {
    let (sender, receiver) = watch::channel(None);
    (Stop(sender), Shutdown(receiver))
}

impl Stop {
    /// Asks everyone to end.
    pub fn request(&self, cause: Cause) {
        self.0.send_if_modified(|slot| {
            let first = slot.is_none();
            slot.get_or_insert(cause);
            first
        });
    }

    /// Asks for the end when SIGTERM or SIGINT comes. Returns only once it was asked for.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub async fn on_signals(&self) -> std::io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "shutting down");
        self.request(Cause::Signal);
        Ok(())
    }
}

impl Shutdown {
    /// Why the process ends, if it does.
    pub fn cause(&self) -> Option<Cause> {
        *self.0.borrow()
    }

    /// Waits until the process is to end. If all who could ask have gone, it is to end, too.
    pub async fn requested(&self) -> Cause {
        match self.0.clone().wait_for(Option::is_some).await {
            Ok(cause) => (*cause).unwrap_or(Cause::Failure),
            Err(_closed) => Cause::Failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_cause_counts() {
        let (stop, shutdown) = channel();
        assert_eq!(shutdown.cause(), None);
        stop.request(Cause::LeaseLost);
        stop.request(Cause::Signal);
        assert_eq!(shutdown.requested().await, Cause::LeaseLost);
        assert_eq!(shutdown.clone().requested().await, Cause::LeaseLost);
    }

    #[tokio::test]
    async fn a_dropped_stop_is_a_failure_and_no_endless_wait() {
        let (stop, shutdown) = channel();
        drop(stop);
        assert_eq!(shutdown.requested().await, Cause::Failure);
    }
}
