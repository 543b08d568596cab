//! Leader election over a `coordination.k8s.io/v1` Lease.
//!
//! # Guarantees
//! - At no time do two candidates both have [`Leadership::remaining`] time, as long as their clocks
//!   run at speeds that differ by less than `deadline / duration`.
//!   - Each write names the version that it replaces, so of two candidates one gets a conflict.
//!   - A leader counts its time from before it *sent* the renewal that succeeded, and for
//!     [`Timing::deadline`] only. Others count from when they *saw* it, which is later, and for
//!     [`Timing::duration`], which is longer. Nobody compares wall clocks.
//! - A leader that cannot renew in time, or finds the lease in other hands, ends its election with
//!   an error; the process is meant to end with it. It never leads a second time.
//! - A leader that leaves frees the lease, so that the next need not wait.
//!
//! # Assumes
//! - [`Candidate::identity`] belongs to this process alone, restarts included: a Pod's name with
//!   something random after it.
//! - Whoever acts as leader asks for the remaining time before each act, and acts only if the act
//!   ends within it.
//!
//! # Caveats
//! - The monotonic clock stands still while a machine is suspended: a suspended leader believes in
//!   its time for a moment after it wakes.

mod api;
mod decide;

pub use api::{LeaseApi, NamedLease};
pub use decide::{Move, Seen, next};

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::clock::{Instant, monotonic, now};
use crate::error::Class;

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait for a silent holder.
    pub duration: Duration,
    /// How long a leader counts on a renewal; shorter than `duration`.
    pub deadline: Duration,
    /// How often the lease is renewed or looked at; a small part of `deadline`.
    pub retry: Duration,
    /// How long one request may take.
    pub request: Duration,
}

impl Default for Timing {
    /// A leader whose renewals succeed has at least 15 s left at any time, and nearly 10 s when one
    /// of them hangs.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(30),
            deadline: Duration::from_secs(20),
            retry: Duration::from_secs(4),
            request: Duration::from_secs(5),
        }
    }
}

/// Who takes part in an election.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Unlike that of any other process, past or present.
    pub identity: String,
    /// The times it keeps.
    pub timing: Timing,
}

/// Where a candidate stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Not (yet) leading; the leader is this one, as far as is known.
    Standby {
        /// The identity of the holder.
        leader: Option<String>,
    },
    /// Leading, until this time unless it is renewed.
    Leading {
        /// The end of the time that can be counted on.
        until: Instant,
    },
    /// Led, or never did, and takes no part any more.
    Over,
}

impl Leadership {
    /// How long this candidate surely still leads.
    pub fn remaining(&self, now: Instant) -> Duration {
        match self {
            Self::Leading { until } => until.saturating_duration_since(now),
            Self::Standby { .. } | Self::Over => Duration::ZERO,
        }
    }

    /// Whether an act that takes this long at most may be begun.
    pub fn allows(&self, now: Instant, act: Duration) -> bool {
        self.remaining(now) > act
    }
}

/// Why an election ended badly.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The times contradict each other.
    #[error("a lease needs retry < deadline < duration, but has {0:?}")]
    Timing(Timing),
    /// The lease could not be renewed in time.
    #[error("the lease could not be renewed within {0:?}")]
    Expired(Duration),
    /// Somebody else has the lease, or took it away.
    #[error("the lease was lost to {}", .0.as_deref().unwrap_or("nobody"))]
    Lost(Option<String>),
}

/// Waits until the candidate leads; `false` if it will not.
pub async fn until_leading(leadership: &watch::Receiver<Leadership>) -> bool {
    let settled = |leadership: &Leadership| !matches!(leadership, Leadership::Standby { .. });
    let mut leadership = leadership.clone();
    let settled = leadership.wait_for(settled).await;
    settled.is_ok_and(|leadership| matches!(*leadership, Leadership::Leading { .. }))
}

/// Takes part in an election.
#[derive(Debug)]
pub struct Elector<A> {
    api: A,
    me: Candidate,
    leadership: watch::Sender<Leadership>,
    seen: Seen,
    /// Whether `seen` is what we wrote last, so that the next move needs no look.
    is_own: bool,
}

impl<A: LeaseApi> Elector<A> {
    /// An elector, and where its candidate stands.
    ///
    /// # Errors
    /// [`LeaseError::Timing`].
    pub fn new(api: A, me: Candidate) -> Result<(Self, watch::Receiver<Leadership>), LeaseError> {
        let timing = me.timing;
        if timing.retry >= timing.deadline || timing.deadline >= timing.duration {
            return Err(LeaseError::Timing(timing));
        }
        let (leadership, receiver) = watch::channel(Leadership::Standby { leader: None });
        let seen = Seen {
            lease: None,
            since: monotonic(),
        };
        Ok((
            Self {
                api,
                me,
                leadership,
                seen,
                is_own: false,
            },
            receiver,
        ))
    }

