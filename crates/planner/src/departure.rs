//! Why machines go off.

use guestcluster_api::Reason;

/// Why a machine goes off by our decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Departure {
    /// Its host is being drained; it comes back elsewhere, on its disks.
    Evicted,
    /// It shares its host with another control-plane machine; it comes back elsewhere, on its disks.
    CoLocated,
    /// A person deleted its VM.
    Lost,
    /// It has not served for long.
    Unhealthy,
    /// It was made from an earlier specification, or its certificates near their end.
    Outdated,
    /// There are more machines than asked for.
    Surplus,
}

impl Departure {
    /// Those after which the machine is gone for good: status remembers them.
    pub const FOR_GOOD: [Self; 4] = [Self::Lost, Self::Unhealthy, Self::Outdated, Self::Surplus];

    /// The machine comes back on its disks, and status need not remember why it went.
    pub const fn returns(self) -> bool {
        matches!(self, Self::Evicted | Self::CoLocated)
    }

    /// As status shows it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Evicted => "Evicted",
            Self::CoLocated => "CoLocated",
            Self::Lost => "Lost",
            Self::Unhealthy => "Unhealthy",
            Self::Outdated => "Outdated",
            Self::Surplus => "Surplus",
        }
    }

    /// From what status shows.
    pub fn parse(text: &str) -> Option<Self> {
        Self::FOR_GOOD.into_iter().find(|why| why.as_str() == text)
    }

    /// The reason that conditions give.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Evicted => Reason::Evicted,
            Self::CoLocated => Reason::MovedApart,
            Self::Lost => Reason::Lost,
            Self::Unhealthy => Reason::Unhealthy,
            Self::Outdated => Reason::Outdated,
            Self::Surplus => Reason::Surplus,
        }
    }

    /// In the middle of a sentence about a machine.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Evicted => "its host is being drained",
            Self::CoLocated => "it shares its host with another control-plane machine",
            Self::Lost => "its VM was deleted",
            Self::Unhealthy => "it has not served for long",
            Self::Outdated => {
                "it was made from an earlier specification, or its certificates near their end"
            }
            Self::Surplus => "there are more machines than asked for",
        }
    }
}
