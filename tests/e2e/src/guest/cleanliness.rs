//! The local infrastructure itself goes without a trace.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use guestcluster_infra::progress::Progress;
use guestcluster_infra::run_dir::RunDir;
use guestcluster_infra::up::{UpOptions, down, up};
use tokio::process::Command;

use crate::stage::Stage;
use crate::wait::until;

/// A second infrastructure, which boots nothing, beside the one of the suite.
const NAME: &str = "sweep";

/// After `down`, and after a `kill -9` of the runner followed by `down`, no process, mount, control
/// group, network namespace or folder is left.
pub async fn the_infrastructure_leaves_nothing_behind(_: &Stage) -> anyhow::Result<()> {
    for killed in [false, true] {
        let options = UpOptions {
            name: NAME.to_owned(),
            hosts: 1,
            paper: true,
            operator_binary: None,
        };
        up(options, &Progress::plain()).await?;
        if killed {
            kill_runner().await?;
            until(
                "its processes are gone",
                Duration::from_secs(10),
                || async {
                    let left = processes()?;
                    anyhow::ensure!(left.is_empty(), "{left:?}");
                    Ok(Some(()))
                },
            )
            .await?;
        }
        down(NAME).await?;
        let left = leftovers()?;
        anyhow::ensure!(left.is_empty(), "killed: {killed}; left: {left:#?}");
    }
    Ok(())
}

async fn kill_runner() -> anyhow::Result<()> {
    let pid = std::fs::read_to_string(RunDir::new(NAME)?.pid_file())?;
    let status = Command::new("kill")
        .args(["-9", pid.trim()])
        .status()
        .await?;
    anyhow::ensure!(status.success(), "cannot kill {pid}");
    Ok(())
}

/// Processes whose command line names a file of the run.
fn processes() -> anyhow::Result<Vec<String>> {
    let root = RunDir::new(NAME)?.root().display().to_string();
    let lines = std::fs::read_dir("/proc")?.filter_map(|entry| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    Ok(lines.filter(|line| line.contains(&root)).collect())
}

fn leftovers() -> anyhow::Result<Vec<String>> {
    let mut left = processes()?;
    let root = RunDir::new(NAME)?.root().to_owned();
    let mark = format!("gc-{NAME}");
    let mounts = std::fs::read_to_string("/proc/mounts").context("read mounts")?;
    let path = root.display().to_string();
    left.extend(
        mounts
            .lines()
            .filter(|l| l.contains(&path) || l.contains(&mark))
            .map(str::to_owned),
    );
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup")?.flatten() {
        left.extend(exists(&hierarchy.path().join(&mark)));
    }
    left.extend(exists(&root));
    left.extend(exists(&Path::new("/run/netns").join(&mark)));
    Ok(left)
}

fn exists(path: &Path) -> Option<String> {
    path.exists().then(|| path.display().to_string())
}