    /// Takes part until `leave` is ready, then frees the lease if it is ours.
    ///
    /// A leader should let `leave` be ready only when it has stopped to act: until then the lease
    /// is renewed. Requests in progress are not cut off by it.
    ///
    /// # Errors
    /// If this candidate led and leads no more. The process should end.
    pub async fn run(mut self, leave: impl Future<Output = ()>) -> Result<(), LeaseError> {
        let mut leave = std::pin::pin!(leave);
        let outcome = loop {
            let pause = match self.turn().await {
                Ok(pause) => pause,
                Err(error) => break Err(error),
            };
            tokio::select! {
                biased;
                () = &mut leave => break Ok(()),
                () = tokio::time::sleep_until(pause) => {}
            }
        };
        let led = matches!(*self.leadership.borrow(), Leadership::Leading { .. });
        // Before the lease is freed: from here on this process does not lead.
        self.leadership.send_replace(Leadership::Over);
        if led && outcome.is_ok() {
            self.release().await;
        }
        outcome
    }

    /// One look, if it takes one, and one move. Answers when the next is due.
    async fn turn(&mut self) -> Result<Instant, LeaseError> {
        let soon = self.me.timing.retry / 4;
        if !self.is_own && !self.look().await? {
            return self.no_later_than_deadline(monotonic() + soon);
        }
        let pause = match next(monotonic(), &self.seen, &self.me, false) {
            Move::Wait(until) => until,
            step if self.make(step).await => monotonic() + self.me.timing.retry,
            // A failed renewal has to be tried again well before the deadline.
            _ => monotonic() + soon,
        };
        self.no_later_than_deadline(pause)
    }

    /// A leader whose time is over leads no more, whatever the lease says.
    fn no_later_than_deadline(&self, pause: Instant) -> Result<Instant, LeaseError> {
        match *self.leadership.borrow() {
            Leadership::Leading { until } if until <= monotonic() => {
                Err(LeaseError::Expired(self.me.timing.deadline))
            }
            Leadership::Leading { until } => Ok(pause.min(until)),
            Leadership::Standby { .. } | Leadership::Over => Ok(pause),
        }
    }

    /// Reads the lease. Whether the server answered.
    async fn look(&mut self) -> Result<bool, LeaseError> {
        let lease = match tokio::time::timeout(self.limit(), self.api.get()).await {
            Ok(Ok(lease)) => lease,
            Ok(Err(error)) => {
                warn!(%error, "lease not read");
                return Ok(false);
            }
            Err(_elapsed) => {
                warn!("lease not read in time");
                return Ok(false);
            }
        };
        let before = std::mem::replace(
            &mut self.seen,
            Seen {
                lease: None,
                since: monotonic(),
            },
        );
        self.seen = before.update(lease, monotonic(), &self.me);
        if !self.seen.is_held_by(&self.me) {
            let leader = self.seen.holder().map(str::to_owned);
            let standing = self.leadership.borrow().clone();
            match standing {
                Leadership::Leading { .. } => return Err(LeaseError::Lost(leader)),
                Leadership::Standby { leader: known } if known != leader => {
                    self.leadership.send_replace(Leadership::Standby { leader });
                }
                Leadership::Standby { .. } | Leadership::Over => {}
            }
        }
        Ok(true)
    }

    /// Writes the lease so that it is ours for a while. Whether that worked; if it did not, or
    /// nobody knows, the next turn looks first.
    async fn make(&mut self, step: Move) -> bool {
        // Taken before the request is sent: it may take effect at any time after this.
        let sent = monotonic();
        self.is_own = false;
        match self.write(step).await {
            Some(lease) => {
                self.seen = Seen {
                    lease: Some(lease),
                    since: sent,
                };
                self.is_own = true;
                if step != Move::Renew {
                    info!(identity = %self.me.identity, "leading");
                }
                let until = sent + self.me.timing.deadline;
                self.leadership.send_replace(Leadership::Leading { until });
                true
            }
            None => false,
        }
    }

    async fn write(&self, step: Move) -> Option<Lease> {
        let lease = decide::written(&self.seen, &self.me, step, now());
        let request = async {
            match step {
                Move::Create => self.api.create(&lease).await,
                Move::Take | Move::Renew | Move::Release | Move::Wait(_) => {
                    self.api.replace(&lease).await
                }
            }
        };
        match tokio::time::timeout(self.limit(), request).await {
            Ok(Ok(lease)) => return Some(lease),
            Ok(Err(error)) if Class::of(&error) == Class::Conflict => {
                debug!(?step, "another wrote the lease first");
            }
            Ok(Err(error)) => warn!(?step, %error, "lease not written"),
            Err(_elapsed) => warn!(?step, "lease not written in time"),
        }
        None
    }

    /// Frees the lease. If that fails, others wait until it has expired: no harm but their time.
    async fn release(&mut self) {
        for _ in 0..2 {
            let is_known = self.is_own || self.look().await.unwrap_or(false);
            if is_known
                && self.seen.is_held_by(&self.me)
                && self.write(Move::Release).await.is_some()
            {
                info!(identity = %self.me.identity, "lease released");
                return;
            }
            self.is_own = false;
        }
    }

    /// How long one request may take; a leader's ends with its time.
    fn limit(&self) -> Duration {
        match &*self.leadership.borrow() {
            leading @ Leadership::Leading { .. } => {
                leading.remaining(monotonic()).min(self.me.timing.request)
            }
            Leadership::Standby { .. } | Leadership::Over => self.me.timing.request,
        }
    }
}

#[cfg(test)]
mod tests;
