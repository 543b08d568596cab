//! Counts what the operator writes, in the infrastructure cluster and in guests, and lets a chosen
//! write go wrong.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use guestcluster_paper::{Admission, Judge, Outcome};
use tokio::sync::{mpsc, oneshot};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The operator dies after the write, without an answer.
    Death,
    /// The write takes effect, and its answer is lost.
    LostAnswer,
    /// The write takes no effect and is answered with this status.
    Refusal(u16),
}

/// Which writes go wrong, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// None.
    None,
    /// This one.
    Only(usize),
    /// This one, and from there on each that comes so many later.
    Every(usize, usize),
}

impl Which {
    const fn hits(self, count: usize) -> bool {
        match self {
            Self::None => false,
            Self::Only(number) => count == number,
            Self::Every(first, step) => count >= first && (count - first).is_multiple_of(step),
        }
    }
}

/// Asks for the operator's death; answered when it has died.
pub type Execution = oneshot::Sender<()>;

/// The judge of all writes.
pub struct Tripwire {
    state: Mutex<State>,
    executioner: mpsc::Sender<Execution>,
}

struct State {
    which: Which,
    mishap: Mishap,
    lines: Vec<String>,
    mishaps: usize,
    /// Versions of what was written, by line.
    versions: HashMap<String, String>,
    /// The operator is dying: nothing that it writes now may count.
    closed: bool,
}

impl Tripwire {
    /// Lets everything pass; deaths are asked of `executioner`.
    pub fn new(executioner: mpsc::Sender<Execution>) -> Self {
        let state = State {
            which: Which::None,
            mishap: Mishap::Death,
            lines: Vec::new(),
            mishaps: 0,
            versions: HashMap::new(),
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            executioner,
        }
    }

    /// Begins to count anew.
    pub fn set(&self, which: Which, mishap: Mishap) {
        let mut state = self.state();
        (state.which, state.mishap) = (which, mishap);
        (state.lines, state.mishaps) = (Vec::new(), 0);
    }

    /// The writes since, and how many of them went wrong.
    pub fn count(&self) -> (Vec<String>, usize) {
        let state = self.state();
        (state.lines.clone(), state.mishaps)
    }

    /// A new operator writes.
    pub fn open(&self) {
        self.state().closed = false;
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

    /// Counts a write; whether it goes wrong.
    fn count(&mut self, line: &str) -> bool {
        self.lines.push(line.to_owned());
        let hit = self.which.hits(self.lines.len());
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
        match state.mishap {
            Mishap::Refusal(status) => {
                let hit = state.count(line);
                if hit {
                    Admission::Refuse(status)
                } else {
                    Admission::Pass
                }
            }
            Mishap::Death | Mishap::LostAnswer => Admission::Pass,
        }
    }

    fn landed<'a>(&'a self, line: &'a str, outcome: Outcome) -> BoxFuture<'a, bool> {
        let (dies, sent) = {
            let mut state = self.state();
            // What has changed nothing is no write: an action of many writes that is begun anew could
            // never come to its end if each of them went wrong again.
            let is_new = state.is_new(line, &outcome);
            let counts = is_new && !matches!(state.mishap, Mishap::Refusal(_));
            let hit = !state.closed && counts && state.count(line);
            let dies = hit && state.mishap == Mishap::Death;
            state.closed |= dies;
            (dies, !hit)
        };
        Box::pin(async move {
            let (done, execution) = oneshot::channel();
            if dies && self.executioner.send(done).await.is_ok() {
                // Whoever executes may have ended with the run.
                let _ = execution.await;
            }
            sent
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_chosen_writes_go_wrong() {
        let hits = |which: Which| (1..=7).filter(|n| which.hits(*n)).collect::<Vec<_>>();
        assert_eq!(hits(Which::Only(3)), [3]);
        assert_eq!(hits(Which::Every(2, 3)), [2, 5]);
        assert_eq!(hits(Which::None), [0_usize; 0]);
    }

    fn outcome(status: u16, version: Option<&str>) -> Outcome {
        let version = version.map(str::to_owned);
        Outcome { status, version }
    }

    #[tokio::test]
    async fn what_a_dying_operator_writes_does_not_count() {
        let (executioner, mut orders) = mpsc::channel::<Execution>(1);
        let tripwire = Tripwire::new(executioner);
        tripwire.set(Which::Only(1), Mishap::Death);
        let executed = async { orders.recv().await.unwrap().send(()).unwrap() };
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
        let (executioner, _orders) = mpsc::channel(1);
        let tripwire = Tripwire::new(executioner);
        tripwire.set(Which::Every(2, 1), Mishap::LostAnswer);
        assert!(tripwire.landed("POST a", outcome(409, None)).await);
        assert!(tripwire.landed("PATCH b", outcome(200, Some("7"))).await);
        assert!(tripwire.landed("PATCH b", outcome(200, Some("7"))).await);
        assert!(!tripwire.landed("PATCH b", outcome(200, Some("8"))).await);
    }

    #[test]
    fn a_refusal_comes_before_the_effect() {
        let (executioner, _orders) = mpsc::channel(1);
        let tripwire = Tripwire::new(executioner);
        tripwire.set(Which::Only(2), Mishap::Refusal(409));
        assert_eq!(tripwire.admit("POST a"), Admission::Pass);
        assert_eq!(tripwire.admit("POST b"), Admission::Refuse(409));
    }
}
