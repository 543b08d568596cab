//! The local infrastructure from outside: bring it up, look at it, break it, take it down.
//!
//! # Guarantees
//! - [`up`] is rerunnable: an infrastructure that is up stays as it is.
//! - Nothing of the box changes but one raised kernel limit, and [`down`] leaves nothing behind.
//!   After a `kill -9` of the runner all its processes, mounts and network namespaces are gone at
//!   once; the next [`up`] or [`down`] removes control groups and the run's folder.
//!
//! # Assumes
//! Root. Everything that talks to the infrastructure's API server must run inside its network
//! namespace: see [`Infra::command`].

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster_api::{Order, Provider};
use crate::control::{Control, ExecOutput, Request, StartUp};
use crate::faults::{Fault, Target};
use crate::machine::{HELPER, delete_disk, raise_limits, sweep};
use crate::options::RunnerOptions;
use crate::progress::{Progress, Step};
use crate::run_dir::RunDir;
use crate::status::StatusReport;
use crate::tools::{ClusterApi, Release};
use crate::{host_packages, node_image, room, run_dir, static_binary, tools};

/// File name of the runner, which is built with this crate.
pub const RUNNER: &str = "guestcluster-infra";

/// The longest start on a busy box.
const START_LIMIT: Duration = Duration::from_secs(300);

/// What is to be brought up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpOptions {
    /// The name: two infrastructures with different names stand side by side.
    pub name: String,
    /// How many hosts.
    pub hosts: u8,
    /// Boot no machines: instances run as soon as their handler sees them.
    pub paper: bool,
    /// The static binary that Pods of the operator's image run; can be set later.
    pub operator_binary: Option<PathBuf>,
}

impl Default for UpOptions {
    fn default() -> Self {
        Self {
            name: "infra".to_owned(),
            hosts: 4,
            paper: false,
            operator_binary: None,
        }
    }
}

/// An infrastructure that is up.
#[derive(Debug, Clone)]
pub struct Infra {
    run: RunDir,
    options: RunnerOptions,
    pid: i32,
}

/// Brings an infrastructure up, building what it needs, and returns once it is ready for its first
/// VirtualMachine.
///
/// # Errors
/// Without root; when something cannot be built; when one is up with other options; when the disk has
/// no room for machines; when a program does not come up, with the place of its log.
pub async fn up(options: UpOptions, progress: &Progress) -> anyhow::Result<Infra> {
    host_packages::require_root("bring up the local infrastructure")?;
    let run = RunDir::new(&options.name)?;
    let wanted = {
        let progress = progress.clone();
        tokio::task::spawn_blocking(move || prepare(options, &progress)).await??
    };
    if let Ok(infra) = Infra::open(run.name()).await {
        check_same(&infra, &wanted)?;
        // It may still be on its way, begun by someone else; one that failed is begun anew.
        let step = progress.step(format!("local infrastructure {}", run.name()));
        if follow(&run, None, &step).await.is_ok() {
            if let Some(binary) = &wanted.operator_binary {
                infra.set_operator_binary(binary).await?;
            }
            step.done("is up already");
            return Ok(infra);
        }
    }
    down(run.name()).await?;
    if !wanted.paper {
        room::check(Path::new(run_dir::PARENT))?;
    }
    for change in raise_limits()? {
        progress.note(&change);
    }
    create_folders(&run)?;
    wanted.write(&run)?;
    let mut runner = start_runner(&run)?;
    let step = progress.step(format!("local infrastructure {}", run.name()));
    let followed = tokio::time::timeout(START_LIMIT, follow(&run, Some(&mut runner), &step)).await;
    let outcome = followed.unwrap_or_else(|_| Err(anyhow::anyhow!("it is not up in time")));
    if let Err(error) = outcome {
        stop(&run).await?;
        return Err(error.context(format!("see the logs in {}", run.logs().display())));
    }
    let infra = Infra::open(run.name()).await?;
    step.done(&format!("kubeconfig {}", run.kubeconfig().display()));
    Ok(infra)
}

