//! The operator as one or two processes of ours: they die or stand still on order and are started
//! again.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::select_all;
use guestcluster_infra::addresses::POD_RANGE;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use kube::{Api, Client};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::tripwire::{Deed, Order, Tripwire};
use crate::stage::{RELEASE, SYSTEM};
use crate::wait::until;

/// Between an end that nobody ordered and the next start.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a leader that stands still may remain in office: its lease, and some time to notice.
const TAKEOVER: Duration = Duration::from_secs(60);
/// How long the new leader works before the old one goes on, and then both until it has gone.
const OVERLAP: Duration = Duration::from_secs(4);

/// What to run.
#[derive(Clone)]
pub struct Program {
    /// The operator.
    pub binary: PathBuf,
    /// Leads through the proxy.
    pub kubeconfig: PathBuf,
    /// What it says is appended here.
    pub log: PathBuf,
    /// Tells who leads.
    pub client: Client,
}

/// Operators that are kept alive until this is dropped.
pub struct Process {
    _keeper: JoinSet<()>,
}

impl Process {
    /// Starts so many, and carries out what is ordered.
    pub async fn start(
        program: &Program,
        replicas: usize,
        tripwire: &Arc<Tripwire>,
    ) -> anyhow::Result<Self> {
        // Who led in an earlier life is dead, but its lease lasts.
        let _ = program
            .leases()
            .delete(RELEASE, &DeleteParams::default())
            .await;
        let (executioner, orders) = mpsc::channel(1);
        tripwire.give_orders_to(executioner);
        tripwire.open();
        let children = (0..replicas).map(|number| program.start(number, replicas));
        let keeper = Keeper {
            program: program.clone(),
            children: children.collect::<anyhow::Result<_>>()?,
            tripwire: tripwire.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(keeper.keep(orders));
        Ok(Self { _keeper: tasks })
    }
}

struct Keeper {
    program: Program,
    children: Vec<Child>,
    tripwire: Arc<Tripwire>,
}

impl Keeper {
    async fn keep(mut self, mut orders: mpsc::Receiver<Order>) {
        loop {
            let outcome = tokio::select! {
                Some(order) = orders.recv() => match order.deed {
                    Deed::Kill => self.kill(order).await,
                    Deed::Freeze => self.freeze(order).await,
                },
                (number, ended) = an_end(&mut self.children) => {
                    println!("  operator {number} ended by itself: {ended:?}");
                    tokio::time::sleep(PAUSE).await;
                    self.start_again(number)
                }
            };
            if let Err(error) = outcome {
                println!("  {error:#}");
                return;
            }
        }
    }

    async fn kill(&mut self, order: Order) -> anyhow::Result<()> {
        // It may have ended by itself at that moment.
        let _ = self.children[0].kill().await;
        let _ = order.done.send(());
        self.start_again(0)
    }

    /// Lets the leader stand still until another leads and works, and then go on.
    async fn freeze(&mut self, order: Order) -> anyhow::Result<()> {
        let leader = self.program.leader().await?;
        let child = self.children.get(leader).context("nobody leads")?;
        let pid = child.id().context("the leader has ended")?.to_string();
        signal("-STOP", &pid).await?;
        let _ = order.done.send(());
        let program = &self.program;
        let taken = until("another takes over", TAKEOVER, || async {
            Ok((program.leader().await? != leader).then_some(()))
        });
        let taken = taken.await;
        tokio::time::sleep(OVERLAP).await;
        signal("-CONT", &pid).await?;
        tokio::time::sleep(OVERLAP).await;
        drop(order.pending);
        taken
    }

    fn start_again(&mut self, number: usize) -> anyhow::Result<()> {
        self.tripwire.open();
        self.children[number] = self.program.start(number, self.children.len())?;
        Ok(())
    }
}

/// Waits until one of them ends by itself.
async fn an_end(children: &mut [Child]) -> (usize, std::io::Result<ExitStatus>) {
    let ends = children.iter_mut().map(|child| Box::pin(child.wait()));
    let (ended, number, _) = select_all(ends).await;
    (number, ended)
}

async fn signal(signal: &str, pid: &str) -> anyhow::Result<()> {
    let status = Command::new("kill").args([signal, pid]).status().await?;
    anyhow::ensure!(status.success(), "kill {signal}: {status}");
    Ok(())
}

impl Program {
    fn start(&self, number: usize, replicas: usize) -> anyhow::Result<Child> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)?;
        // Whatever ends this process, the operator must not outlive it.
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&self.binary)
            .arg(format!("--leader-election={}", replicas > 1))
            .arg(format!("--identity={number}"))
            .arg("--http-address=127.0.0.1:0")
            .arg("--log-format=text")
            .arg(format!("--infra-pod-cidr={POD_RANGE}"))
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), SYSTEM)
    }

    /// The number of the operator that leads.
    async fn leader(&self) -> anyhow::Result<usize> {
        let lease = self.leases().get(RELEASE).await?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        let holder = holder.context("nobody leads")?;
        // What follows the number was drawn for the process.
        let (number, _) = holder.split_once('_').context("a strange leader")?;
        Ok(number.parse()?)
    }
}

/// A kubeconfig whose one cluster is the proxy; who asks is the proxy's affair.
pub fn write_kubeconfig(file: &Path, url: &str) -> anyhow::Result<()> {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: proxy\n\
         clusters:\n- name: proxy\n  cluster: {{server: \"{url}\"}}\n\
         users:\n- name: proxy\n  user: {{}}\n\
         contexts:\n- name: proxy\n  context: {{cluster: proxy, user: proxy}}\n"
    );
    std::fs::write(file, text).with_context(|| format!("write {}", file.display()))
}
