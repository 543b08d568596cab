//! The operator as a process of ours: it dies on order and is started again.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use guestcluster_infra::addresses::POD_RANGE;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::tripwire::{Execution, Tripwire};

/// Between an end that nobody ordered and the next start.
const PAUSE: Duration = Duration::from_millis(500);

/// What to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The operator.
    pub binary: PathBuf,
    /// Leads through the proxy.
    pub kubeconfig: PathBuf,
    /// What it says is appended here.
    pub log: PathBuf,
}

/// An operator that is kept alive until this is dropped.
pub struct Process {
    _keeper: JoinSet<()>,
}

impl Process {
    /// Starts it and executes it whenever that is ordered.
    pub fn keep(
        program: Program,
        tripwire: Arc<Tripwire>,
        orders: mpsc::Receiver<Execution>,
    ) -> anyhow::Result<Self> {
        let first = program.start()?;
        let mut keeper = JoinSet::new();
        keeper.spawn(keep(program, first, tripwire, orders));
        Ok(Self { _keeper: keeper })
    }
}

async fn keep(
    program: Program,
    mut child: Child,
    tripwire: Arc<Tripwire>,
    mut orders: mpsc::Receiver<Execution>,
) {
    loop {
        tokio::select! {
            Some(execution) = orders.recv() => {
                // It may have ended by itself at that moment.
                let _ = child.kill().await;
                let _ = execution.send(());
            }
            ended = child.wait() => {
                println!("  the operator ended by itself: {ended:?}");
                tokio::time::sleep(PAUSE).await;
            }
        }
        tripwire.open();
        match program.start() {
            Ok(started) => child = started,
            Err(error) => {
                println!("  {error:#}");
                return;
            }
        }
    }
}

impl Program {
    fn start(&self) -> anyhow::Result<Child> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)?;
        // Whatever ends this process, the operator must not outlive it.
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&self.binary)
            .arg("--leader-election=false")
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
