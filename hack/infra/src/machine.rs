//! The machine host: boots real machines from a node image, on disks that persist.
//!
//! A machine is a set of Linux namespaces with its own root file system, network and control groups, in
//! which systemd runs as pid 1, cloud-init reads the first-boot document, and containerd and the kubelet
//! do what they do on any node. Nothing in it knows that there is no hypervisor.
//!
//! # Guarantees
//! - A machine's mounts and processes die with its pid 1; the machine host then removes its network
//!   namespace and control groups before [`Machine::wait`] returns.
//! - Nothing of the box changes: mounts stay in the machine's namespace, kernel settings are read-only
//!   but for the network's, and limits are control groups below `gc-<name>`.
//!
//! # Assumes
//! Root, and a runner that is pid 1 of its own process namespace, so that machines die with it even when
//! it is killed. [`sweep()`] removes what is left then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::addresses::ROUTER;
use crate::network::{Binding, Network};
use crate::process;
use boot::Boot;
use cgroup::Group;
pub use disk::{delete_disk, import_image, imported_image};
use etcd_disk::EtcdDisk;
pub use limits::raise_limits;
pub use slow_disk::SlowDisk;
pub use spec::{MachineSpec, PowerState, Seed, SeedFormat};
pub use sweep::sweep;

mod boot;
mod cgroup;
mod disk;
mod etcd_disk;
pub mod helper;
mod kernel_files;
mod limits;
mod root;
mod slow_disk;
mod spec;
mod sweep;

/// File name of the helper program, which is built with this crate.
pub const HELPER: &str = "guestcluster-machine-init";

/// Boots machines on one [`Network`].
#[derive(Debug, Clone)]
pub struct MachineHost {
    network: Arc<Network>,
    group: Group,
    helper: PathBuf,
}

impl MachineHost {
    /// A machine host that uses `helper`, the program [`HELPER`].
    ///
    /// # Errors
    /// When the helper is missing, or the box has no control groups to freeze and kill machines with.
    pub fn new(network: Arc<Network>, helper: &Path) -> Result<Self> {
        let helper = fs::canonicalize(helper)
            .with_context(|| format!("no helper program {}", helper.display()))?;
        let group = Group::of_run(network.name())?;
        Ok(Self {
            network,
            group,
            helper,
        })
    }

    /// Starts a machine; returns once its init runs.
    ///
    /// # Errors
    /// When anything it is made of cannot be made; nothing but its disk is left behind then.
    pub async fn start(&self, spec: &MachineSpec) -> Result<Machine> {
        spec.check()?;
        let parts = Parts {
            network: Arc::clone(&self.network),
            namespace: self.network.member_namespace(&spec.id),
            group: self.group.of_machine(&spec.id),
            etcd: EtcdDisk::new(
                spec.etcd_disk.as_ref().unwrap_or(&spec.disk),
                spec.run.join("etcd"),
            ),
        };
        // Before anything is touched: what cleans up after a failed start would end the other one.
        ensure!(
            !parts.group.populated(),
            "machine {} is running already",
            spec.id
        );
        let started = self.boot(spec, &parts).await;
        match started {
            Ok((child, pid)) => Ok(Machine::watch(spec, self.helper.clone(), parts, child, pid)),
            Err(error) => {
                // The first error is the one to tell.
                let _ = parts.remove().await;
                Err(error.context(format!("cannot start machine {}", spec.id)))
            }
        }
    }

