//! Candidates against each other over one lease in memory, in paused time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::core::Status;
use kube::core::response::reason;
use proptest::prelude::*;
use tokio::task::JoinHandle;

use super::*;

/// What becomes of one request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It takes effect after the first delay and is answered after the second.
    Answered(u64, u64),
    /// It never arrives.
    Lost,
    /// It takes effect after the delay; its answer never arrives.
    Unanswered(u64),
}

/// One lease as an API server keeps it.
#[derive(Debug, Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

impl Server {
    fn store(&mut self, mut lease: Lease) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        lease
    }

    fn create(&mut self, lease: Lease) -> kube::Result<Lease> {
        match self.lease {
            Some(_) => Err(failure(reason::ALREADY_EXISTS, 409)),
            None => Ok(self.store(lease)),
        }
    }

    fn replace(&mut self, lease: Lease) -> kube::Result<Lease> {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        match &self.lease {
            None => Err(failure(reason::NOT_FOUND, 404)),
            Some(held) if version(held) == version(&lease) => Ok(self.store(lease)),
            Some(_) => Err(failure(reason::CONFLICT, 409)),
        }
    }
}

fn failure(reason: &str, code: u16) -> kube::Error {
    kube::Error::Api(Status::failure("", reason).with_code(code).boxed())
}

/// One candidate's way to the server: each request takes the next fate of the script.
#[derive(Clone, Debug)]
struct Wire {
    server: Arc<Mutex<Server>>,
    fates: Arc<Mutex<Vec<Fate>>>,
}

impl Wire {
    fn new(server: &Arc<Mutex<Server>>, fates: Vec<Fate>) -> Self {
        Self {
            server: Arc::clone(server),
            fates: Arc::new(Mutex::new(fates)),
        }
    }

    /// A request goes on when its sender has given up: it runs in a task of its own.
    async fn request<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Server) -> kube::Result<T> + Send + 'static,
    ) -> kube::Result<T> {
        let fate = self
            .fates
            .lock()
            .unwrap()
            .pop()
            .unwrap_or(Fate::Answered(10, 10));
        let server = Arc::clone(&self.server);
        let effect = |delay: u64| -> JoinHandle<kube::Result<T>> {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(delay)).await;
                act(&mut server.lock().unwrap())
            })
        };
        match fate {
            Fate::Answered(before, after) => {
                let answer = effect(before).await.unwrap();
                tokio::time::sleep(Duration::from_millis(after)).await;
                answer
            }
            Fate::Lost => std::future::pending().await,
            Fate::Unanswered(before) => {
                drop(effect(before));
                std::future::pending().await
            }
        }
    }
}

impl LeaseApi for Wire {
    async fn get(&self) -> kube::Result<Option<Lease>> {
        self.request(|server| Ok(server.lease.clone())).await
    }

    async fn create(&self, lease: &Lease) -> kube::Result<Lease> {
        let lease = lease.clone();
        self.request(|server| server.create(lease)).await
    }

    async fn replace(&self, lease: &Lease) -> kube::Result<Lease> {
        let lease = lease.clone();
        self.request(|server| server.replace(lease)).await
    }
}

type Running = (
    watch::Receiver<Leadership>,
    JoinHandle<Result<(), LeaseError>>,
);

fn candidate(
    identity: &str,
    wire: Wire,
    leave: impl Future<Output = ()> + Send + 'static,
) -> Running {
    let me = Candidate {
        identity: identity.to_owned(),
        timing: Timing::default(),
    };
    let (elector, leadership) = Elector::new(wire, me).unwrap();
    (leadership, tokio::spawn(elector.run(leave)))
}

