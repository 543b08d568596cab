//! Control groups: one subtree per machine in every hierarchy of the box, below a folder of the run.
//!
//! Both layouts are handled: version 1 with a version 2 hierarchy beside it for grouping only (the
//! "hybrid" layout), and version 2 alone. Freezing and killing use version 2 in either, because a
//! process frozen by version 1 cannot be killed before it is thawed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Where all hierarchies are mounted.
pub(super) const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The period of the CPU quota, in microseconds; the kernel's own default.
const CPU_PERIOD: u64 = 100_000;

/// How often, and how long each time, to wait for processes to die or freeze: ten seconds in all, since
/// a loaded box takes its time.
const PATIENCE: (u32, Duration) = (500, Duration::from_millis(20));

/// One mounted control group hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hierarchy {
    /// Where it is mounted.
    pub(super) mount: PathBuf,
    /// The mount options that select it; `None` for version 2.
    pub(super) v1_options: Option<String>,
}

impl Hierarchy {
    /// Every hierarchy of this box.
    pub(super) fn all() -> Result<Vec<Self>> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read the mounts")?;
        let found = hierarchies(&mounts);
        anyhow::ensure!(
            found.iter().any(|hierarchy| hierarchy.v1_options.is_none()),
            "no cgroup2 hierarchy is mounted below {CGROUP_ROOT}: machines cannot be frozen or killed as a whole"
        );
        Ok(found)
    }
}

/// Reads hierarchies out of the mount table.
fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(mount), Some(kind), Some(options)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let v1_options = match kind {
            "cgroup" => Some(selecting_options(options)),
            "cgroup2" => None,
            _ => continue,
        };
        if Path::new(mount).starts_with(CGROUP_ROOT) {
            found.push(Hierarchy {
                mount: mount.into(),
                v1_options,
            });
        }
    }
    found
}

/// The mount options that name a version 1 hierarchy: controllers, or `none,name=…`, and `xattr`.
fn selecting_options(options: &str) -> String {
    let generic = [
        "rw", "ro", "nosuid", "nodev", "noexec", "relatime", "noatime", "seclabel",
    ];
    let mut selecting: Vec<&str> = options
        .split(',')
        .filter(|option| !generic.contains(option) && !option.starts_with("release_agent="))
        .collect();
    if selecting.iter().any(|option| option.starts_with("name=")) {
        selecting.insert(0, "none");
    }
    selecting.join(",")
}

/// The groups of one machine (`gc-<name>/<machine>` in each hierarchy), or of a whole run.
#[derive(Debug, Clone)]
pub(super) struct Group {
    path: PathBuf,
    hierarchies: Vec<Hierarchy>,
}

impl Group {
    /// The group of the run `name`.
    pub(super) fn of_run(name: &str) -> Result<Self> {
        Ok(Self {
            path: format!("gc-{name}").into(),
            hierarchies: Hierarchy::all()?,
        })
    }

    /// The group of one of the run's machines.
    pub(super) fn of_machine(&self, id: &str) -> Self {
        Self {
            path: self.path.join(id),
            hierarchies: self.hierarchies.clone(),
        }
    }

    /// Each hierarchy with this group's folder in it.
    pub(super) fn folders(&self) -> Vec<(Hierarchy, PathBuf)> {
        let folder = |hierarchy: &Hierarchy| hierarchy.mount.join(&self.path);
        self.hierarchies
            .iter()
            .map(|one| (one.clone(), folder(one)))
            .collect()
    }