    async fn boot(&self, spec: &MachineSpec, parts: &Parts) -> Result<(Child, Pid)> {
        disk::prepare(&spec.disk, &spec.image).await?;
        if let Some(etcd_disk) = &spec.etcd_disk {
            disk::create_folder(etcd_disk)?;
        }
        disk::write_seed(&spec.disk, &spec.seed)?;
        let document = document_path(&spec.run);
        prepare_run(&spec.run)?;
        parts.etcd.attach().await?;
        boot_document(spec, parts).write(&document)?;
        parts.group.create(spec.cpus, spec.memory_bytes)?;
        attach(spec, parts).await?;
        let mut child = Command::new(&self.helper)
            .arg("launch")
            .arg(&document)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the helper program")?;
        let output = child
            .stdout
            .take()
            .context("the helper program has no output")?;
        let said = BufReader::new(output)
            .lines()
            .next_line()
            .await?
            .unwrap_or_default();
        match said.parse() {
            Ok(pid) => Ok((child, Pid::from_raw(pid))),
            Err(_) => anyhow::bail!("{said}"),
        }
    }
}

/// A machine that was started.
#[derive(Debug, Clone)]
pub struct Machine {
    id: String,
    pid: Pid,
    helper: PathBuf,
    run: PathBuf,
    group: Group,
    etcd: EtcdDisk,
    ended: watch::Receiver<Option<PowerState>>,
}

impl Machine {
    fn watch(
        spec: &MachineSpec,
        helper: PathBuf,
        parts: Parts,
        mut child: Child,
        pid: Pid,
    ) -> Self {
        let (end, ended) = watch::channel(None);
        let (group, etcd) = (parts.group.clone(), parts.etcd.clone());
        let id = spec.id.clone();
        tokio::spawn(async move {
            let code = child.wait().await.ok().and_then(|status| status.code());
            if let Err(error) = parts.remove().await {
                tracing::warn!(machine = id, "left behind: {error:#}");
            }
            end.send_replace(Some(PowerState::from_exit_code(code)));
        });
        Self {
            id: spec.id.clone(),
            pid,
            helper,
            run: spec.run.clone(),
            group,
            etcd,
            ended,
        }
    }

    /// Process ID of its init, in the runner's process namespace.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<PowerState> {
        *self.ended.borrow()
    }

    /// Waits for its end; all that it was made of but its disk is gone then.
    pub async fn wait(&self) -> PowerState {
        let mut ended = self.ended.clone();
        let state = ended.wait_for(Option::is_some).await.map(|state| *state);
        // The watcher always tells before it goes, unless the runtime itself is torn down.
        state.ok().flatten().unwrap_or(PowerState::Killed)
    }

    /// Presses the power button: asks its systemd to stop everything and switch off.
    ///
    /// Returns at once; [`Machine::wait`] tells when it is off. A machine whose systemd is not up yet
    /// does not hear it.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub async fn power_off(&self) -> Result<()> {
        if self.ended().is_some() {
            return Ok(());
        }
        // systemd's own meaning of this signal: start poweroff.target.
        let pid = self.pid.to_string();
        process::run(Command::new("kill").args(["-s", "RTMIN+4", &pid]))
            .await
            .map(drop)
    }

    /// Pulls the plug and waits until it is dead. Works on a frozen machine too.
    ///
    /// # Errors
    /// When its pid 1 cannot be killed.
    pub async fn pull_plug(&self) -> Result<()> {
        if self.ended().is_none() {
            match kill(self.pid, Signal::SIGKILL) {
                // Died at the same moment.
                Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                Err(error) => return Err(error).context("cannot kill the machine"),
            }
            self.wait().await;
        }
        Ok(())
    }

    /// Stops every process of the machine where it stands, as a hung hypervisor does.
    ///
    /// # Errors
    /// When the machine has ended.
    pub async fn freeze(&self) -> Result<()> {
        self.set_frozen(true).await
    }

    /// Lets a frozen machine go on.
    ///
    /// # Errors
    /// When the machine has ended.
    pub async fn thaw(&self) -> Result<()> {
        self.set_frozen(false).await
    }

    async fn set_frozen(&self, frozen: bool) -> Result<()> {
        let group = self.group.clone();
        spawn_blocking(move || group.set_frozen(frozen)).await?
    }

    /// Fills the disk that holds etcd, or gives the space back.
    ///
    /// It stays full when the machine is started again. Only etcd's folder is on it: what else lies on a machine's root
    /// disk still has room.
    ///
    /// # Errors
    /// When the disk cannot be written.
    pub fn set_disk_full(&self, full: bool) -> Result<()> {
        if full {
            self.etcd.fill()
        } else {
            self.etcd.free()
        }
    }

    /// Whether the disk that holds etcd was filled.
    pub fn is_disk_full(&self) -> bool {
        self.etcd.is_full()
    }

    /// Holds back each fsync and fdatasync of its etcd by `delay`, until what is returned is dropped.
    ///
    /// # Errors
    /// When no etcd runs in the machine, or strace cannot trace it.
    pub async fn slow_disk(&self, delay: Duration) -> Result<SlowDisk> {
        SlowDisk::begin(self.group.clone(), delay).await
    }

    /// The file with everything its console said, over all starts with the same run folder.
    pub fn console(&self) -> PathBuf {
        console_path(&self.run)
    }

    /// Runs a program inside the machine, as a login on its console would, and waits for its end.
    ///
    /// On a frozen machine it does not end before the machine is thawed.
    ///
    /// # Errors
    /// When the helper cannot be run. A program that fails, or a machine that is gone, shows in the
    /// output's status and standard error.
    pub async fn exec<S: AsRef<std::ffi::OsStr>>(&self, argv: &[S]) -> Result<Output> {
        Command::new(&self.helper)
            .arg("exec")
            .arg(document_path(&self.run))
            .arg(self.pid.to_string())
            .args(argv)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("cannot run a program in machine {}", self.id))
    }
}

