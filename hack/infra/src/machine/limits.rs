//! Limits of the box that many machines run into.

use std::fs;

use anyhow::{Context, Result};

/// systemd, containerd and the kubelet of one machine take about two dozen inotify instances, all of
/// them root's: the kernel's default of 128 is used up by five machines.
const INOTIFY_INSTANCES: (&str, u64) = ("/proc/sys/fs/inotify/max_user_instances", 1024);

/// Raises what is too low for a dozen machines; says what it changed, one sentence each.
///
/// Not undone at the end: other programs may rely on it by then, and a higher limit costs nothing.
///
/// # Errors
/// When a limit cannot be read or written (needs root).
pub fn raise_limits() -> Result<Vec<String>> {
    let (file, wanted) = INOTIFY_INSTANCES;
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let present: u64 = text
        .trim()
        .parse()
        .with_context(|| format!("{file} is not a number"))?;
    if present >= wanted {
        return Ok(Vec::new());
    }
    fs::write(file, wanted.to_string()).with_context(|| format!("cannot write {file}"))?;
    Ok(vec![format!(
        "raised fs.inotify.max_user_instances from {present} to {wanted}"
    )])
}
