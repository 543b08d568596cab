//! The parts of the operator, put together and run until the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt;
use futures::future::BoxFuture;
use guestcluster_api::labels::managers;
use guestcluster_planner::wanted::Settings;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::apply::Writer;
use guestcluster_shell::backoff::Jitter;
use guestcluster_shell::events::Events;
use guestcluster_shell::health::Health;
use guestcluster_shell::lease::{Candidate, Elector, NamedLease, Timing};
use guestcluster_shell::metrics::Metrics;
use guestcluster_shell::queue::{Limits, Loop, Queue};
use guestcluster_shell::server::Server;
use guestcluster_shell::shutdown::{self, Cause, Shutdown, Stop};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, Config};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::args::Args;
use crate::capi;
use crate::doors::Doors;
use crate::forecast::Forecast;
use crate::gauges;
use crate::guest_cluster::Context;
use crate::host_maintenance;
use crate::keys::KeyPool;
use crate::leader::Leader;
use crate::memory::Memories;
use crate::secrets::SecretReader;
use crate::wiring::{Gate, Installed, Queues, Wiring, filled};

/// Name of the program: of its Lease, in events, and before each metric.
const NAME: &str = "guestcluster-operator";
/// How long one call to the infrastructure cluster may take.
const CALL: Duration = Duration::from_secs(5);
/// How long one call to a guest may take.
const GUEST_CALL: Duration = Duration::from_millis(2500);
/// A burst of changes of one cluster becomes one visit.
pub(crate) const DEBOUNCE: Duration = Duration::from_millis(15);
/// A loop that has not turned for so long is stuck.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// Runs until a signal, a lost lease or a failure ends it.
///
/// # Errors
/// If a part cannot be set up.
pub async fn run(args: Args) -> anyhow::Result<Cause> {
    let client = client().await?;
    let (stop, shutdown) = shutdown::channel();
    let mut tasks = Tasks {
        set: JoinSet::new(),
        stop: stop.clone(),
    };
    let outside = Outside {
        health: Health::new(),
        metrics: Metrics::new("guestcluster_operator"),
    };
    let watching = outside.begin();
    tasks.serve(&args, &outside, &shutdown).await?;

    let installed = tokio::select! {
        installed = Installed::ask(&client) => installed,
        cause = shutdown.requested() => return Ok(cause),
    };
    let (queues, memories) = (queues(), Memories::default());
    let forecast = Forecast::default();
    let wiring = Wiring::new(&client, &queues, (&memories, &forecast), installed);
    outside.watch(&wiring, &queues.clusters, &forecast);
    watching.store(true, Ordering::Relaxed);
    let keys = tasks.keys();
    let identity = identity(&args);
    let election = Election::begin(&args, &client, (&identity, &stop))?;
    let writer = Writer::new(managers::OPERATOR, CALL);
    let secrets = SecretReader::new(client.clone(), writer.clone());
    let maintenance = maintenance(&wiring, &client, (&election.leader, &forecast, &identity));
    tasks.watch(wiring.feeds);
    let context = Arc::new(Context {
        ledger: wiring.stores.ledger(),
        stores: wiring.stores,
        memories,
        settings: settings(&args),
        writer,
        status_writer: Writer::new(managers::STATUS, CALL),
        guest_calls: Writer::new(managers::GUEST, GUEST_CALL),
        doors: Doors::new(secrets.clone()),
        secrets,
        keys,
        leader: election.leader.clone(),
        events: Events::new(client.clone(), NAME, &identity),
        forecast,
        metrics: outside.metrics.reconcile(),
        client,
    });
    if wait(&context.leader, &wiring.gates, &shutdown).await {
        tasks.forecast(&context, &queues.clusters);
        visit_all(
            (&args, &outside),
            queues,
            (&context, &maintenance),
            &shutdown,
        )
        .await;
    }
    let cause = shutdown.requested().await;
    election.end().await;
    Ok(cause)
}

fn queues() -> Queues {
    Queues {
        clusters: Queue::new(DEBOUNCE),
        maintenances: Queue::new(DEBOUNCE),
    }
}

