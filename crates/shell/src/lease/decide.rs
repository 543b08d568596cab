//! What a candidate does next about the lease, as a plain function.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

use super::Candidate;
use crate::clock::Instant;

/// The lease as we last read or wrote it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The object; `None` if there is none.
    pub lease: Option<Lease>,
    /// When we first saw this version of it. Its holder's time runs from here: the holder wrote it
    /// before we saw it, so by our clock it cannot be valid for longer than we wait.
    pub since: Instant,
}

impl Seen {
    /// Takes in what the server answered at `now`. A version that is seen again keeps its time;
    /// so does a lease that stays ours, since its time is that of our own last successful write.
    #[must_use]
    pub fn update(self, lease: Option<Lease>, now: Instant, me: &Candidate) -> Self {
        let arrived = Self { lease, since: now };
        let stays_ours = self.is_held_by(me) && arrived.is_held_by(me);
        if stays_ours || arrived.lease.is_some() && self.version() == arrived.version() {
            Self {
                since: self.since,
                ..arrived
            }
        } else {
            arrived
        }
    }

    /// Whether `me` is the holder.
    pub fn is_held_by(&self, me: &Candidate) -> bool {
        self.holder() == Some(&me.identity)
    }

    fn version(&self) -> Option<&str> {
        self.lease.as_ref()?.metadata.resource_version.as_deref()
    }

    /// Who holds the lease. An empty name is a lease that was released.
    pub fn holder(&self) -> Option<&str> {
        let spec = self.lease.as_ref()?.spec.as_ref()?;
        spec.holder_identity
            .as_deref()
            .filter(|holder| !holder.is_empty())
    }

    /// How long the holder asked to be waited for. Without a word of its own, as long as we would.
    fn duration(&self, me: &Candidate) -> Duration {
        let seconds = self
            .lease
            .as_ref()
            .and_then(|lease| lease.spec.as_ref()?.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or(me.timing.duration, Duration::from_secs)
    }
}

/// What a candidate does about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// There is no lease: make it, held by us.
    Create,
    /// Nobody holds it, or its holder has been silent for as long as it asked for: make it ours.
    Take,
    /// It is ours: say that we are still there.
    Renew,
    /// Look again at this time.
    Wait(Instant),
    /// It is ours and we leave: free it, so that the next one need not wait.
    Release,
}

/// What `me` does next about the lease as seen.
///
/// ```text
/// no lease ──────────────────────────▶ Create
/// held by nobody ────────────────────▶ Take
/// held by another, not yet expired ──▶ Wait, else Take
/// held by me, lately renewed ────────▶ Wait, else Renew
/// held by me, and I leave ───────────▶ Release
/// held otherwise, and I leave ───────▶ Wait
/// ```
pub fn next(now: Instant, seen: &Seen, me: &Candidate, leaving: bool) -> Move {
    let look_again = now + me.timing.retry;
    match seen.holder() {
        Some(_) if seen.is_held_by(me) => {
            let due = seen.since + me.timing.retry;
            if leaving {
                Move::Release
            } else if now >= due {
                Move::Renew
            } else {
                Move::Wait(due)
            }
        }
        _ if leaving => Move::Wait(look_again),
        Some(_) => {
            let expires = seen.since + seen.duration(me);
            // Looking seldom would miss the renewals that reset the time.
            if now >= expires {
                Move::Take
            } else {
                Move::Wait(expires.min(look_again))
            }
        }
        None if seen.lease.is_none() => Move::Create,
        None => Move::Take,
    }
}

/// The lease as it is after a move of ours. Everything that is not the election's stays as it was.
pub(super) fn written(seen: &Seen, me: &Candidate, step: Move, wall: Timestamp) -> Lease {
    let mut lease = seen.lease.clone().unwrap_or_default();
    let before = lease.spec.take().unwrap_or_default();
    lease.spec = Some(match step {
        Move::Release => LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(wall)),
            ..before
        },
        Move::Create | Move::Take => LeaseSpec {
            holder_identity: Some(me.identity.clone()),
            lease_duration_seconds: Some(whole_seconds(me.timing.duration)),
            acquire_time: Some(MicroTime(wall)),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(match step {
                Move::Create => 0,
                _ => before
                    .lease_transitions
                    .unwrap_or_default()
                    .saturating_add(1),
            }),
            ..before
        },
        Move::Renew | Move::Wait(_) => LeaseSpec {
            lease_duration_seconds: Some(whole_seconds(me.timing.duration)),
            renew_time: Some(MicroTime(wall)),
            ..before
        },
    });
    lease
}

