//! Counts what the operator writes, in the infrastructure cluster and in guests, and lets a chosen
//! write go wrong.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use guestcluster_paper::{Admission, Judge, Outcome};
use tokio::sync::{mpsc, oneshot};

use super::mishap::{Mishap, Trouble};
use super::watches::Watches;

/// After how long a late request takes effect: just after the operator's own limit for a call, when
/// it may be trying again.
const LATE: Duration = Duration::from_secs(6);

/// Held by whatever is still to come of a mishap.
pub type Pending = Arc<()>;

/// What is to be done to the operator.
#[derive(Debug)]
pub struct Order {
    /// What.
    pub deed: Deed,
    /// Answered when it is done.
    pub done: oneshot::Sender<()>,
    /// Dropped when all that follows from it is over.
    pub pending: Pending,
}

/// What can be done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It dies.
    Kill,
    /// It stands still until another has taken over.
    Freeze,
}

/// The judge of all writes.
pub struct Tripwire {
    state: Mutex<State>,
    watches: Arc<Watches>,
}

struct State {
    trouble: Trouble,
    lines: Vec<String>,
    mishaps: usize,
    /// Versions of what was written, by line.
    versions: HashMap<String, String>,
    /// The operator is dying: nothing that it writes now may count.
    closed: bool,
    /// Who carries orders out.
    executioner: Option<mpsc::Sender<Order>>,
    pending: Pending,
}

/// What becomes of an answer.
enum Fate {
    Sent,
    Lost,
    Awaited,
    After(Deed),
}

impl Tripwire {
    /// Lets everything pass; through `watches` the operator sees.
    pub fn new(watches: Arc<Watches>) -> Self {
        let state = State {
            trouble: Trouble::NONE,
            lines: Vec::new(),
            mishaps: 0,
            versions: HashMap::new(),
            closed: false,
            executioner: None,
            pending: Arc::default(),
        };
        Self {
            state: Mutex::new(state),
            watches,
        }
    }

    /// Begins to count anew.
    pub fn set(&self, trouble: Trouble) {
        let mut state = self.state();
        state.trouble = trouble;
        (state.lines, state.mishaps) = (Vec::new(), 0);
    }

    /// The writes since, and how many of them went wrong.
    pub fn count(&self) -> (Vec<String>, usize) {
        let state = self.state();
        (state.lines.clone(), state.mishaps)
    }

    /// Whether nothing more is to come of what went wrong.
    pub fn is_quiet(&self) -> bool {
        self.state().is_quiet()
    }

    /// A new operator writes.
    pub fn open(&self) {
        self.state().closed = false;
    }

    /// From now on orders go there.
    pub fn give_orders_to(&self, executioner: mpsc::Sender<Order>) {
        self.state().executioner = Some(executioner);
    }