async fn client() -> anyhow::Result<Client> {
    let mut config = Config::infer()
        .await
        .context("no way to the infrastructure cluster")?;
    let agent = concat!("guestcluster-operator/", env!("CARGO_PKG_VERSION"));
    config.headers.push((
        http::header::USER_AGENT,
        http::HeaderValue::from_static(agent),
    ));
    Client::try_from(config).context("no client for the infrastructure cluster")
}

fn settings(args: &Args) -> Settings {
    Settings {
        infra_pod_ranges: args.infra_pod_cidrs.clone(),
        infra_service_ranges: args.infra_service_cidrs.clone(),
        unhealthy_after: Some(args.unhealthy_after),
    }
}

fn maintenance(
    wiring: &Wiring,
    client: &Client,
    (leader, forecast, identity): (&Leader, &Forecast, &str),
) -> host_maintenance::Context {
    host_maintenance::Context {
        client: client.clone(),
        ledger: wiring.stores.maintenance_ledger(),
        stores: wiring.stores.clone(),
        writer: Writer::new(managers::OPERATOR, CALL),
        status_writer: Writer::new(managers::STATUS, CALL),
        forecast: forecast.clone(),
        asked: host_maintenance::Asked::default(),
        leader: leader.clone(),
        events: Events::new(client.clone(), NAME, identity),
    }
}

/// Visits clusters and maintenances until the end, and those of Cluster API if asked to.
async fn visit_all(
    (args, outside): (&Args, &Outside),
    queues: Queues,
    (context, maintenance): (&Arc<Context>, &host_maintenance::Context),
    shutdown: &Shutdown,
) {
    let limits = Limits {
        concurrency: args.concurrency,
        ..Limits::default()
    };
    let visits = Loop::new(queues.clusters, limits, Jitter::from_seed(rand::random()))
        .pulse(outside.health.pulse("reconcile", SILENCE))
        .metrics(context.metrics.clone());
    let jitter = Jitter::from_seed(rand::random());
    let hosts = Loop::new(queues.maintenances, Limits::default(), jitter)
        .pulse(outside.health.pulse("maintenance", SILENCE));
    tokio::join!(
        work(visits, context, shutdown),
        maintain(hosts, maintenance, shutdown),
        async {
            if args.capk_provider {
                capi::serve(provider(context), &outside.health, shutdown).await;
            }
        },
    );
}

/// What serving Cluster API shares with the rest.
fn provider(context: &Context) -> capi::Parts {
    capi::Parts {
        client: context.client.clone(),
        hosts: context.stores.hosts.clone(),
        secrets: context.secrets.clone(),
        writers: [
            Writer::new(managers::PROVIDER, CALL),
            Writer::new(managers::PROVIDER_STATUS, CALL),
            context.guest_calls.clone(),
        ],
        leader: context.leader.clone(),
    }
}

/// Visits maintenances until the end.
async fn maintain(
    visits: Loop<NamespacedName>,
    context: &host_maintenance::Context,
    shutdown: &Shutdown,
) {
    let visit = |key: NamespacedName| async move { context.reconcile(&key).await };
    let cut_off = visits.run(shutdown, visit).await;
    if !cut_off.is_empty() {
        warn!(maintenances = cut_off.len(), "visits were cut off");
    }
}

/// Visits clusters until the end.
async fn work(visits: Loop<NamespacedName>, context: &Arc<Context>, shutdown: &Shutdown) {
    info!("working");
    let visit = |key: NamespacedName| {
        let context = Arc::clone(context);
        async move { context.reconcile(&key).await }
    };
    let cut_off = visits.run(shutdown, visit).await;
    if !cut_off.is_empty() {
        warn!(clusters = cut_off.len(), "visits were cut off");
    }
}

/// What is shown of the process.
struct Outside {
    health: Health,
    metrics: Metrics,
}

impl Outside {
    /// Not ready before the flag is set: the watches are not even put up.
    fn begin(&self) -> Arc<AtomicBool> {
        let watching = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&watching);
        let check = move || {
            let missing = || "the API server has not told which kinds there are".to_owned();
            flag.load(Ordering::Relaxed)
                .then_some(())
                .ok_or_else(missing)
        };
        self.health.check("watches", check);
        watching
    }

    /// The loop of visits, whose pulse is shown.
    fn watch(&self, wiring: &Wiring, queue: &Queue<NamespacedName>, forecast: &Forecast) {
        gauges::register(&self.metrics, &wiring.stores, (queue, forecast));
        for gate in wiring.gates.clone() {
            let full = move || {
                let empty = || format!("the first list of {} is not complete", gate.kind);
                gate.store.is_ready().then_some(()).ok_or_else(empty)
            };
            self.health.check("stores", full);
        }
    }
}

