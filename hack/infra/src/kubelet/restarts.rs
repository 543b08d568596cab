//! When a container that ended is started again.

use std::time::Duration;

/// The pause before the second restart; it doubles from there.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause: shorter than a kubelet's five minutes, so that tests need not wait.
const LONGEST: Duration = Duration::from_secs(30);
/// A container that ran this long is trusted again.
const TRUSTED: Duration = Duration::from_secs(60);

/// The restart policy of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// However it ended.
    Always,
    /// When it ended badly.
    OnFailure,
    /// Not at all.
    Never,
}

impl Policy {
    /// Reads the word of the API; a Pod without one restarts always.
    pub fn read(word: Option<&str>) -> Self {
        match word {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Whether a container that ended with `code` is started again.
    pub fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// The growing pause of a container that keeps ending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    /// The pause before the next start, after a run of this length. The first restart is at once.
    pub fn pause(&mut self, ran: Duration) -> Duration {
        if ran >= TRUSTED {
            self.next = Duration::ZERO;
        }
        let pause = self.next;
        self.next = (self.next * 2).clamp(FIRST, LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Policy};
    use std::time::Duration;

    #[test]
    fn pauses_double_until_the_container_is_trusted_again() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..7)
            .map(|_| backoff.pause(Duration::from_secs(1)).as_secs())
            .collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30]);
        assert_eq!(backoff.pause(Duration::from_secs(100)), Duration::ZERO);
    }

    #[test]
    fn the_policy_decides() {
        assert!(Policy::read(None).restarts(0));
        assert!(!Policy::read(Some("OnFailure")).restarts(0));
        assert!(Policy::read(Some("OnFailure")).restarts(1));
        assert!(!Policy::read(Some("Never")).restarts(1));
    }
}
