//! A disk that takes its time: each fsync and fdatasync of a machine's etcd is held back.
//!
//! It is done to the process and not to the disk. Limits of control groups are per device and slow everybody who
//! waits for the same file system's next sync, and etcd is linked statically, so nothing can be put between it and
//! the kernel but a tracer: strace delays the two calls and nothing else, in every thread, and for etcd that is what a
//! slow disk is. The price is that the tracer sees etcd's other calls too, which costs each some microseconds.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::cgroup::Group;

/// The process that is slowed.
const ETCD: &str = "etcd";
/// How long a tracer may take to get hold of a process.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look for an etcd that was started anew.
const LOOK: Duration = Duration::from_millis(200);

/// Slows a machine's etcd, also after restarts of it, until it is dropped.
#[derive(Debug)]
pub struct SlowDisk {
    delay: Duration,
    /// Goes with this value, and ends the watch.
    stop: oneshot::Sender<()>,
    watch: JoinHandle<()>,
}

impl SlowDisk {
    /// Begins to hold back the syncs of the etcd in `group`.
    ///
    /// # Errors
    /// When none runs there now, or strace cannot trace it.
    pub(super) async fn begin(group: Group, delay: Duration) -> Result<Self> {
        let mut traced = HashMap::new();
        follow(&group, delay, &mut traced)?;
        ensure!(!traced.is_empty(), "no etcd is running in the machine");
        for pid in traced.keys() {
            tokio::time::timeout(PATIENCE, attached(*pid))
                .await
                .context("strace does not get hold of etcd: may root trace processes here?")?;
        }
        let (stop, mut stopped) = oneshot::channel();
        let watch = tokio::spawn(async move {
            while tokio::time::timeout(LOOK, &mut stopped).await.is_err() {
                if let Err(error) = follow(&group, delay, &mut traced) {
                    tracing::warn!("slow disk: {error:#}");
                }
            }
            for tracer in traced.values_mut() {
                // The kernel lets go on what a tracer held.
                let _ = tracer.kill().await;
            }
        });
        Ok(Self { delay, stop, watch })
    }

    /// Lets the calls go on, and returns once every tracer is gone.
    pub async fn end(self) {
        drop(self.stop);
        let _ = self.watch.await;
    }

    /// How long each call is held back.
    pub fn delay(&self) -> Duration {
        self.delay
    }
}

/// Waits until a process has a tracer; one that is gone needs none.
async fn attached(pid: i32) {
    let is_traced = |status: &str| {
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_none_or(|tracer| tracer.trim() != "0")
    };
    let status = format!("/proc/{pid}/status");
    while !is_traced(&std::fs::read_to_string(&status).unwrap_or_default()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Traces every etcd of the group that is not traced yet, and forgets those that have ended.
fn follow(group: &Group, delay: Duration, traced: &mut HashMap<i32, Child>) -> Result<()> {
    // A tracer ends with the process that it traces.
    traced.retain(|_, tracer| matches!(tracer.try_wait(), Ok(None)));
    for pid in group.processes_named(ETCD) {
        if let Entry::Vacant(untraced) = traced.entry(pid) {
            untraced.insert(trace(pid, delay)?);
        }
    }
    Ok(())
}

fn trace(pid: i32, delay: Duration) -> Result<Child> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null"]);
    strace.args(arguments(pid, delay));
    strace
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start strace")
}

fn arguments(pid: i32, delay: Duration) -> [String; 3] {
    [
        "--trace=fsync,fdatasync".to_owned(),
        // In microseconds.
        format!("--inject=fsync,fdatasync:delay_enter={}", delay.as_micros()),
        format!("--attach={pid}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_syncs_are_held_back() {
        assert_eq!(
            arguments(7, Duration::from_millis(500)),
            [
                "--trace=fsync,fdatasync",
                "--inject=fsync,fdatasync:delay_enter=500000",
                "--attach=7",
            ]
        );
    }
}
