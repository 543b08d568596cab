//! When certificates begin, end and must be renewed.

use crate::Error;

const DAY: i64 = 24 * 60 * 60;

/// How far before `now` a new certificate begins, in seconds: clocks of guests and hosts differ,
/// and a certificate from the future is refused. Cluster API uses the same five minutes.
pub const BACKDATE: i64 = 5 * 60;

/// Life of a certificate authority, in seconds: ten years, as kubeadm's and Cluster API's.
pub const AUTHORITY_LIFETIME: i64 = 3650 * DAY;

/// Life of the client certificate in the kubeconfig handed to users, in seconds: one year.
pub const ADMIN_LIFETIME: i64 = 365 * DAY;

/// Life of the certificates that the operator mints for itself, in seconds: one day. They live
/// in its memory only and cost less than a millisecond, so there is no reason for more.
pub const OPERATOR_LIFETIME: i64 = DAY;

/// From when until when a certificate holds, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second at which it holds.
    pub not_before: i64,
    /// Last second at which it holds.
    pub not_after: i64,
}

impl Validity {
    /// Begins [`BACKDATE`] before `now` and ends `lifetime` seconds after it.
    pub const fn starting(now: i64, lifetime: i64) -> Self {
        Self {
            not_before: now.saturating_sub(BACKDATE),
            not_after: now.saturating_add(lifetime),
        }
    }

    /// The same validity, ending no later than `limit`.
    #[must_use]
    pub fn until_at_most(self, limit: i64) -> Self {
        Self {
            not_after: self.not_after.min(limit),
            ..self
        }
    }

    /// Whether it holds at `now`.
    pub const fn contains(self, now: i64) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// When to renew: see [`renew_at`].
    pub const fn renew_at(self) -> i64 {
        renew_at(self.not_before, self.not_after)
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        if self.not_before < self.not_after {
            Ok(self)
        } else {
            Err(Error::EmptyValidity {
                not_before: self.not_before,
                not_after: self.not_after,
            })
        }
    }

    pub(crate) fn to_dates(self) -> Result<(time::OffsetDateTime, time::OffsetDateTime), Error> {
        let date = |seconds| {
            time::OffsetDateTime::from_unix_timestamp(seconds)
                .map_err(|error| Error::Generation(error.to_string()))
        };
        Ok((date(self.not_before)?, date(self.not_after)?))
    }
}

/// When a certificate with this life must be renewed, in Unix seconds: when a third of its life
/// remains. Late enough to be rare, early enough that a machine rollout that is held for weeks
/// still ends in time.
pub const fn renew_at(not_before: i64, not_after: i64) -> i64 {
    not_after.saturating_sub(not_after.saturating_sub(not_before) / 3)
}
