//! The inside of a container: a process turns itself into the program of a Pod.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, chdir, chroot, execve, setgid, setgroups, sethostname, setuid};
use serde::{Deserialize, Serialize};

/// A folder or file of the host that the container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is on the host.
    pub source: PathBuf,
    /// Where the container sees it: an absolute path.
    pub target: PathBuf,
    /// The container must not write to it.
    pub read_only: bool,
}

/// Everything that makes a container of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerDocument {
    /// The Pod's network namespace.
    pub network: PathBuf,
    /// The Pod's host name.
    pub hostname: String,
    /// The folder that becomes its root.
    pub root: PathBuf,
    /// The root cannot be written to.
    pub read_only_root: bool,
    /// What it sees besides.
    pub mounts: Vec<Mount>,
    /// Program and arguments, as seen inside.
    pub argv: Vec<String>,
    /// Its environment, complete.
    pub environment: Vec<(String, String)>,
    /// Its working folder.
    pub folder: PathBuf,
    /// The user that it runs as.
    pub user: u32,
    /// The group that it runs as.
    pub group: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// Turns the calling process into the container that the file `document` describes. It must have
/// one thread only.
pub fn become_it(document: &Path) -> anyhow::Result<Infallible> {
    let text =
        fs::read_to_string(document).with_context(|| format!("read {}", document.display()))?;
    let document: ContainerDocument = serde_json::from_str(&text)?;
    let network = File::open(&document.network).context("the Pod's network namespace")?;
    setns(network, CloneFlags::CLONE_NEWNET).context("enter the Pod's network namespace")?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS)?;
    sethostname(&document.hostname)?;
    build_root(&document)?;
    chroot(&document.root).context("enter the root")?;
    chdir(&document.folder)
        .with_context(|| format!("no folder {} in the image", document.folder.display()))?;
    drop_rights(&document)?;
    let argv = document.argv.iter().map(|word| CString::new(word.as_str()));
    let argv = argv.collect::<Result<Vec<_>, _>>()?;
    let environment = document.environment.iter();
    let environment = environment
        .map(|(name, value)| CString::new(format!("{name}={value}")))
        .collect::<Result<Vec<_>, _>>()?;
    let program = argv.first().context("the container has no program")?;
    execve(program, &argv, &environment).with_context(|| {
        let program = program.to_string_lossy();
        format!("exec {program} (a program that needs a dynamic loader finds none here)")
    })
}

fn build_root(document: &ContainerDocument) -> anyhow::Result<()> {
    let root = &document.root;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    bind(root, root, false)?;
    for folder in ["proc", "dev"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), &root.join("proc"), Some("proc"), flags, none).context("mount /proc")?;
    for device in ["null", "zero", "random", "urandom"] {
        let target = root.join("dev").join(device);
        File::create(&target)?;
        bind(&Path::new("/dev").join(device), &target, false)?;
    }
    for wanted in &document.mounts {
        let target = root.join(wanted.target.strip_prefix("/").unwrap_or(&wanted.target));
        if wanted.source.is_dir() {
            fs::create_dir_all(&target)?;
        } else {
            fs::create_dir_all(target.parent().unwrap_or(root))?;
            File::create(&target)?;
        }
        bind(&wanted.source, &target, wanted.read_only)?;
    }
    if document.read_only_root {
        remount_read_only(root)?;
    }
    Ok(())
}

fn bind(source: &Path, target: &Path, read_only: bool) -> anyhow::Result<()> {
    let none = None::<&str>;
    mount(
        Some(source),
        target,
        none,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        none,
    )
    .with_context(|| format!("mount {} at {}", source.display(), target.display()))?;
    if read_only {
        remount_read_only(target)?;
    }
    Ok(())
}

fn remount_read_only(target: &Path) -> anyhow::Result<()> {
    let none = None::<&str>;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(none, target, none, flags, none)
        .with_context(|| format!("make {} read-only", target.display()))
}

fn drop_rights(document: &ContainerDocument) -> anyhow::Result<()> {
    let groups: Vec<_> = document.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups)?;
    setgid(Gid::from_raw(document.group))?;
    // Last, since it takes the right to do the others.
    setuid(Uid::from_raw(document.user))?;
    prctl::set_no_new_privs()?;
    Ok(())
}
