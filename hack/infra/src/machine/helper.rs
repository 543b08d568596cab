//! The helper program: what a machine needs done from inside its own namespaces.
//!
//! It has three parts, chosen by its first argument:
//! - `launch`: stays outside, keeps the console's other end, and ends as the machine ends. It is to the
//!   machine what the virtual machine monitor is to a VM.
//! - `boot`: pid 1 of the new process namespace; builds the root and becomes the machine's init.
//! - `exec`: runs a program inside a machine, as a login on its console would.
//!
//! A process of its own is needed, because namespaces are entered per thread and the runner has many.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::openpty;
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{dup2_stdin, setsid, ttyname};

use super::PowerState;
use super::boot::Boot;
use super::root;

/// What `boot` says when the next thing it does is to become init.
const BOOTED: &str = "booted";

/// What the kernel does to pid 1 of a process namespace that calls for a restart or for power-off
/// (`reboot_pid_ns`): it ends with these signals.
const RESTART_SIGNAL: i32 = 1;
const POWER_OFF_SIGNAL: i32 = 2;

/// What every program in a machine starts with.
const ENVIRONMENT: [(&str, &str); 3] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("HOME", "/root"),
    ("TERM", "dumb"),
];

/// Runs the helper with the arguments of its process.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
    let done = match arguments.as_slice() {
        [part, boot] if *part == "launch" => launch(Path::new(boot)),
        [part, boot, console] if *part == "boot" => {
            boot_machine(Path::new(boot), Path::new(console))
        }
        [part, boot, pid, argv @ ..] if *part == "exec" => exec(Path::new(boot), pid, argv),
        _ => Err(anyhow::anyhow!(
            "started by the machine host only: launch, boot or exec"
        )),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

/// Starts `boot` as pid 1 of a new process namespace and waits for its end.
///
/// Prints one line for the machine host: the machine's process ID once its init runs, or what went
/// wrong. The exit code is the [`PowerState`]'s.
fn launch(document: &Path) -> Result<ExitCode> {
    let boot = Boot::read(document)?;
    let console = openpty(None, None).context("cannot make a console")?;
    for end in [&console.master, &console.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).context("cannot keep the console")?;
    }
    let name = ttyname(&console.slave).context("cannot name the console")?;
    let (progress, report) = io::pipe()?;
    // Before the process namespace: the kernel allows no new thread once children go elsewhere.
    let log = copy_console(console.master, &boot.console)?;
    unshare(CloneFlags::CLONE_NEWPID).context("cannot make a process namespace")?;
    let mut machine = Command::new("/proc/self/exe")
        .arg("boot")
        .args([document, &name])
        .stdin(OwnedFd::from(report))
        .stdout(console.slave.try_clone()?)
        .stderr(console.slave.try_clone()?)
        .spawn()
        .context("cannot start pid 1")?;
    announce(&machine, progress)?;
    let status = machine.wait()?;
    // Held until now, because a terminal nobody has open reads as ended, and init opens and closes it.
    drop(console.slave);
    let _ = log.join();
    let state = match status.signal() {
        Some(RESTART_SIGNAL) => PowerState::Reboot,
        Some(POWER_OFF_SIGNAL) => PowerState::PowerOff,
        _ => PowerState::Killed,
    };
    Ok(ExitCode::from(state.exit_code()))
}

/// Appends what the machine writes to its console to a file, as a launcher's console log does.
fn copy_console(master: OwnedFd, log: &Path) -> Result<JoinHandle<()>> {
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot open {}", log.display()))?;
    let mut master = File::from(master);
    Ok(thread::spawn(move || {
        let mut buffer = [0; 8192];
        // The end of a terminal whose other side is closed is an error (EIO), not an empty read.
        while let Ok(read @ 1..) = master.read(&mut buffer) {
            // A full disk must not stop the machine: its console goes on into nothing.
            let _ = log.write_all(&buffer[..read]);
        }
    }))
}

/// Tells the machine host how the boot went.
fn announce(machine: &Child, mut progress: PipeReader) -> Result<()> {
    let mut said = String::new();
    progress.read_to_string(&mut said)?;
    let line = if said == BOOTED {
        machine.id().to_string()
    } else {
        said.replace('\n', " ")
    };
    println!("{line}");
    // The host waits for the end of this stream, or goes on reading in vain.
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(null).context("cannot close the report")
}

/// Becomes the machine's init; comes back only with an error, which it has then reported.
fn boot_machine(document: &Path, console: &Path) -> Result<ExitCode> {
    // Standard input is the pipe to `launch`.
    let mut report = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let error = match enter_machine(document, console) {
        Ok(()) => {
            report.write_all(BOOTED.as_bytes())?;
            drop(report);
            dup2_stdin(File::open("/dev/null")?)?;
            let mut init = Command::new("/sbin/init");
            // With this set, systemd leaves alone what belongs to the kernel: modules, devices, clock.
            init.env_clear()
                .envs(ENVIRONMENT)
                .env("container", "guestcluster");
            anyhow::Error::from(init.exec()).context("cannot become /sbin/init")
        }
        Err(error) => {
            report.write_all(format!("{error:#}").as_bytes())?;
            error
        }
    };
    Err(error)
}

/// Joins the control groups, makes the namespaces and builds the root.
fn enter_machine(document: &Path, console: &Path) -> Result<()> {
    let boot = Boot::read(document)?;
    // First of all: a control group namespace has the groups of its maker as its root.
    join_groups(&boot)?;
    let network = File::open(&boot.network)
        .with_context(|| format!("cannot open {}", boot.network.display()))?;
    setns(network, CloneFlags::CLONE_NEWNET).context("cannot enter the machine's network")?;
    unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWCGROUP,
    )
    .context("cannot make namespaces")?;
    setsid().context("cannot make a session")?;
    root::build(&boot, console)
}

fn join_groups(boot: &Boot) -> Result<()> {
    for (_, folder) in &boot.cgroups {
        // 0 stands for the writing process.
        fs::write(folder.join("cgroup.procs"), "0")
            .with_context(|| format!("cannot join {}", folder.display()))?;
    }
    Ok(())
}

/// Runs a program inside a running machine and ends as it ends.
fn exec(document: &Path, pid: &OsStr, argv: &[&OsStr]) -> Result<ExitCode> {
    let boot = Boot::read(document)?;
    let [program, arguments @ ..] = argv else {
        bail!("nothing to run")
    };
    let namespaces = [
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("net", CloneFlags::CLONE_NEWNET),
        ("cgroup", CloneFlags::CLONE_NEWCGROUP),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ];
    // All are opened before any is entered: behind the machine's mounts they have other names.
    let folder = Path::new("/proc").join(pid).join("ns");
    let mut opened = Vec::new();
    for (name, flag) in namespaces {
        opened.push((
            File::open(folder.join(name)).context("the machine is gone")?,
            flag,
        ));
    }
    // So that a frozen machine freezes what is run in it.
    join_groups(&boot)?;
    for (namespace, flag) in opened {
        setns(namespace, flag).context("cannot enter the machine")?;
    }
    let status = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(ENVIRONMENT)
        .env("KUBECONFIG", "/etc/kubernetes/admin.conf")
        .current_dir("/")
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    // A shell's convention for programs ended by a signal.
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(255);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(255)))
}
