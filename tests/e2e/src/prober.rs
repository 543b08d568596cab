//! Asks a guest's API without pause and counts what fails: five requests a second, each over a TLS
//! connection of its own, half of them writes, with a time limit of two seconds.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Config};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

const PERIOD: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(2);

/// A prober at work.
pub struct Prober {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Outcome>,
}

/// What it found: for each request when it was begun, counted from the first, and why it was not
/// answered within two seconds, if it was not.
#[derive(Debug)]
pub struct Outcome(Vec<(Duration, Option<String>)>);

impl Outcome {
    /// Requests begun from then on, and how many of them failed.
    pub fn since(&self, then: Duration) -> (usize, usize) {
        let asked = || self.0.iter().filter(|(begun, _)| *begun >= then);
        (
            asked().count(),
            asked().filter(|(_, why)| why.is_some()).count(),
        )
    }

    /// Fails if a request was lost; prints how many were asked.
    pub fn has_lost_nothing(&self) -> anyhow::Result<()> {
        let (asked, failed) = self.since(Duration::ZERO);
        println!("  {failed} of {asked} requests were lost");
        let lost = self.0.iter().filter_map(|(begun, why)| {
            let why = why.as_ref()?;
            Some(format!("{:.1} s ({why})", begun.as_secs_f32()))
        });
        let lost: Vec<_> = lost.collect();
        anyhow::ensure!(failed == 0, "lost those begun after {}", lost.join(", "));
        Ok(())
    }

    /// The longest time within which no request began that was answered.
    pub fn longest_silence(&self) -> Duration {
        let mut all: Vec<_> = self.0.clone();
        all.sort();
        let end = all.last().map(|(begun, _)| *begun);
        let answered = all.iter().filter(|(_, why)| why.is_none());
        let answered = answered.map(|(begun, _)| *begun);
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
        let failed = self.0.iter().filter(|(_, why)| why.is_some());
        failed.map(|(begun, _)| *begun).max()
    }
}

impl Prober {
    /// Starts asking.
    pub fn start(mut config: Config) -> Self {
        config.connect_timeout = Some(LIMIT);
        config.read_timeout = Some(LIMIT);
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
                let write = number.is_multiple_of(2);
                number += 1;
                requests.spawn(async move {
                    let answered = tokio::time::timeout(LIMIT, ask(config, write)).await;
                    let why = match answered {
                        Ok(Ok(())) => None,
                        Ok(Err(error)) => Some(format!("{error:#}")),
                        Err(_) => Some(format!("no answer within {LIMIT:?}")),
                    };
                    (begun, why)
                });
            }
            _ = &mut stopped => break,
        }
    }
    Outcome(requests.join_all().await)
}

async fn ask(config: Config, write: bool) -> anyhow::Result<()> {
    let api = Api::<ConfigMap>::namespaced(Client::try_from(config)?, "default");
    if !write {
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