/// Waits until this replica leads and its stores are full; `false` if it is to end before.
async fn wait(leader: &Leader, gates: &[Gate], shutdown: &Shutdown) -> bool {
    let ready = async {
        let leads = leader.elected().await;
        filled(gates).await;
        leads
    };
    tokio::select! {
        leads = ready => leads,
        _ = shutdown.requested() => false,
    }
}

/// The election, and how to leave it.
struct Election {
    leader: Leader,
    leave: oneshot::Sender<()>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Election {
    fn begin(
        args: &Args,
        client: &Client,
        (identity, stop): (&str, &Stop),
    ) -> anyhow::Result<Self> {
        let (leave, left) = oneshot::channel();
        if !args.leader_election {
            return Ok(Self {
                leader: Leader::Alone,
                leave,
                task: None,
            });
        }
        let api = Api::<Lease>::namespaced(client.clone(), &args.lease_namespace);
        let me = Candidate {
            identity: identity.to_owned(),
            timing: Timing::default(),
        };
        let (elector, leadership) = Elector::new(NamedLease::new(api, NAME), me)?;
        let stop = stop.clone();
        let task = tokio::spawn(async move {
            // A sender that is gone means the same as one that has sent.
            let leave = async {
                let _ = left.await;
            };
            if let Err(error) = elector.run(leave).await {
                error!(%error, "leadership lost");
                stop.request(Cause::LeaseLost);
            }
        });
        Ok(Self {
            leader: Leader::Elected(leadership),
            leave,
            task: Some(task),
        })
    }

    /// Frees the lease, now that nothing is written any more.
    async fn end(self) {
        let _ = self.leave.send(());
        if let Some(task) = self.task
            && let Err(error) = task.await
        {
            error!(%error, "the election ended badly");
        }
    }
}

/// Parts that run beside the loop, and whose end is the end of all.
struct Tasks {
    set: JoinSet<()>,
    stop: Stop,
}

impl Tasks {
    /// Answers probes and listens to signals.
    async fn serve(
        &mut self,
        args: &Args,
        outside: &Outside,
        shutdown: &Shutdown,
    ) -> anyhow::Result<()> {
        let listener = TcpListener::bind(args.http_address)
            .await
            .with_context(|| format!("cannot listen on {}", args.http_address))?;
        let server = Server {
            health: outside.health.clone(),
            metrics: outside.metrics.clone(),
        };
        let until = shutdown.clone();
        self.spawn("probe server", async move {
            server.serve(listener, &until).await
        });
        let signals = self.stop.clone();
        self.spawn("signals", async move { signals.on_signals().await });
        Ok(())
    }

    /// Works out what the loss of hosts would mean.
    fn keys(&mut self) -> KeyPool {
        let (keys, fill) = KeyPool::new();
        self.spawn("keys", fill.map(Ok));
        keys
    }

    fn watch(&mut self, feeds: Vec<BoxFuture<'static, ()>>) {
        for feed in feeds {
            self.spawn("watch", feed.map(Ok));
        }
    }

    fn forecast(&mut self, context: &Context, queue: &Queue<NamespacedName>) {
        let (stores, settings) = (context.stores.clone(), context.settings.clone());
        let work = context
            .forecast
            .clone()
            .run(stores, settings, queue.clone());
        self.spawn("forecast", work.map(Ok));
    }

    fn spawn<F>(&mut self, name: &'static str, part: F)
    where
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let stop = self.stop.clone();
        self.set.spawn(async move {
            match part.await {
                Ok(()) => {}
                Err(error) => error!(part = name, %error, "a part of the operator failed"),
            }
            stop.request(Cause::Failure);
        });
    }
}

/// A name that no other process has, whatever it is called.
fn identity(args: &Args) -> String {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = args
        .identity
        .clone()
        .unwrap_or_else(|| host().trim().to_owned());
    format!("{name}_{:016x}", rand::random::<u64>())
}
