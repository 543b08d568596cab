//! Whether this replica may write.

use std::time::Duration;

use guestcluster_shell::clock::Instant;
use guestcluster_shell::lease::Leadership;
use tokio::sync::watch;

/// Asked before each write.
#[derive(Clone, Debug)]
pub enum Leader {
    /// There is no election: this is the only replica.
    Alone,
    /// Where this replica stands.
    Elected(watch::Receiver<Leadership>),
}

impl Leader {
    /// Whether a write that takes this long at most may be begun.
    pub fn allows(&self, now: Instant, act: Duration) -> bool {
        match self {
            Self::Alone => true,
            Self::Elected(leadership) => leadership.borrow().allows(now, act),
        }
    }

    /// Waits until this replica leads; `false` if it never will.
    pub async fn elected(&self) -> bool {
        match self {
            Self::Alone => true,
            Self::Elected(leadership) => {
                let leads =
                    |leadership: &Leadership| matches!(leadership, Leadership::Leading { .. });
                leadership.clone().wait_for(leads).await.is_ok()
            }
        }
    }
}
