//! Removes what a killed run left behind.

use anyhow::Result;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup::Group;
use crate::network;

/// Removes the processes, control groups, network namespaces and mounts of the infrastructure `name`,
/// and says what it found.
///
/// # Guarantees
/// Safe at any time and any number of times; touches only what is named after `gc-<name>`: control
/// groups `gc-<name>`, network namespaces `gc-<name>` and `gc-<name>.*` with the processes that live in
/// them, and mounts below a folder `guestcluster-<name>`. Disks and logs stay.
///
/// # Errors
/// When the name is unusable or something cannot be removed.
pub async fn sweep(name: &str) -> Result<Vec<String>> {
    network::check_name(name)?;
    let mut removed = Vec::new();
    let group = Group::of_run(name)?;
    // Machines first: their processes hold everything else.
    group.kill()?;
    for pid in network::inhabitants(name).await? {
        // Ourselves, if called from inside; and what has ended meanwhile.
        if pid != Pid::this().as_raw() && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
            removed.push(format!("process {pid}"));
        }
    }
    removed.extend(tokio::task::spawn_blocking(move || group.remove()).await??);
    removed.extend(network::sweep(name).await?);
    removed.extend(unmount(name)?);
    Ok(removed)
}

/// Machines mount in namespaces of their own, so there is something to do only for mounts that were
/// made by hand or by other parts of the run.
fn unmount(name: &str) -> Result<Vec<String>> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let mut removed = Vec::new();
    // The last mounted first: it may lie on another.
    for place in places(&mounts, name).into_iter().rev() {
        if umount2(place, MntFlags::MNT_DETACH).is_ok() {
            removed.push(format!("mount {place}"));
        }
    }
    Ok(removed)
}

fn places<'a>(mounts: &'a str, name: &str) -> Vec<&'a str> {
    let folder = format!("guestcluster-{name}");
    mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|place| place.split('/').any(|part| part == folder))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_in_the_runs_own_folder_are_its_own() {
        let mounts = "overlay /var/tmp/guestcluster-infra/m/root overlay rw 0 0
proc /var/tmp/guestcluster-infra-2/proc proc rw 0 0
tmpfs /tmp tmpfs rw 0 0
";
        assert_eq!(
            places(mounts, "infra"),
            ["/var/tmp/guestcluster-infra/m/root"]
        );
    }
}