    /// Withholds watches for a while.
    fn withhold(&self, wait: Duration, pending: Pending) {
        let watches = self.watches.clone();
        watches.withhold();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            watches.release();
            drop(pending);
        });
    }

    async fn order(&self, deed: Deed) {
        let (executioner, pending) = {
            let state = self.state();
            (state.executioner.clone(), state.pending.clone())
        };
        let (done, execution) = oneshot::channel();
        let order = Order {
            deed,
            done,
            pending,
        };
        if let Some(executioner) = executioner
            && executioner.send(order).await.is_ok()
        {
            // Whoever executes may have ended with the run.
            let _ = execution.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether a request has changed something.
    fn is_new(&mut self, line: &str, outcome: &Outcome) -> bool {
        let Some(version) = outcome.version.clone().filter(|_| outcome.status < 300) else {
            return outcome.status < 300;
        };
        self.versions.insert(line.to_owned(), version.clone()) != Some(version)
    }

    fn is_quiet(&self) -> bool {
        Arc::strong_count(&self.pending) == 1
    }

    /// Counts a write; whether it goes wrong. One mishap at a time: a frozen operator's successor
    /// must not be frozen too.
    fn count(&mut self, line: &str) -> bool {
        self.lines.push(line.to_owned());
        let hit = self.trouble.which.hits(self.lines.len()) && self.is_quiet();
        self.mishaps += usize::from(hit);
        hit
    }
}

impl Judge for Tripwire {
    fn admit(&self, line: &str) -> Admission {
        let mut state = self.state();
        if state.closed {
            return Admission::Drop;
        }
        let mishap = state.trouble.mishap;
        if !mishap.comes_first() || !state.count(line) {
            return Admission::Pass;
        }
        match mishap {
            Mishap::Refusal(status) => Admission::Refuse(status),
            Mishap::LostRequest => Admission::Lose,
            Mishap::LateRequest => {
                let pending = state.pending.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LATE.mul_f32(1.2)).await;
                    drop(pending);
                });
                Admission::Delay(LATE)
            }
            Mishap::StaleCache(wait) => {
                self.withhold(wait, state.pending.clone());
                Admission::Pass
            }
            Mishap::Death
            | Mishap::LostAnswer
            | Mishap::LateAnswer
            | Mishap::CutWatch
            | Mishap::Freeze => Admission::Pass,
        }
    }

    fn landed<'a>(&'a self, line: &'a str, outcome: Outcome) -> BoxFuture<'a, bool> {
        let fate = {
            let mut state = self.state();
            // What has changed nothing is no write: an action of many writes that is begun anew could
            // never come to its end if each of them went wrong again.
            let is_new = state.is_new(line, &outcome);
            let mishap = state.trouble.mishap;
            let counts = is_new && !mishap.comes_first() && !state.closed;
            let hit = counts && state.count(line);
            match mishap {
                _ if !hit => Fate::Sent,
                Mishap::Death => {
                    state.closed = true;
                    Fate::After(Deed::Kill)
                }
                Mishap::LostAnswer => Fate::Lost,
                Mishap::LateAnswer => Fate::Awaited,
                Mishap::Freeze => Fate::After(Deed::Freeze),
                Mishap::CutWatch => {
                    self.watches.cut();
                    Fate::Sent
                }
                Mishap::Refusal(_)
                | Mishap::LostRequest
                | Mishap::LateRequest
                | Mishap::StaleCache(_) => Fate::Sent,
            }
        };
        Box::pin(async move {
            match fate {
                Fate::Sent => true,
                Fate::Lost => false,
                Fate::Awaited => std::future::pending().await,
                Fate::After(deed) => {
                    self.order(deed).await;
                    deed == Deed::Freeze
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::crash::mishap::Which;

    fn tripwire(which: Which, mishap: Mishap) -> Tripwire {
        let tripwire = Tripwire::new(Arc::default());
        tripwire.set(Trouble { which, mishap });
        tripwire
    }

    fn outcome(status: u16, version: Option<&str>) -> Outcome {
        let version = version.map(str::to_owned);
        Outcome { status, version }
    }

    #[tokio::test]
    async fn what_a_dying_operator_writes_does_not_count() {
        let tripwire = tripwire(Which::Only(1), Mishap::Death);
        let (executioner, mut orders) = mpsc::channel(1);
        tripwire.give_orders_to(executioner);
        let executed = async { orders.recv().await.unwrap().done.send(()).unwrap() };
        let (sent, ()) = tokio::join!(tripwire.landed("POST a", outcome(201, None)), executed);
        assert!(!sent);
        assert_eq!(tripwire.admit("POST b"), Admission::Drop);
        tripwire.open();
        assert_eq!(tripwire.admit("POST c"), Admission::Pass);
        assert!(tripwire.landed("POST c", outcome(201, None)).await);
        assert_eq!(tripwire.count().0, ["POST a", "POST c"]);
    }

    #[tokio::test]
    async fn what_changes_nothing_is_no_write() {
        let tripwire = tripwire(Which::Every(2, 1), Mishap::LostAnswer);
        assert!(tripwire.landed("POST a", outcome(409, None)).await);
        assert!(tripwire.landed("PATCH b", outcome(200, Some("7"))).await);
        assert!(tripwire.landed("PATCH b", outcome(200, Some("7"))).await);
        assert!(!tripwire.landed("PATCH b", outcome(200, Some("8"))).await);
    }

    #[test]
    fn a_refusal_comes_before_the_effect() {
        let tripwire = tripwire(Which::Only(2), Mishap::Refusal(409));
        assert_eq!(tripwire.admit("POST a"), Admission::Pass);
        assert_eq!(tripwire.admit("POST b"), Admission::Refuse(409));
    }

    #[test]
    fn a_late_answer_does_not_come() {
        let tripwire = tripwire(Which::Only(1), Mishap::LateAnswer);
        let landed = tripwire.landed("POST a", outcome(201, None));
        assert!(landed.now_or_never().is_none());
    }

    #[tokio::test]
    async fn nothing_else_goes_wrong_before_a_mishap_is_over() {
        let lag = Duration::from_millis(20);
        let tripwire = tripwire(Which::Every(1, 1), Mishap::StaleCache(lag));
        for _ in 0..2 {
            assert_eq!(tripwire.admit("PATCH a"), Admission::Pass);
        }
        assert_eq!((tripwire.count().1, tripwire.is_quiet()), (1, false));
        tokio::time::sleep(lag * 2).await;
        assert!(tripwire.is_quiet());
        tripwire.admit("PATCH a");
        assert_eq!(tripwire.count().1, 2);
    }
}