/// What exists outside a machine's own namespaces, and must go with it.
#[derive(Debug)]
struct Parts {
    network: Arc<Network>,
    namespace: String,
    group: Group,
    etcd: EtcdDisk,
}

impl Parts {
    async fn remove(&self) -> Result<()> {
        let group = self.group.clone();
        // Killed once more: a program that was being run in the machine may have outlived it.
        let removed = spawn_blocking(move || group.kill().and_then(|()| group.remove())).await?;
        self.network.detach(&self.namespace).await?;
        self.etcd.detach()?;
        removed.map(drop)
    }
}

async fn attach(spec: &MachineSpec, parts: &Parts) -> Result<()> {
    let (network, member) = (&parts.network, &parts.namespace);
    match &spec.binding {
        Binding::Bridge => network.attach(member, spec.address, Some(&spec.mac)).await,
        Binding::Masquerade(forwarded) => {
            let pod = (spec.address, &forwarded[..]);
            network.attach_behind(member, pod, &spec.mac).await
        }
    }
}

fn boot_document(spec: &MachineSpec, parts: &Parts) -> Boot {
    let state = |name: &str| Path::new("/var/lib").join(name);
    let own = disk::STATE.map(|name| (spec.disk.join(name), state(name)));
    Boot {
        hostname: spec.hostname.clone(),
        cpus: spec.cpus,
        memory_bytes: spec.memory_bytes,
        machine_id: spec
            .seed
            .machine_id()
            .unwrap_or_else(|| format!("{:032x}", rand::random::<u128>())),
        network: Path::new("/run/netns").join(&parts.namespace),
        cgroups: parts.group.folders(),
        lower: vec![spec.image.layer.clone(), spec.image.base.clone()],
        upper: spec.disk.join("upper"),
        work: spec.disk.join("work"),
        state: own
            .into_iter()
            .chain([(parts.etcd.data(), state("etcd"))])
            .collect(),
        root: spec.run.join("root"),
        files: spec.run.join("files"),
        console: console_path(&spec.run),
        name_server: ROUTER,
    }
}

/// Makes the run folder, with nothing in it of an earlier start but the console log.
fn prepare_run(run: &Path) -> Result<()> {
    delete_disk(&run.join("files"))?;
    for folder in ["root", "files"] {
        let folder = run.join(folder);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    Ok(())
}

fn console_path(run: &Path) -> PathBuf {
    run.join("console.log")
}

fn document_path(run: &Path) -> PathBuf {
    run.join("boot.json")
}
