//! Builds a machine's root file system around pid 1 and moves into it.
//!
//! All mounts are made in the machine's own mount namespace, from which nothing travels back: they
//! are gone with its last process, however it ends.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, makedev, mknod, umask};
use nix::unistd::{chdir, pivot_root, sethostname};

use super::boot::Boot;
use super::cgroup::CGROUP_ROOT;
use super::kernel_files;

/// Device nodes that every Linux program may count on.
///
/// The kernel's log is the box's: what one machine wrote there all others would read and store again. The
/// kubelet wants the file to exist, so it is another `null`.
const DEVICES: [(&str, u64, u64); 7] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("kmsg", 1, 3),
    ("tty", 5, 0),
];

/// Kernel settings outside `net` that the kubelet insists on writing: the machine has files of its own
/// in their place, because the kernel is the box's.
const OWN_SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Reads of the machine ID before a machine's first boot.
const UNINITIALIZED: &str = "uninitialized";

/// Builds the root and makes it `/` of this process.
pub(super) fn build(boot: &Boot, console: &Path) -> Result<()> {
    change_propagation(Path::new("/"), MsFlags::MS_PRIVATE)?;
    loosen_network()?;
    let root = Root {
        path: &boot.root,
        files: &boot.files,
    };
    mount_overlay(boot)?;
    root.kernel_file_systems()?;
    root.devices(console)?;
    root.cgroups(boot)?;
    for (own, place) in &boot.state {
        root.bind(own, &within(&boot.root, place))?;
    }
    root.settings()?;
    root.capacity(boot)?;
    root.identity(boot)?;
    enter(&boot.root)
}

/// New network namespaces may inherit the box's reverse path filter, which drops what a machine's own
/// service address answers.
fn loosen_network() -> Result<()> {
    for interface in ["all", "default", "eth0"] {
        let file = format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter");
        fs::write(&file, "0").with_context(|| format!("cannot write {file}"))?;
    }
    Ok(())
}

fn mount_overlay(boot: &Boot) -> Result<()> {
    let paths = [&boot.upper, &boot.work].into_iter().chain(&boot.lower);
    for path in paths {
        let text = path.to_string_lossy();
        // Both separate overlayfs's own options.
        ensure!(
            !text.contains([':', ',']),
            "overlay folder {text} has a ':' or ',' in its name"
        );
    }
    let lower: Vec<_> = boot
        .lower
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.join(":"),
        boot.upper.display(),
        boot.work.display()
    );
    new_mount("overlay", &boot.root, MsFlags::empty(), Some(&options))
}

/// The machine's root while it is built.
struct Root<'a> {
    path: &'a Path,
    /// Where the machine's own versions of kernel files lie.
    files: &'a Path,
}

