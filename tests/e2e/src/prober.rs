//! Asks a guest's API without pause and counts what fails: five requests a second, each over a TLS
//! connection of its own, half of them writes. One that was not answered within two seconds failed; it is
//! waited for longer, to tell one that is lost from one that is late.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Config};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

const PERIOD: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(2);
/// etcd gives up a proposal after seven seconds, five and twice its election timeout; a connection to an
/// address that is no more never gets an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the API server passes on of etcd. A follower sends a proposal on to the leader, who drops it
/// without a word while it hands its leadership over: however gently a member leaves, a write that comes
/// in that moment is answered so.
const DROPPED: &str = "etcdserver: request timed out";
/// Of twenty requests one may be late. Beside compilers, ten of 527 were when a host was emptied on two
/// processors, with none lost.
const ONE_OF: usize = 20;

/// A prober at work.
pub struct Prober {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Outcome>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    /// Counted from the first.
    begun: Duration,
    writes: bool,
    took: Duration,
    /// Why it was not answered, if it was not.
    error: Option<String>,
}

impl Request {
    fn has_failed(&self) -> bool {
        self.error.is_some() || self.took > LIMIT
    }

    /// It reached the guest, which took too long.
    fn is_late(&self) -> bool {
        let error = self.error.as_ref();
        self.has_failed() && error.is_none_or(|error| error.contains(DROPPED))
    }

    fn told(&self) -> String {
        let verb = if self.writes { "write" } else { "read" };
        let (begun, took) = (self.begun.as_secs_f32(), self.took.as_secs_f32());
        let why = self.error.as_deref().unwrap_or("answered");
        format!("the {verb} begun after {begun:.1} s ({why} after {took:.1} s)")
    }
}

/// What it found.
#[derive(Debug)]
pub struct Outcome(Vec<Request>);

impl Outcome {
    /// Requests begun from then on, and how many of them failed.
    pub fn since(&self, then: Duration) -> (usize, usize) {
        let asked = || self.0.iter().filter(|request| request.begun >= then);
        (
            asked().count(),
            asked().filter(|request| request.has_failed()).count(),
        )
    }

    /// Fails if a request was lost, or more than one of twenty late; prints how many were asked.
    pub fn has_lost_nothing(&self) -> anyhow::Result<()> {
        let failed = self.0.iter().filter(|request| request.has_failed());
        let (late, lost): (Vec<_>, Vec<_>) = failed.partition(|request| request.is_late());
        let asked = self.0.len();
        println!("  {} of {asked} requests were lost", lost.len());
        let told = |requests: &[&Request]| {
            let told: Vec<_> = requests.iter().map(|request| request.told()).collect();
            told.join(", ")
        };
        anyhow::ensure!(lost.is_empty(), "lost {}", told(&lost));
        if !late.is_empty() {
            println!("  late: {}", told(&late));
        }
        anyhow::ensure!(
            late.len() <= asked.div_ceil(ONE_OF),
            "{} of {asked} were late: {}",
            late.len(),
            told(&late)
        );
        Ok(())
    }

    /// The longest time within which no request began that was answered.
    pub fn longest_silence(&self) -> Duration {
        let mut all: Vec<_> = self.0.clone();
        all.sort();
        let end = all.last().map(|request| request.begun);
        let answered = all.iter().filter(|request| !request.has_failed());
        let answered = answered.map(|request| request.begun);
        let mut before = Duration::ZERO;
        let gaps = answered.chain(end).map(|begun| {
            let gap = begun.saturating_sub(before);
            before = begun;
            gap
        });
        gaps.max().unwrap_or_default()
    }

    /// When the last request began that failed.
    pub fn last_failure(&self) -> Option<Duration> {
        let failed = self.0.iter().filter(|request| request.has_failed());
        failed.map(|request| request.begun).max()
    }
}

impl Prober {
    /// Starts asking.
    pub fn start(mut config: Config) -> Self {
        config.connect_timeout = Some(PATIENCE);
        config.read_timeout = Some(PATIENCE);
        config.default_retry = false;
        let (stop, stopped) = oneshot::channel();
        Self {
            stop,
            task: tokio::spawn(probe(config, stopped)),
        }
    }

    /// Stops and says what was found.
    pub async fn stop(self) -> anyhow::Result<Outcome> {
        let _ = self.stop.send(());
        Ok(self.task.await?)
    }
}

async fn probe(config: Config, mut stopped: oneshot::Receiver<()>) -> Outcome {
    let mut requests = JoinSet::new();
    let mut ticks = tokio::time::interval(PERIOD);
    let start = Instant::now();
    let mut number = 0_u32;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let config = config.clone();
                let begun = start.elapsed();
                let writes = number.is_multiple_of(2);
                number += 1;
                requests.spawn(async move {
                    let answered = tokio::time::timeout(PATIENCE, ask(config, writes)).await;
                    let error = match answered {
                        Ok(Ok(())) => None,
                        Ok(Err(error)) => Some(format!("{error:#}")),
                        Err(_) => Some("no answer".to_owned()),
                    };
                    let took = start.elapsed().saturating_sub(begun);
                    Request { begun, writes, took, error }
                });
            }
            _ = &mut stopped => break,
        }
    }
    Outcome(requests.join_all().await)
}

async fn ask(config: Config, writes: bool) -> anyhow::Result<()> {
    let api = Api::<ConfigMap>::namespaced(Client::try_from(config)?, "default");
    if !writes {
        return Ok(api.get_opt("prober").await.map(drop)?);
    }
    let stamp = format!("{:?}", Instant::now());
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some("prober".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([("at".to_owned(), stamp)].into()),
        ..ConfigMap::default()
    };
    let params = PatchParams::apply("prober").force();
    Ok(api
        .patch("prober", &params, &Patch::Apply(map))
        .await
        .map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(took: u64, error: Option<&str>) -> Request {
        Request {
            begun: Duration::from_secs(1),
            writes: true,
            took: Duration::from_secs(took),
            error: error.map(str::to_owned),
        }
    }

    #[test]
    fn one_of_twenty_may_be_late_and_none_lost() {
        let of = |count: usize, others: &[Request]| {
            let mut all = vec![request(0, None); count];
            all.extend_from_slice(others);
            Outcome(all).has_lost_nothing().is_ok()
        };
        let (slow, dropped) = (request(3, None), request(7, Some(DROPPED)));
        assert!(of(20, &[]));
        assert!(of(19, std::slice::from_ref(&slow)) && of(19, std::slice::from_ref(&dropped)));
        assert!(of(38, &[slow.clone(), dropped.clone()]));
        assert!(!of(18, &[slow, dropped]));
        assert!(!of(1_000, &[request(10, Some("no answer"))]));
        assert!(!of(1_000, &[request(0, Some("connection refused"))]));
    }
}