/// Rounded up: others must not wait for less than we count on.
fn whole_seconds(duration: Duration) -> i32 {
    let up = u64::from(duration.subsec_nanos() > 0);
    i32::try_from(duration.as_secs().saturating_add(up)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use rstest::rstest;

    use super::*;
    use crate::clock::monotonic;
    use crate::lease::Timing;

    fn me() -> Candidate {
        Candidate {
            identity: "me".to_owned(),
            timing: Timing::default(),
        }
    }

    fn lease(holder: &str, seconds: i32, version: &str) -> Lease {
        Lease {
            metadata: ObjectMeta {
                resource_version: Some(version.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(seconds),
                ..LeaseSpec::default()
            }),
        }
    }

    #[derive(Debug, PartialEq, Eq)]
    enum Expected {
        Create,
        Take,
        Renew,
        WaitUntilSecond(u64),
        Release,
    }

    /// The lease is seen at second 0; we decide at second `at`. Others ask for 15 s; we look again
    /// each 4 s.
    #[rstest]
    #[case::there_is_none(None, 0, false, Expected::Create)]
    #[case::it_was_released(Some(""), 0, false, Expected::Take)]
    #[case::another_holds_it(Some("other"), 0, false, Expected::WaitUntilSecond(4))]
    #[case::its_time_is_nearly_over(Some("other"), 13, false, Expected::WaitUntilSecond(15))]
    #[case::its_time_is_over(Some("other"), 15, false, Expected::Take)]
    #[case::mine_and_fresh(Some("me"), 1, false, Expected::WaitUntilSecond(4))]
    #[case::mine_and_due(Some("me"), 4, false, Expected::Renew)]
    #[case::mine_and_late(Some("me"), 60, false, Expected::Renew)]
    #[case::mine_and_i_leave(Some("me"), 1, true, Expected::Release)]
    #[case::another_holds_it_and_i_leave(Some("other"), 60, true, Expected::WaitUntilSecond(64))]
    #[case::there_is_none_and_i_leave(None, 0, true, Expected::WaitUntilSecond(4))]
    fn the_next_move_follows_from_holder_and_time(
        #[case] holder: Option<&str>,
        #[case] at: u64,
        #[case] leaving: bool,
        #[case] expected: Expected,
    ) {
        let start = monotonic();
        let seen = Seen {
            lease: holder.map(|holder| lease(holder, 15, "1")),
            since: start,
        };
        let step = next(start + Duration::from_secs(at), &seen, &me(), leaving);
        let step = match step {
            Move::Create => Expected::Create,
            Move::Take => Expected::Take,
            Move::Renew => Expected::Renew,
            Move::Wait(until) => Expected::WaitUntilSecond((until - start).as_secs()),
            Move::Release => Expected::Release,
        };
        assert_eq!(step, expected);
    }

    #[test]
    fn a_version_seen_again_keeps_its_time_and_a_new_one_starts_anew() {
        let start = monotonic();
        let later = start + Duration::from_secs(9);
        let first = Seen {
            lease: Some(lease("other", 15, "1")),
            since: start,
        };
        let same = first
            .clone()
            .update(Some(lease("other", 15, "1")), later, &me());
        let renewed = first.update(Some(lease("other", 15, "2")), later, &me());
        assert_eq!((same.since, renewed.since), (start, later));
    }

    #[test]
    fn a_lease_that_stays_mine_keeps_the_time_of_my_own_write() {
        let start = monotonic();
        let later = start + Duration::from_secs(9);
        let mine = Seen {
            lease: Some(lease("me", 30, "1")),
            since: start,
        };
        assert_eq!(
            mine.clone()
                .update(Some(lease("me", 30, "2")), later, &me())
                .since,
            start
        );
        assert_eq!(
            mine.update(Some(lease("other", 30, "2")), later, &me())
                .since,
            later
        );
    }

    #[test]
    fn taking_counts_a_transition_and_leaves_the_rest_of_the_object() {
        let mut held = lease("other", 15, "7");
        held.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        let seen = Seen {
            lease: Some(held),
            since: monotonic(),
        };
        let taken = written(&seen, &me(), Move::Take, Timestamp::UNIX_EPOCH);
        let spec = taken.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("me"));
        assert_eq!(
            (spec.lease_transitions, spec.lease_duration_seconds),
            (Some(1), Some(30))
        );
        assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(taken.metadata.labels.unwrap()["a"], "b");
    }

    #[test]
    fn the_duration_that_others_read_is_never_shorter_than_ours() {
        assert_eq!(whole_seconds(Duration::from_millis(14_001)), 15);
        assert_eq!(whole_seconds(Duration::from_secs(15)), 15);
    }
}