fn forever() -> std::future::Pending<()> {
    std::future::pending()
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn leads(leadership: &watch::Receiver<Leadership>) -> bool {
    leadership.borrow().remaining(monotonic()) > Duration::ZERO
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_and_always_has_ten_seconds_left() {
    let server = Arc::default();
    let (leadership, _task) = candidate("a", Wire::new(&server, Vec::new()), forever());
    assert!(until_leading(&leadership).await);
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(
            leadership
                .borrow()
                .allows(monotonic(), Duration::from_secs(10))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_at_once_when_the_leader_leaves() {
    let server = Arc::default();
    let (a, task) = candidate("a", Wire::new(&server, Vec::new()), seconds(60));
    assert!(until_leading(&a).await);
    let (b, _task) = candidate("b", Wire::new(&server, Vec::new()), forever());
    seconds(30).await;
    assert_eq!(
        *b.borrow(),
        Leadership::Standby {
            leader: Some("a".to_owned())
        }
    );
    task.await.unwrap().unwrap();
    assert_eq!(*a.borrow(), Leadership::Over);
    let freed = monotonic();
    assert!(until_leading(&b).await);
    assert!(monotonic() - freed <= Timing::default().retry + Duration::from_secs(1));
    let transitions = server
        .lock()
        .unwrap()
        .lease
        .clone()
        .unwrap()
        .spec
        .unwrap()
        .lease_transitions;
    assert_eq!(transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_standby_waits_for_the_whole_duration_when_the_leader_dies() {
    let server = Arc::default();
    let (a, task) = candidate("a", Wire::new(&server, Vec::new()), forever());
    assert!(until_leading(&a).await);
    let (b, _task) = candidate("b", Wire::new(&server, Vec::new()), forever());
    seconds(10).await;
    task.abort();
    let died = monotonic();
    assert!(until_leading(&b).await);
    let waited = monotonic() - died;
    assert!(waited > Timing::default().deadline, "{waited:?}");
    assert!(
        waited < Timing::default().duration + Duration::from_secs(9),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_within_its_deadline() {
    let server = Arc::default();
    // Popped from the end: one look and one creation work, then nothing arrives.
    let mut fates = vec![Fate::Lost; 50];
    fates.extend([Fate::Answered(0, 0); 2]);
    let (leadership, task) = candidate("a", Wire::new(&server, fates), forever());
    assert!(until_leading(&leadership).await);
    let began = monotonic();
    assert!(matches!(task.await.unwrap(), Err(LeaseError::Expired(_))));
    assert_eq!(monotonic() - began, Timing::default().deadline);
    assert_eq!(*leadership.borrow(), Leadership::Over);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_does_not_lengthen_a_leaders_time() {
    let server = Arc::default();
    // Popped from the end: a look, a creation, and a renewal whose answer takes 4.9 s.
    let fates = vec![
        Fate::Answered(0, 4_900),
        Fate::Answered(0, 0),
        Fate::Answered(0, 0),
    ];
    let (leadership, _task) = candidate("a", Wire::new(&server, fates), forever());
    assert!(until_leading(&leadership).await);
    let mut leadership = leadership;
    leadership.mark_unchanged();
    leadership.changed().await.unwrap();
    let left = leadership.borrow().remaining(monotonic());
    assert_eq!(left, Duration::from_millis(15_100));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_finds_another_holder_ends() {
    let server: Arc<Mutex<Server>> = Arc::default();
    let (leadership, task) = candidate("a", Wire::new(&server, Vec::new()), forever());
    assert!(until_leading(&leadership).await);
    {
        let mut server = server.lock().unwrap();
        let mut lease = server.lease.clone().unwrap();
        lease.spec.as_mut().unwrap().holder_identity = Some("thief".to_owned());
        server.store(lease);
    }
    let lost = task.await.unwrap();
    assert!(matches!(lost, Err(LeaseError::Lost(Some(thief))) if thief == "thief"));
}

#[tokio::test(start_paused = true)]
async fn an_edit_by_others_that_leaves_the_holder_does_not_end_a_leader() {
    let server: Arc<Mutex<Server>> = Arc::default();
    let (leadership, _task) = candidate("a", Wire::new(&server, Vec::new()), forever());
    assert!(until_leading(&leadership).await);
    for _ in 0..10 {
        seconds(3).await;
        let mut server = server.lock().unwrap();
        let lease = server.lease.clone().unwrap();
        server.store(lease);
    }
    assert!(leads(&leadership));
}

#[test]
fn times_that_contradict_each_other_are_refused() {
    let timing = Timing {
        deadline: Duration::from_secs(30),
        ..Timing::default()
    };
    let me = Candidate {
        identity: "a".to_owned(),
        timing,
    };
    let wire = Wire::new(&Arc::default(), Vec::new());
    assert!(matches!(Elector::new(wire, me), Err(LeaseError::Timing(_))));
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => (0..100_u64, 0..100_u64).prop_map(|(before, after)| Fate::Answered(before, after)),
        3 => (0..1_000_u64, 0..3_900_u64).prop_map(|(before, after)| Fate::Answered(before, after)),
        3 => Just(Fate::Lost),
        2 => (0..20_000_u64).prop_map(Fate::Unanswered),
    ]
}

/// A candidate that comes, has bad luck with its requests, and leaves or dies.
#[derive(Clone, Debug)]
struct Life {
    comes: u64,
    stays: u64,
    dies: bool,
    fates: Vec<Fate>,
}

fn life() -> impl Strategy<Value = Life> {
    // Luck comes in runs, as outages do.
    let fates = prop::collection::vec((fate(), 1..12_usize), 0..10);
    (0..120_u64, 1..300_u64, any::<bool>(), fates).prop_map(|(comes, stays, dies, runs)| {
        let run = |(fate, times)| std::iter::repeat_n(fate, times);
        Life {
            comes,
            stays,
            dies,
            fates: runs.into_iter().flat_map(run).collect(),
        }
    })
}

/// So tight that a leader which counts from a moment too late, or others who count from one too
/// early, are found out.
const TIGHT: Timing = Timing {
    duration: Duration::from_secs(10),
    deadline: Duration::from_millis(9_900),
    retry: Duration::from_secs(2),
    request: Duration::from_secs(4),
};

/// Runs some lives; answers the most leaders that there were at any moment.
async fn most_leaders(lives: Vec<Life>) -> usize {
    let server = Arc::default();
    let mut standing = Vec::new();
    for (number, life) in lives.into_iter().enumerate() {
        let me = Candidate {
            identity: number.to_string(),
            timing: TIGHT,
        };
        let wire = Wire::new(&server, life.fates);
        let (elector, leadership) = Elector::new(wire, me).unwrap();
        standing.push(leadership);
        tokio::spawn(async move {
            seconds(life.comes).await;
            if life.dies {
                // The process is gone, and so is what it thought of itself.
                let (leave, run) = (seconds(life.stays), elector.run(forever()));
                tokio::select! { () = leave => {}, _ = run => {} }
            } else {
                let _ = elector.run(seconds(life.stays)).await;
            }
        });
    }
    let mut most = 0;
    for _ in 0..4_000 {
        most = most.max(
            standing
                .iter()
                .filter(|leadership| leads(leadership))
                .count(),
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn there_are_never_two_leaders(lives in prop::collection::vec(life(), 2..5)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        prop_assert!(runtime.block_on(most_leaders(lives)) <= 1);
    }
}
