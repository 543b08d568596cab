//! The only place where the shell reads a clock.
//!
//! Wall time goes into what people read (status, events, logs); monotonic time measures durations.
//! The monotonic clock is tokio's, so that tests with paused time move it by hand.

pub use tokio::time::Instant;

use k8s_openapi::jiff::Timestamp;

/// The wall clock, for times that leave the process. Taken once per reconcile and passed on.
#[allow(
    clippy::disallowed_methods,
    reason = "this module is where time enters the program"
)]
pub fn now() -> Timestamp {
    // A clock outside jiff's range (years -9999 to 9999) is as good as none.
    Timestamp::try_from(std::time::SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The monotonic clock, for durations. It never goes back, and it stands still while the machine
/// is suspended.
pub fn monotonic() -> Instant {
    Instant::now()
}
