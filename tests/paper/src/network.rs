//! A network namespace in which the addresses of paper machines are, on the infrastructure's bridge:
//! who dials one finds the paper guest there, through Services or directly, as with a real machine.
//! It is gone with the process.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use anyhow::Context as _;
use guestcluster_infra::addresses::ROUTER;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getpid, gettid};
use tokio::sync::oneshot;

use crate::world::{API, ETCD};

/// An address that stays, from above those that machines are given: with its last address an
/// interface loses its routes.
const ANCHOR: Ipv4Addr = Ipv4Addr::new(10, 244, 255, 254);
/// Name of the bridge's end of the wire.
const PORT: &str = "paper0";

/// The namespace, looked after by a thread that lives in it.
#[derive(Debug)]
pub struct Network {
    work: mpsc::Sender<Work>,
}

type Work = (String, oneshot::Sender<anyhow::Result<()>>);

/// Listens on every address of the namespace.
#[derive(Debug)]
pub struct Listeners {
    /// For API servers.
    pub api: TcpListener,
    /// For etcd.
    pub etcd: TcpListener,
}

impl Network {
    /// Makes the namespace and wires it to the bridge. Needs root, inside the infrastructure's
    /// network.
    pub async fn open() -> anyhow::Result<(Self, Listeners)> {
        let (work, orders) = mpsc::channel();
        let (born, place) = oneshot::channel();
        std::thread::Builder::new()
            .name("paper-network".to_owned())
            .spawn(move || {
                // Whoever waits for the answer may be gone.
                let entered = enter();
                let fine = entered.is_ok();
                let _ = born.send(entered);
                if fine {
                    serve(&orders);
                }
            })?;
        let (place, listeners) = place.await??;
        let wire = format!(
            "link add {PORT} type veth peer name eth0 netns {place}\n\
             link set {PORT} master br0 up\n\
             link set {PORT} type bridge_slave hairpin on\n"
        );
        tokio::task::spawn_blocking(move || {
            // A namespace dies some time after its process, and the wire with it.
            let _ = batch(&format!("link del {PORT}\n"));
            batch(&wire)
        })
        .await??;
        let network = Self { work };
        let own = format!(
            "link set lo up\nlink set eth0 up\naddr add {ANCHOR}/32 dev eth0\nroute add {ROUTER} dev eth0 scope link\n\
             route add default via {ROUTER} dev eth0\n"
        );
        network.run(own).await?;
        Ok((network, listeners))
    }

    /// Gives a machine its address.
    pub async fn add(&self, address: Ipv4Addr) -> anyhow::Result<()> {
        self.run(format!("addr replace {address}/32 dev eth0\n"))
            .await
    }

    /// Takes it back: packets to it vanish.
    pub async fn remove(&self, address: Ipv4Addr) -> anyhow::Result<()> {
        self.run(format!("addr del {address}/32 dev eth0\n")).await
    }

    async fn run(&self, script: String) -> anyhow::Result<()> {
        let (done, answer) = oneshot::channel();
        let sent = self.work.send((script, done));
        sent.ok().context("the paper network is gone")?;
        answer.await?
    }
}

/// Enters a namespace of its own with this thread, and tells where it is.
fn enter() -> anyhow::Result<(String, Listeners)> {
    unshare(CloneFlags::CLONE_NEWNET).context("a network namespace (needs root)")?;
    let listen = |port| {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
        listener.set_nonblocking(true)?;
        anyhow::Ok(listener)
    };
    let listeners = Listeners {
        api: listen(API)?,
        etcd: listen(ETCD)?,
    };
    let place = format!("/proc/{}/task/{}/ns/net", getpid(), gettid());
    Ok((place, listeners))
}

fn serve(orders: &mpsc::Receiver<Work>) {
    while let Ok((script, done)) = orders.recv() {
        // Whoever asked may have stopped waiting.
        let _ = done.send(batch(&script));
    }
}

/// Runs commands of `ip` in the network namespace of this thread.
fn batch(script: &str) -> anyhow::Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start ip")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "ip: {script}: {complaint}");
    Ok(())
}
