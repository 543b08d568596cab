//! The machines that run now, and what can be done to them.
//!
//! A guest outlives neither its launcher Pod nor its host, unless it moves. Its handler starts it, its kubelet
//! learns from here that it ended, and faults reach it here.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;

use crate::machine::{Machine, MachineHost, MachineSpec, PowerState, SlowDisk};
use crate::network::Network;

/// Pauses between starts of a machine that asks for one reboot after the other.
const REBOOT_PAUSE: Duration = Duration::from_secs(1);

mod faults;
mod moving;

/// What is to be started for a virtual machine instance.
#[derive(Debug, Clone)]
pub struct Order {
    /// The instance's uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The host that it runs on now.
    pub host: String,
    /// The address of its Pod there.
    pub address: Ipv4Addr,
    /// The machine; none on paper.
    pub machine: Option<MachineSpec>,
}

/// How a guest ended: `None` while it runs.
pub type Ending = watch::Receiver<Option<PowerState>>;

#[derive(Debug)]
struct Guest {
    order: Order,
    machine: Option<Machine>,
    ending: watch::Sender<Option<PowerState>>,
    /// The next end is a reset: the machine is started again in place.
    reset: bool,
    frozen: bool,
    cut: bool,
    slow: Option<SlowDisk>,
}

/// What `status` tells of one guest.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GuestRow {
    /// Namespace of the instance.
    pub namespace: String,
    /// Name of the instance.
    pub name: String,
    /// The host that it runs on.
    pub host: String,
    /// The address of its Pod.
    pub address: Ipv4Addr,
    /// Process id of its init in the runner's namespace; none on paper.
    pub pid: Option<i32>,
    /// Stopped where it stands by a fault.
    pub frozen: bool,
    /// Cut off the network by a fault.
    pub cut: bool,
    /// The machines that a fault cut it off from, as `namespace/name`.
    pub cut_from: Vec<String>,
    /// A fault filled the disk that holds its etcd.
    pub disk_full: bool,
    /// How long a fault holds back each sync of its etcd.
    pub slow_disk: Option<Duration>,
    /// The file with what its console says; none on paper.
    pub console: Option<PathBuf>,
}

/// All guests of the infrastructure. Clones share them.
#[derive(Clone)]
pub struct Guests {
    host: Option<MachineHost>,
    network: Arc<Network>,
    table: Arc<Mutex<BTreeMap<String, Guest>>>,
    /// Counts the starts, for those who wait for one.
    starts: Arc<watch::Sender<u64>>,
}

impl Guests {
    /// No guests yet; without a machine host only paper guests can be started.
    pub fn new(host: Option<MachineHost>, network: Arc<Network>) -> Self {
        Self {
            host,
            network,
            table: Arc::default(),
            starts: Arc::default(),
        }
    }

    /// Starts what is ordered and returns how it will end; starting it twice is the same.
    ///
    /// A machine of the same instance name that still runs is waited for: its disk is in use.
    pub async fn start(&self, order: Order) -> anyhow::Result<Ending> {
        if let Some(ending) = self.ending(&order.uid) {
            return Ok(ending);
        }
        self.wait_for_predecessor(&order).await;
        let machine = match &order.machine {
            None => None,
            Some(spec) => {
                let host = self
                    .host
                    .as_ref()
                    .context("this infrastructure boots no machines")?;
                Some(host.start(spec).await?)
            }
        };
        let (ending, receiver) = watch::channel(None);
        let uid = order.uid.clone();
        let guest = Guest {
            order,
            machine: machine.clone(),
            ending,
            reset: false,
            frozen: false,
            cut: false,
            slow: None,
        };
        self.lock().insert(uid.clone(), guest);
        self.starts.send_modify(|count| *count += 1);
        if let Some(machine) = machine {
            tokio::spawn(self.clone().keep(uid, machine));
        }
        Ok(receiver)
    }

    /// How the guest of the instance `uid` ends; none if it was not started here.
    pub fn ending(&self, uid: &str) -> Option<Ending> {
        self.lock().get(uid).map(|guest| guest.ending.subscribe())
    }

    /// Waits until the guest of the instance `uid` is started and has ended.
    pub fn ended(&self, uid: &str) -> impl Future<Output = PowerState> + Send + use<> {
        let (guests, uid) = (self.clone(), uid.to_owned());
        async move {
            let mut starts = guests.starts.subscribe();
            let ending = loop {
                match guests.ending(&uid) {
                    Some(ending) => break ending,
                    // The sender lives in `guests`.
                    None => drop(starts.changed().await),
                }
            };
            settled(ending).await
        }
    }

    /// Presses the power button, and pulls the plug after `grace`; returns how the guest ended.
    pub fn stop(
        &self,
        uid: &str,
        grace: Duration,
    ) -> impl Future<Output = PowerState> + Send + use<> {
        let (guests, uid) = (self.clone(), uid.to_owned());
        async move {
            let Some(ending) = guests.ending(&uid) else {
                return PowerState::PowerOff;
            };
            match guests.machine(&uid) {
                None => guests.end(&uid, PowerState::PowerOff),
                Some(machine) => {
                    if let Err(error) = machine.power_off().await {
                        tracing::warn!(uid, "power button: {error:#}");
                    }
                    if tokio::time::timeout(grace, settled(ending.clone()))
                        .await
                        .is_err()
                    {
                        pull_plug(&machine).await;
                    }
                }
            }
            settled(ending).await
        }
    }

