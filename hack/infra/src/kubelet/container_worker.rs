//! One container that is really run: started, probed, started again, and stopped.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::Container;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::container::ContainerDocument;
use super::images::Images;
use super::now;
use super::probe::ProbePlan;
use super::prober::{self, ProbeKind, Verdict};
use super::restarts::{Backoff, Policy};
use super::view::{ContainerView, Doing};

/// The running program, even when its file has been built anew meanwhile.
const ITSELF: &str = "/proc/self/exe";
/// Exit codes as a shell counts them.
const SIGNALLED: i32 = 128;
/// The code of a container that could not be started.
const NOT_STARTED: i32 = 128;

/// What a container is run with.
pub struct ContainerJob {
    /// Its position in the Pod.
    pub index: usize,
    /// Its spec.
    pub spec: Container,
    /// What it is made of.
    pub document: ContainerDocument,
    /// The folder of its Pod.
    pub folder: PathBuf,
    /// The address of its Pod.
    pub address: Ipv4Addr,
    /// How often it was started before this kubelet took it on.
    pub restarts: i32,
    /// When it is started again.
    pub policy: Policy,
    /// How long it gets to end.
    pub grace: Duration,
    /// The images that hosts can pull.
    pub images: watch::Receiver<Images>,
}

/// Tells the Pod how a container is.
pub type Reports = mpsc::UnboundedSender<(usize, ContainerView)>;

/// How one run of a container ended.
struct Run {
    code: i32,
    /// It was told to end by the Pod: no restart.
    stopped: bool,
}

impl ContainerJob {
    /// Runs the container until its policy lets it rest or `stop` turns true.
    pub async fn run(self, reports: Reports, mut stop: watch::Receiver<bool>) {
        let mut view = ContainerView::waiting("ContainerCreating", "");
        view.restarts = self.restarts;
        let mut backoff = Backoff::default();
        loop {
            let begun = Instant::now();
            let started = now();
            let run = match self.start() {
                Ok(child) => self.live(child, (&mut view, &reports), &mut stop).await,
                Err(error) => {
                    tracing::warn!(container = self.spec.name, "not started: {error:#}");
                    Run {
                        code: NOT_STARTED,
                        stopped: false,
                    }
                }
            };
            let ended = Doing::Ended {
                code: run.code,
                started,
                finished: now(),
            };
            view.ready = false;
            view.started = false;
            if run.stopped || !self.policy.restarts(run.code) {
                view.doing = ended;
                self.tell(&view, &reports);
                return;
            }
            let pause = backoff.pause(begun.elapsed());
            view.last = Some(ended);
            view.restarts += 1;
            if !pause.is_zero() {
                let message = format!("back-off {pause:?} restarting failed container");
                view.doing = Doing::Waiting("CrashLoopBackOff", message);
                self.tell(&view, &reports);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = told(&mut stop) => return,
            }
        }
    }

    /// One run, from its start to its end.
    async fn live(
        &self,
        mut child: Child,
        (view, reports): (&mut ContainerView, &Reports),
        stop: &mut watch::Receiver<bool>,
    ) -> Run {
        let (verdicts, mut turned) = mpsc::unbounded_channel();
        let mut probes = JoinSet::new();
        view.doing = Doing::Running(now());
        view.started = self.spec.startup_probe.is_none();
        view.ready = view.started && self.spec.readiness_probe.is_none();
        if view.started {
            self.probe(
                &[ProbeKind::Readiness, ProbeKind::Liveness],
                &mut probes,
                &verdicts,
            );
        } else {
            self.probe(&[ProbeKind::Startup], &mut probes, &verdicts);
        }
        self.tell(view, reports);
        loop {
            tokio::select! {
                status = child.wait() => return Run { code: code(status.ok()), stopped: false },
                () = told(stop) => {
                    return Run { code: self.end(&mut child).await, stopped: true };
                }
                Some(verdict) = turned.recv() => match (verdict.kind, verdict.passing) {
                    (ProbeKind::Readiness, passing) => view.ready = passing,
                    (ProbeKind::Startup, true) => {
                        view.started = true;
                        view.ready = self.spec.readiness_probe.is_none();
                        let rest = [ProbeKind::Readiness, ProbeKind::Liveness];
                        self.probe(&rest, &mut probes, &verdicts);
                    }
                    (ProbeKind::Liveness, true) => continue,
                    (ProbeKind::Startup | ProbeKind::Liveness, false) => {
                        tracing::info!(container = self.spec.name, kind = ?verdict.kind, "probe");
                        return Run { code: self.end(&mut child).await, stopped: false };
                    }
                }
            }
            self.tell(view, reports);
        }
    }

    fn start(&self) -> anyhow::Result<Child> {
        let reference = self.spec.image.clone().unwrap_or_default();
        let image = self.images.borrow().find(&reference).cloned();
        let image = image.with_context(|| format!("no image {reference}"))?;
        let inside = self
            .document
            .root
            .join(image.entry_point.trim_start_matches('/'));
        // A copy: the binary that was registered may be built anew while this one runs.
        std::fs::copy(&image.binary, &inside)
            .with_context(|| format!("copy {}", image.binary.display()))?;
        let file = self.folder.join(format!("{}.json", self.spec.name));
        std::fs::write(&file, serde_json::to_vec(&self.document)?)?;
        let log = log_file(&self.folder, &self.spec.name, false);
        if log.exists() {
            std::fs::rename(&log, log_file(&self.folder, &self.spec.name, true))?;
        }
        let log = File::create(&log)?;
        Command::new(ITSELF)
            .arg("container")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("start the container")
    }

    /// Asks the container to end, and kills it after its grace.
    async fn end(&self, child: &mut Child) -> i32 {
        if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
            // One that is just gone needs no signal.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        if let Ok(status) = tokio::time::timeout(self.grace, child.wait()).await {
            return code(status.ok());
        }
        if let Err(error) = child.kill().await {
            tracing::warn!(container = self.spec.name, %error, "not killed");
        }
        SIGNALLED + Signal::SIGKILL as i32
    }

    fn probe(
        &self,
        kinds: &[ProbeKind],
        probes: &mut JoinSet<()>,
        verdicts: &mpsc::UnboundedSender<Verdict>,
    ) {
        for &kind in kinds {
            let probe = match kind {
                ProbeKind::Startup => &self.spec.startup_probe,
                ProbeKind::Readiness => &self.spec.readiness_probe,
                ProbeKind::Liveness => &self.spec.liveness_probe,
            };
            if let Some(probe) = probe {
                let plan = ProbePlan::read(probe, &self.spec);
                probes.spawn(prober::watch(
                    plan,
                    self.address,
                    (self.index, kind),
                    verdicts.clone(),
                ));
            }
        }
    }

    fn tell(&self, view: &ContainerView, reports: &Reports) {
        // A Pod that is gone needs no reports.
        let _ = reports.send((self.index, view.clone()));
    }
}

/// The log of a container's present or last run.
pub fn log_file(folder: &Path, container: &str, previous: bool) -> PathBuf {
    let suffix = if previous { ".previous" } else { "" };
    folder.join(format!("{container}{suffix}.log"))
}

/// Waits until the Pod tells its containers to end, or is gone.
async fn told(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

fn code(status: Option<std::process::ExitStatus>) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let Some(status) = status else {
        return NOT_STARTED;
    };
    status
        .code()
        .unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or_default())
}
