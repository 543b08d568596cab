//! Programs that the runner keeps alive, each with its log file.
//!
//! A program that ends is started again after a pause that doubles, as a kubelet would do with a
//! static Pod. A fault can hold it down until it is let go.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::Instant;

/// The first pause before a restart; it doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// A program that ran this long starts again with the first pause.
const STABLE: Duration = Duration::from_secs(60);

/// A program to keep alive.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name in `status` and of its log file.
    pub name: &'static str,
    /// The executable.
    pub executable: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where its output goes.
    pub log: PathBuf,
}

/// What `status` tells of one program.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct ProcessRow {
    /// Its name.
    pub name: String,
    /// Its process id in the runner's namespace, while it runs.
    pub pid: Option<u32>,
    /// How often it was started again.
    pub restarts: u32,
    /// Held down by a fault.
    pub held: bool,
    /// Its log file.
    pub log: PathBuf,
}

struct Entry {
    held: watch::Sender<bool>,
    row: ProcessRow,
}

/// The programs of one infrastructure. They are killed when the last clone is dropped.
#[derive(Clone, Default)]
pub struct Supervisor {
    entries: Arc<Mutex<BTreeMap<&'static str, Entry>>>,
}

impl Supervisor {
    /// Starts `program` and keeps it alive; fails when it cannot be started at all.
    pub fn start(&self, program: Program) -> anyhow::Result<()> {
        let (held, wish) = watch::channel(false);
        let child = spawn(&program)?;
        let row = ProcessRow {
            name: program.name.to_owned(),
            pid: child.id(),
            restarts: 0,
            held: false,
            log: program.log.clone(),
        };
        self.lock().insert(program.name, Entry { held, row });
        tokio::spawn(self.clone().keep(program, child, wish));
        Ok(())
    }

    /// Kills the program `name` and keeps it down until [`Supervisor::release`].
    pub fn hold(&self, name: &str) -> anyhow::Result<()> {
        self.set_held(name, true)
    }

    /// Lets the program `name` run again.
    pub fn release(&self, name: &str) -> anyhow::Result<()> {
        self.set_held(name, false)
    }

    /// All programs, by name.
    pub fn rows(&self) -> Vec<ProcessRow> {
        self.lock()
            .values()
            .map(|entry| entry.row.clone())
            .collect()
    }

    fn set_held(&self, name: &str, held: bool) -> anyhow::Result<()> {
        let mut entries = self.lock();
        let entry = entries
            .get_mut(name)
            .with_context(|| format!("no program {name}"))?;
        entry.row.held = held;
        entry.held.send_replace(held);
        Ok(())
    }

    async fn keep(self, program: Program, first: Child, mut wish: watch::Receiver<bool>) {
        let mut child = Some(first);
        let mut pause = FIRST_PAUSE;
        let mut started = Instant::now();
        loop {
            if let Some(running) = &mut child {
                tokio::select! {
                    status = running.wait() => {
                        tracing::warn!(program = program.name, status = describe(&status), "ended");
                    }
                    () = becomes(&mut wish, true) => kill(running).await,
                }
                self.update(program.name, |row| row.pid = None);
                child = None;
            }
            if started.elapsed() > STABLE {
                pause = FIRST_PAUSE;
            }
            let was_held = *wish.borrow();
            becomes(&mut wish, false).await;
            if !was_held {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
                if *wish.borrow() {
                    continue;
                }
            }
            started = Instant::now();
            match spawn(&program) {
                Ok(new) => {
                    self.update(program.name, |row| {
                        row.pid = new.id();
                        row.restarts += 1;
                    });
                    child = Some(new);
                }
                Err(error) => tracing::warn!(program = program.name, %error, "not started"),
            }
        }
    }

    fn update(&self, name: &str, change: impl FnOnce(&mut ProcessRow)) {
        if let Some(entry) = self.lock().get_mut(name) {
            change(&mut entry.row);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the wish is `held`; the supervisor keeps its sender as long as itself.
async fn becomes(wish: &mut watch::Receiver<bool>, held: bool) {
    drop(wish.wait_for(|value| *value == held).await);
}

/// The bare outcome of a process, for a log line.
fn describe(status: &std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}

async fn kill(child: &mut Child) {
    if let Err(error) = child.kill().await {
        tracing::warn!(%error, "cannot kill");
    }
}

fn spawn(program: &Program) -> anyhow::Result<Child> {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&program.log)
        .with_context(|| format!("cannot open {}", program.log.display()))?;
    Command::new(&program.executable)
        .args(&program.arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", program.executable.display()))
}

/// Runs a command to its end and returns its output; a failure carries what it said.
pub async fn run(command: &mut Command) -> anyhow::Result<String> {
    let what = format!("{:?}", command.as_std());
    let output = command
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot start {what}"))?;
    anyhow::ensure!(
        output.status.success(),
        "{what}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Program, Supervisor};
    use std::time::Duration;

    fn sleeper(folder: &std::path::Path) -> Program {
        Program {
            name: "sleeper",
            executable: "/bin/sleep".into(),
            arguments: vec!["1000".into()],
            log: folder.join("sleeper.log"),
        }
    }

    async fn until(supervisor: &Supervisor, wanted: impl Fn(Option<u32>) -> bool) {
        for _ in 0..200 {
            if wanted(supervisor.rows()[0].pid) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!(
            "the program did not reach the state: {:?}",
            supervisor.rows()
        );
    }

    #[tokio::test]
    async fn a_held_program_is_down_until_it_is_released() {
        let folder = std::env::temp_dir().join(format!("supervisor-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let supervisor = Supervisor::default();
        supervisor.start(sleeper(&folder)).unwrap();
        let first = supervisor.rows()[0].pid;
        supervisor.hold("sleeper").unwrap();
        until(&supervisor, |pid| pid.is_none()).await;
        supervisor.release("sleeper").unwrap();
        until(&supervisor, |pid| pid.is_some() && pid != first).await;
        supervisor.hold("sleeper").unwrap();
        until(&supervisor, |pid| pid.is_none()).await;
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