/// Takes an infrastructure down and removes everything of it, whatever state it is in; says what
/// was there beyond its processes.
pub async fn down(name: &str) -> anyhow::Result<Vec<String>> {
    let run = RunDir::new(name)?;
    stop(&run).await?;
    let mut removed = sweep(name).await?;
    if run.root().exists() {
        let root = run.root().to_owned();
        tokio::task::spawn_blocking(move || delete_disk(&root)).await??;
        removed.push(format!("folder {}", run.root().display()));
    }
    Ok(removed)
}

impl Infra {
    /// The infrastructure `name`; an error says that it is not up.
    pub async fn open(name: &str) -> anyhow::Result<Self> {
        let run = RunDir::new(name)?;
        let pid = Control::connect(&run).await?.runner_pid()?;
        let options = RunnerOptions::read(&run)?;
        Ok(Self { run, options, pid })
    }

    /// The folder of its run: kubeconfig, logs, audit log.
    pub fn run_dir(&self) -> &RunDir {
        &self.run
    }

    /// What it was brought up with.
    pub fn options(&self) -> &RunnerOptions {
        &self.options
    }

    /// Hosts, machines and programs, as they are now.
    pub async fn status(&self) -> anyhow::Result<StatusReport> {
        self.ask(Request::Status).await
    }

    /// Breaks or mends something; returns once that is done.
    pub async fn fault(&self, fault: Fault) -> anyhow::Result<()> {
        self.ask(Request::Fault(fault)).await
    }

    /// From now on Pods of the operator's image run `binary`; present ones when they restart.
    pub async fn set_operator_binary(&self, binary: &Path) -> anyhow::Result<()> {
        let binary = static_binary::check(binary)?;
        self.ask(Request::OperatorBinary(binary)).await
    }

    /// Installs Cluster API with this provider; returns once its controllers and webhooks work.
    pub async fn install_cluster_api(
        &self,
        built: &ClusterApi,
        provider: Provider,
    ) -> anyhow::Result<()> {
        self.ask(Request::ClusterApi(Order::new(built, provider)))
            .await
    }

    /// Runs a program inside a machine, as on its console.
    pub async fn machine_exec(&self, at: Target, argv: &[&str]) -> anyhow::Result<ExecOutput> {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        self.ask(Request::MachineExec(at, argv)).await
    }

    /// A command that will run inside the network namespace, with `KUBECONFIG` set and the
    /// infrastructure's programs (kubectl, helm, …) first on `PATH`.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.pid))
            .arg("--")
            .arg(program)
            .env("KUBECONFIG", self.run.kubeconfig())
            .env("PATH", self.path());
        command
    }

    /// Runs `argv` inside the network namespace, on this process's terminal.
    pub fn exec<S: AsRef<OsStr>>(&self, argv: &[S]) -> anyhow::Result<ExitStatus> {
        let (program, arguments) = argv.split_first().context("no command was given")?;
        let mut command = self.command(program);
        command
            .args(arguments)
            .status()
            .context("cannot start nsenter")
    }

    fn path(&self) -> String {
        let programs = self.options.programs.display();
        let inherited = std::env::vars_os().find(|(name, _)| name == "PATH");
        match inherited.and_then(|(_, path)| path.into_string().ok()) {
            Some(path) => format!("{programs}:{path}"),
            None => programs.to_string(),
        }
    }

    async fn ask<T: serde::de::DeserializeOwned>(&self, request: Request) -> anyhow::Result<T> {
        Control::connect(&self.run).await?.ask(&request).await
    }
}

/// Builds programs and images, and writes down what the runner is to do.
fn prepare(options: UpOptions, progress: &Progress) -> anyhow::Result<RunnerOptions> {
    let tools = tools::ensure(progress)?;
    let image = |release| {
        let built = (!options.paper).then(|| node_image::ensure(release, progress));
        built.transpose()
    };
    let (image, next_image) = (image(Release::Current)?, image(Release::Next)?);
    let operator_binary = options
        .operator_binary
        .map(|binary| static_binary::check(&binary))
        .transpose()?;
    let wanted = RunnerOptions {
        name: options.name,
        hosts: options.hosts,
        paper: options.paper,
        programs: tools.programs.bin,
        cdi_crds: tools.cdi_crds,
        image,
        next_image,
        machine_helper: own_program(HELPER)?,
        operator_binary,
    };
    wanted.check()?;
    Ok(wanted)
}

