//! Where paper guests live: it powers machines on and off as the infrastructure says, and lets time
//! pass.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use guestcluster_infra::run_dir::RunDir;
use kube::Client;
use tokio::task::JoinSet;

use crate::judge::Judge;
use crate::network::Network;
use crate::pace::Pace;
use crate::server;
use crate::tls::Serving;
use crate::watch;
use crate::world::{API, ETCD, Key, World};

/// How often the world goes on.
const TICK: Duration = Duration::from_millis(20);

/// Paper guests at work. They are gone when it is dropped.
pub struct Paper {
    shared: Arc<Shared>,
    /// Dropped with this, and so ended.
    _tasks: JoinSet<()>,
}

/// What all parts share.
pub struct Shared {
    world: Mutex<World>,
    serving: Mutex<HashMap<Ipv4Addr, Serving>>,
    pub(crate) network: Network,
    pub(crate) judge: Arc<dyn Judge>,
    pub(crate) client: Client,
    run: RunDir,
}

impl Paper {
    /// Stands in for the guests of all paper machines of an infrastructure, whose administrator
    /// `client` is. To be called inside its network.
    pub async fn open(
        (client, run): (Client, RunDir),
        pace: Pace,
        judge: Arc<dyn Judge>,
    ) -> anyhow::Result<Self> {
        let (network, listeners) = Network::open().await?;
        let shared = Arc::new(Shared {
            world: Mutex::new(World::new(pace, Instant::now())),
            serving: Mutex::default(),
            network,
            judge,
            client,
            run,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(server::serve(listeners.api, API, shared.clone()));
        tasks.spawn(server::serve(listeners.etcd, ETCD, shared.clone()));
        tasks.spawn(watch::instances(shared.clone()));
        tasks.spawn(watch::slices(shared.clone()));
        tasks.spawn(go_on(shared.clone()));
        Ok(Self {
            shared,
            _tasks: tasks,
        })
    }

    /// The world as it is now.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world()
    }
}

impl Shared {
    /// The world. Each change of it is one call, so that a panic elsewhere leaves it whole.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn serving(&self, address: Ipv4Addr) -> Option<Serving> {
        self.all_serving().get(&address).cloned()
    }

    pub(crate) fn serve(&self, address: Ipv4Addr, serving: Serving) {
        self.all_serving().insert(address, serving);
    }

    pub(crate) fn silence(&self, address: Ipv4Addr) {
        self.all_serving().remove(&address);
    }

    fn all_serving(&self) -> MutexGuard<'_, HashMap<Ipv4Addr, Serving>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends to the consoles what machines have said: kubelets read them there.
    fn write_consoles(&self) {
        let said: Vec<(Key, String, Vec<String>)> = {
            let mut world = self.world();
            let talkative = world
                .runs
                .iter_mut()
                .filter(|(_, run)| !run.console.is_empty());
            talkative
                .map(|(key, run)| {
                    (
                        key.clone(),
                        run.instance.clone(),
                        std::mem::take(&mut run.console),
                    )
                })
                .collect()
        };
        for ((namespace, name), instance, lines) in said {
            let folder = self.run.machine(&namespace, &name, &instance);
            let written = std::fs::create_dir_all(&folder).and_then(|()| {
                let file = folder.join("console.log");
                let mut options = std::fs::OpenOptions::new();
                let mut file = options.create(true).append(true).open(file)?;
                lines.iter().try_for_each(|line| writeln!(file, "{line}"))
            });
            // The machine goes on without a console, as a real one would.
            let _ = written;
        }
    }
}

async fn go_on(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        shared.world().step(Instant::now());
        shared.write_consoles();
    }
}