    /// Creates the group with its limits. One that is there already is made to fit.
    pub(super) fn create(&self, cpus: u32, memory_bytes: u64) -> Result<()> {
        for (hierarchy, folder) in self.folders() {
            self.create_folders(&hierarchy)?;
            let quota = u64::from(cpus) * CPU_PERIOD;
            let limits = [
                ("memory.limit_in_bytes", memory_bytes.to_string()),
                ("memory.max", memory_bytes.to_string()),
                ("cpu.cfs_period_us", CPU_PERIOD.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
                ("cpu.max", format!("{quota} {CPU_PERIOD}")),
            ];
            // Each hierarchy has the files of its own controllers only.
            for (file, value) in limits {
                write_if_there(&folder.join(file), &value)?;
            }
        }
        Ok(())
    }

    /// Creates the folders from the run's down to this one, each ready to hold the next.
    fn create_folders(&self, hierarchy: &Hierarchy) -> Result<()> {
        let mut folder = hierarchy.mount.clone();
        for part in &self.path {
            if hierarchy.v1_options.is_none() {
                let _ = delegate(&folder);
            }
            let parent = folder.clone();
            folder.push(part);
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create control group {}", folder.display()))?;
            // A version 1 cpuset takes no process before both are set; new ones start empty.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if hierarchy.v1_options.is_some() && folder.join(file).exists() {
                    let value = fs::read_to_string(parent.join(file))?;
                    write_if_there(&folder.join(file), value.trim())?;
                }
            }
            if hierarchy.v1_options.is_some() {
                write_if_there(&folder.join("cgroup.clone_children"), "1")?;
            }
        }
        Ok(())
    }

    /// Whether any process is in the group.
    pub(super) fn populated(&self) -> bool {
        self.unified().any(|folder| event(&folder, "populated 1"))
    }

    /// The processes of the group, and of all groups below it, whose program has this name.
    pub(super) fn processes_named(&self, name: &str) -> Vec<i32> {
        let mut found = Vec::new();
        for folder in self.unified() {
            collect_processes(&folder, &mut found);
        }
        let is_named = |pid: &i32| {
            let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            program.trim_end() == name
        };
        found.retain(is_named);
        found
    }

    /// Stops every process of the group where it stands, or lets them go on.
    pub(super) fn set_frozen(&self, frozen: bool) -> Result<()> {
        let value = if frozen { "1" } else { "0" };
        for folder in self.unified() {
            fs::write(folder.join("cgroup.freeze"), value)
                .with_context(|| format!("cannot freeze or thaw {}", folder.display()))?;
            let wanted = format!("frozen {value}");
            wait(|| event(&folder, &wanted))
                .with_context(|| format!("{} does not become {wanted}", folder.display()))?;
        }
        Ok(())
    }

    /// Kills every process of the group, frozen or not. A group that is gone is fine.
    pub(super) fn kill(&self) -> Result<()> {
        for folder in self.unified() {
            write_if_there(&folder.join("cgroup.freeze"), "0")?;
            write_if_there(&folder.join("cgroup.kill"), "1")?;
        }
        Ok(())
    }

    /// Removes the group and everything below it once its last process has left; says what it removed.
    pub(super) fn remove(&self) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for (_, folder) in self.folders() {
            if folder.exists() {
                remove_tree(&folder)
                    .with_context(|| format!("cannot remove control group {}", folder.display()))?;
                removed.push(format!("control group {}", folder.display()));
            }
        }
        Ok(removed)
    }

    fn unified(&self) -> impl Iterator<Item = PathBuf> {
        self.folders()
            .into_iter()
            .filter(|(one, _)| one.v1_options.is_none())
            .map(|(_, folder)| folder)
    }
}

/// Adds the processes of a version 2 group and of those below it; groups that go meanwhile have none.
fn collect_processes(folder: &Path, found: &mut Vec<i32>) {
    let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    found.extend(listed.lines().filter_map(|pid| pid.parse::<i32>().ok()));
    let below = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in below.map(|entry| entry.path()).filter(|path| path.is_dir()) {
        collect_processes(&entry, found);
    }
}

/// Whether a version 2 group is in a state, such as `frozen 1`.
fn event(folder: &Path, state: &str) -> bool {
    let events = fs::read_to_string(folder.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == state)
}

/// Lets a version 2 group's children have every controller that the group itself has.
fn delegate(folder: &Path) -> io::Result<()> {
    let controllers = fs::read_to_string(folder.join("cgroup.controllers"))?;
    let wanted: Vec<String> = controllers
        .split_whitespace()
        .map(|name| format!("+{name}"))
        .collect();
    fs::write(folder.join("cgroup.subtree_control"), wanted.join(" "))
}

/// Writes a control file that not every hierarchy has.
fn write_if_there(file: &Path, value: &str) -> Result<()> {
    if !file.exists() {
        return Ok(());
    }
    fs::write(file, value).with_context(|| format!("cannot write {value} to {}", file.display()))
}

/// Removes leaves first. Processes that were just killed may take a moment to be gone.
fn remove_tree(folder: &Path) -> Result<()> {
    let children: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for child in children {
        remove_tree(&child)?;
    }
    wait(|| match fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    })
    .context("processes stay in it")
}

fn wait(mut done: impl FnMut() -> bool) -> Result<()> {
    for _ in 0..PATIENCE.0 {
        if done() {
            return Ok(());
        }
        thread::sleep(PATIENCE.1);
    }
    anyhow::bail!("waited for {:?}", PATIENCE.1 * PATIENCE.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hybrid_layout_is_read_as_it_is_mounted() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid,relatime 0 0
cgroup2 /mnt/elsewhere cgroup2 rw 0 0
";
        let found: Vec<_> = hierarchies(mounts)
            .into_iter()
            .map(|one| (one.mount, one.v1_options))
            .collect();
        assert_eq!(
            found,
            [
                (
                    "/sys/fs/cgroup/cpu,cpuacct".into(),
                    Some("cpu,cpuacct".to_owned())
                ),
                (
                    "/sys/fs/cgroup/systemd".into(),
                    Some("none,xattr,name=systemd".to_owned())
                ),
                ("/sys/fs/cgroup/unified".into(), None),
            ]
        );
    }

    #[test]
    fn version_2_alone_is_one_hierarchy() {
        let mounts =
            "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n";
        let found = hierarchies(mounts);
        assert_eq!(
            found,
            [Hierarchy {
                mount: "/sys/fs/cgroup".into(),
                v1_options: None
            }]
        );
    }
}