impl Root<'_> {
    fn at(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    fn kernel_file_systems(&self) -> Result<()> {
        let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        new_mount("proc", &self.at("proc"), safe, None)?;
        // Read-only, which also tells systemd that there is no udev to run.
        new_mount("sysfs", &self.at("sys"), safe | MsFlags::MS_RDONLY, None)?;
        new_mount(
            "tmpfs",
            &self.at("dev"),
            MsFlags::MS_NOSUID,
            Some("mode=755"),
        )?;
        let temporary = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        new_mount("tmpfs", &self.at("run"), temporary, Some("mode=755"))?;
        new_mount("tmpfs", &self.at("tmp"), temporary, Some("mode=1777"))
    }

    fn devices(&self, console: &Path) -> Result<()> {
        let usual = umask(Mode::empty());
        for (name, major, minor) in DEVICES {
            let mode = Mode::from_bits_truncate(0o666);
            mknod(
                &self.at("dev").join(name),
                SFlag::S_IFCHR,
                mode,
                makedev(major, minor),
            )
            .with_context(|| format!("cannot make device {name}"))?;
        }
        umask(usual);
        for folder in ["dev/pts", "dev/shm", "dev/mqueue"] {
            fs::create_dir(self.at(folder))?;
        }
        let terminals = "newinstance,ptmxmode=0666,mode=620,gid=5";
        new_mount(
            "devpts",
            &self.at("dev/pts"),
            MsFlags::MS_NOSUID,
            Some(terminals),
        )?;
        new_mount(
            "tmpfs",
            &self.at("dev/shm"),
            MsFlags::MS_NOSUID,
            Some("mode=1777"),
        )?;
        new_mount("mqueue", &self.at("dev/mqueue"), MsFlags::empty(), None)?;
        for (link, target) in [
            ("dev/ptmx", "pts/ptmx"),
            ("dev/fd", "/proc/self/fd"),
            ("dev/stdin", "/proc/self/fd/0"),
            ("dev/stdout", "/proc/self/fd/1"),
            ("dev/stderr", "/proc/self/fd/2"),
        ] {
            symlink(target, self.at(link))?;
        }
        self.bind_file(console, &self.at("dev/console"))
    }

    /// The box's hierarchies, each with the machine's own group as its root.
    fn cgroups(&self, boot: &Boot) -> Result<()> {
        let place = |mount: &Path| within(self.path, mount);
        let alone = boot
            .cgroups
            .iter()
            .any(|(one, _)| one.mount == Path::new(CGROUP_ROOT));
        if !alone {
            new_mount(
                "tmpfs",
                &place(Path::new(CGROUP_ROOT)),
                MsFlags::empty(),
                Some("mode=755"),
            )?;
        }
        for (hierarchy, _) in &boot.cgroups {
            let target = place(&hierarchy.mount);
            fs::create_dir_all(&target)?;
            match &hierarchy.v1_options {
                Some(options) => new_mount("cgroup", &target, MsFlags::empty(), Some(options))?,
                None => new_mount("cgroup2", &target, MsFlags::empty(), None)?,
            }
        }
        Ok(())
    }

    /// Kernel settings: read-only but for the network's, which belong to the machine's namespace.
    fn settings(&self) -> Result<()> {
        let settings = self.at("proc/sys");
        self.bind(&settings, &settings)?;
        let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        mount(
            None::<&str>,
            &settings,
            None::<&str>,
            read_only,
            None::<&str>,
        )
        .context("cannot make the kernel's settings read-only")?;
        // A second, writable view, of which only `net` is kept.
        let writable = self.files.join("proc");
        fs::create_dir_all(&writable)?;
        new_mount("proc", &writable, MsFlags::empty(), None)?;
        self.bind(&writable.join("sys/net"), &settings.join("net"))?;
        umount2(&writable, MntFlags::MNT_DETACH)?;
        for setting in OWN_SETTINGS {
            let value = fs::read_to_string(Path::new("/proc/sys").join(setting))?;
            self.replace(&format!("proc/sys/{setting}"), &value)?;
        }
        // Whoever writes here acts on the box: a container could restart it. Not every kernel has it.
        let trigger = self.at("proc/sysrq-trigger");
        if trigger.exists() {
            self.bind(&self.at("dev/null"), &trigger)
        } else {
            Ok(())
        }
    }

    /// What the machine is told of its size. The limits themselves are its control group's.
    fn capacity(&self, boot: &Boot) -> Result<()> {
        let memory = fs::read_to_string("/proc/meminfo")?;
        self.replace(
            "proc/meminfo",
            &kernel_files::meminfo(&memory, boot.memory_bytes),
        )?;
        let cpus = fs::read_to_string("/proc/cpuinfo")?;
        self.replace("proc/cpuinfo", &kernel_files::cpuinfo(&cpus, boot.cpus))?;
        let box_cpus =
            kernel_files::cpu_list(&fs::read_to_string("/sys/devices/system/cpu/online")?);
        let devices = self.files.join("devices");
        for (path, content) in kernel_files::topology(boot.cpus, &box_cpus, boot.memory_bytes) {
            write(&devices.join(path), &content)?;
        }
        for folder in ["cpu", "node"] {
            let place = self.at("sys/devices/system").join(folder);
            // A kernel without memory nodes has no such folder, and is not looked for there.
            if place.is_dir() {
                self.bind(&devices.join(folder), &place)?;
            }
        }
        Ok(())
    }

    fn identity(&self, boot: &Boot) -> Result<()> {
        sethostname(&boot.hostname).context("cannot set the host name")?;
        write(&self.at("etc/hostname"), &format!("{}\n", boot.hostname))?;
        let id = self.at("etc/machine-id");
        let known = fs::read_to_string(&id).unwrap_or_default();
        if known.trim().is_empty() || known.trim() == UNINITIALIZED {
            // As systemd does on a VM: its machine ID is the firmware's UUID.
            write(&id, &format!("{}\n", boot.machine_id))?;
        }
        let resolver = self.at("etc/resolv.conf");
        // It may be a link to a service's file that this machine does not run.
        match fs::remove_file(&resolver) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => write(&resolver, &format!("nameserver {}\n", boot.name_server))?,
        }
        // By it the kubelet and others know that the machine has been started again.
        let start = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        self.replace("proc/sys/kernel/random/boot_id", &start)
    }

    /// Puts a file of the machine's own in place of a kernel file.
    fn replace(&self, path: &str, content: &str) -> Result<()> {
        let own = self.files.join(path);
        write(&own, content)?;
        self.bind(&own, &self.at(path))
    }

    fn bind_file(&self, own: &Path, place: &Path) -> Result<()> {
        fs::File::create(place)?;
        self.bind(own, place)
    }

    fn bind(&self, own: &Path, place: &Path) -> Result<()> {
        if own.is_dir() && !place.starts_with(self.at("proc")) && !place.starts_with(self.at("sys"))
        {
            fs::create_dir_all(place)?;
        }
        mount(
            Some(own),
            place,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .with_context(|| format!("cannot bind {} to {}", own.display(), place.display()))
    }
}

/// `path`, an absolute path of the machine, as seen from outside its root.
fn within(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn write(file: &Path, content: &str) -> Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

fn new_mount(kind: &str, place: &Path, flags: MsFlags, options: Option<&str>) -> Result<()> {
    mount(Some(kind), place, Some(kind), flags, options)
        .with_context(|| format!("cannot mount {kind} on {}", place.display()))
}

fn change_propagation(place: &Path, kind: MsFlags) -> Result<()> {
    mount(
        None::<&str>,
        place,
        None::<&str>,
        MsFlags::MS_REC | kind,
        None::<&str>,
    )
    .with_context(|| {
        format!(
            "cannot change the propagation of mounts below {}",
            place.display()
        )
    })
}

/// Makes `root` the root and drops the old one with all its mounts.
fn enter(root: &Path) -> Result<()> {
    chdir(root)?;
    // With both names the same folder the old root ends up below the new one, on top of it.
    pivot_root(".", ".").context("cannot change the root")?;
    umount2(".", MntFlags::MNT_DETACH).context("cannot drop the old root")?;
    chdir("/")?;
    // The kubelet's mounts must reach its containers and back.
    change_propagation(Path::new("/"), MsFlags::MS_SHARED)
}