    /// Forgets an instance; a machine that still runs loses power.
    pub fn remove(&self, uid: &str) -> impl Future<Output = ()> + Send + use<> {
        let (guests, uid) = (self.clone(), uid.to_owned());
        async move {
            if let Some(machine) = guests.machine(&uid) {
                pull_plug(&machine).await;
            }
            let Some(guest) = guests.lock().remove(&uid) else {
                return;
            };
            if let Err(error) = guests.network.rejoin_all(guest.order.address).await {
                tracing::warn!(uid, "still cut off: {error:#}");
            }
        }
    }

    /// The host lost power: every guest on it is gone at once, and no one is told.
    pub async fn power_loss(&self, host: &str) {
        let on_host: Vec<_> = {
            let guests = self.lock();
            let here = guests.iter().filter(|(_, guest)| guest.order.host == host);
            here.map(|(uid, _)| uid.clone()).collect()
        };
        futures::future::join_all(on_host.iter().map(|uid| self.remove(uid))).await;
    }

    /// Runs a program inside a machine.
    pub async fn exec(
        &self,
        namespace: &str,
        name: &str,
        argv: &[String],
    ) -> anyhow::Result<std::process::Output> {
        self.by_name(namespace, name)?.1.exec(argv).await
    }

    /// All guests that run.
    pub fn rows(&self) -> Vec<GuestRow> {
        let guests = self.lock();
        let running = guests
            .values()
            .filter(|guest| guest.ending.borrow().is_none());
        running
            .map(|guest| GuestRow {
                namespace: guest.order.namespace.clone(),
                name: guest.order.name.clone(),
                host: guest.order.host.clone(),
                address: guest.order.address,
                pid: guest.machine.as_ref().map(Machine::pid),
                frozen: guest.frozen,
                cut: guest.cut,
                cut_from: self.cut_from(&guests, guest),
                disk_full: guest.machine.as_ref().is_some_and(Machine::is_disk_full),
                slow_disk: guest.slow.as_ref().map(SlowDisk::delay),
                console: guest.machine.as_ref().map(Machine::console),
            })
            .collect()
    }

    async fn keep(self, uid: String, mut machine: Machine) {
        loop {
            let end = machine.wait().await;
            let again = {
                let mut guests = self.lock();
                let Some(guest) = guests.get_mut(&uid) else {
                    return;
                };
                let again = end == PowerState::Reboot || guest.reset;
                guest.reset = false;
                guest.frozen = false;
                guest.cut = false;
                guest.slow = None;
                again.then(|| guest.order.machine.clone()).flatten()
            };
            let (Some(spec), Some(host)) = (again, &self.host) else {
                return self.end(&uid, end);
            };
            tokio::time::sleep(REBOOT_PAUSE).await;
            match host.start(&spec).await {
                Ok(started) => machine = started,
                Err(error) => {
                    tracing::warn!(uid, "did not start again: {error:#}");
                    return self.end(&uid, PowerState::Killed);
                }
            }
            match self.lock().get_mut(&uid) {
                Some(guest) => guest.machine = Some(machine.clone()),
                None => break,
            }
        }
        // Forgotten while it was starting.
        pull_plug(&machine).await;
    }

    async fn wait_for_predecessor(&self, order: &Order) {
        let before: Vec<_> = {
            let guests = self.lock();
            let same = guests.values().filter(|guest| {
                guest.order.namespace == order.namespace && guest.order.name == order.name
            });
            same.map(|guest| guest.ending.subscribe()).collect()
        };
        for ending in before {
            settled(ending).await;
        }
    }

    fn machine(&self, uid: &str) -> Option<Machine> {
        self.lock().get(uid)?.machine.clone()
    }

    fn by_name(&self, namespace: &str, name: &str) -> anyhow::Result<(String, Machine)> {
        let guests = self.lock();
        let found = guests.iter().find(|(_, guest)| {
            guest.order.namespace == namespace
                && guest.order.name == name
                && guest.ending.borrow().is_none()
        });
        let (uid, guest) =
            found.with_context(|| format!("no machine {namespace}/{name} is running"))?;
        let machine = guest.machine.clone();
        Ok((
            uid.clone(),
            machine.context("a paper machine has nothing to act on")?,
        ))
    }

    fn end(&self, uid: &str, end: PowerState) {
        if let Some(guest) = self.lock().get(uid) {
            guest.ending.send_replace(Some(end));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Guest>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the end; a guest that was forgotten has lost its power.
async fn settled(mut ending: Ending) -> PowerState {
    let end = ending.wait_for(Option::is_some).await.map(|end| *end);
    end.ok().flatten().unwrap_or(PowerState::Killed)
}

async fn pull_plug(machine: &Machine) {
    if let Err(error) = machine.pull_plug().await {
        tracing::warn!("pulling the plug: {error:#}");
    }
}