/// One that is up can stay if it is what is wanted; only the operator's binary can change.
fn check_same(infra: &Infra, wanted: &RunnerOptions) -> anyhow::Result<()> {
    let same = RunnerOptions {
        operator_binary: infra.options.operator_binary.clone(),
        ..wanted.clone()
    };
    anyhow::ensure!(
        same == infra.options,
        "\"{}\" is up with other options or other programs: take it down first",
        infra.run.name()
    );
    Ok(())
}

fn create_folders(run: &RunDir) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .mode(0o755)
        .create(run.root())
        .with_context(|| format!("cannot create {}", run.root().display()))?;
    for folder in [run.logs(), run.pki(), run.kubeconfigs()] {
        fs::create_dir(&folder)?;
    }
    Ok(())
}

/// Starts the runner as the first process of a process namespace of its own.
///
/// `unshare` stays outside as its parent: killing that one, or the runner, ends everything.
fn start_runner(run: &RunDir) -> anyhow::Result<Child> {
    let log = fs::File::create(run.runner_log())?;
    let child = Command::new("setsid")
        .args([
            "unshare",
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .arg(own_program(RUNNER)?)
        .args(["init", run.name()])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .current_dir("/")
        .spawn()
        .context("cannot start setsid")?;
    fs::write(run.pid_file(), child.id().to_string())?;
    Ok(child)
}

/// A program that is built with this crate: beside the running one, or one folder up, where tests
/// have it.
fn own_program(name: &str) -> anyhow::Result<PathBuf> {
    let itself = std::env::current_exe()?;
    itself
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .with_context(|| {
            format!("{name} is not built: run `cargo build --package guestcluster-infra --bins`")
        })
}

async fn follow(run: &RunDir, mut runner: Option<&mut Child>, step: &Step) -> anyhow::Result<()> {
    let mut control = loop {
        match Control::connect(run).await {
            Ok(control) => break control,
            Err(_) if starts(runner.as_deref_mut())? => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(_) => anyhow::bail!("the runner did not start"),
        }
    };
    control.send(&Request::Follow).await?;
    loop {
        match control.next().await?.context("the runner ended")? {
            StartUp::Step(what) => step.detail(&what),
            StartUp::Ready => return Ok(()),
            StartUp::Failed(why) => anyhow::bail!("{why}"),
        }
    }
}

/// Whether the runner may still come to listen.
fn starts(runner: Option<&mut Child>) -> anyhow::Result<bool> {
    match runner {
        Some(runner) => Ok(runner.try_wait()?.is_none()),
        None => Ok(false),
    }
}

/// The `unshare` that is the runner's parent, if it still runs: process ids are used again, so its
/// command line must be the one that was started.
fn runner_parent(run: &RunDir) -> Option<Pid> {
    let pid: i32 = fs::read_to_string(run.pid_file())
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = command.split(|byte| *byte == 0).collect();
    let is_ours = words.contains(&b"init".as_slice()) && words.contains(&run.name().as_bytes());
    is_ours.then(|| Pid::from_raw(pid))
}

/// Kills the runner with everything in its namespaces and waits until all of it is gone.
async fn stop(run: &RunDir) -> anyhow::Result<()> {
    // The first process before its parent: its end waits for all others of its namespace.
    let family = match runner_parent(run) {
        Some(parent) => children(parent).into_iter().chain([parent]).collect(),
        // An `up` that was killed may not have written down whom it started: the runner tells.
        None => match Control::connect(run).await {
            Ok(control) => vec![Pid::from_raw(control.runner_pid()?)],
            Err(_) => Vec::new(),
        },
    };
    for pid in family {
        match kill(pid, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).context("cannot kill the runner"),
        }
        while is_running(pid) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

fn children(parent: Pid) -> Vec<Pid> {
    let file = format!("/proc/{parent}/task/{parent}/children");
    let listed = fs::read_to_string(file).unwrap_or_default();
    let pids = listed.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.map(Pid::from_raw).collect()
}

/// Whether a process still runs; one that is dead and not yet waited for does not.
fn is_running(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}
