//! Room on the box's disk for machines.

use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::statvfs::statvfs;

/// The share of the disk, in percent, below which a guest's kubelet evicts Pods: the default of
/// `imagefs.available` (k8s.io/kubernetes, pkg/kubelet/eviction), which the bootstrap repeats. A
/// machine's kubelet sees the box's own file system.
const EVICTED_BELOW: u64 = 15;
/// What a run with two dozen machines writes, with room to spare.
const WRITTEN: u64 = 6 << 30;

/// Refuses a file system on which guests would soon be under disk pressure, all at once: no Pod of
/// theirs would be scheduled, and nothing would tell that the box is to blame.
///
/// # Errors
/// When there is too little room, with what is missing; when the folder cannot be looked at.
pub fn check(folder: &Path) -> Result<()> {
    let system = statvfs(folder).with_context(|| format!("look at {}", folder.display()))?;
    let bytes = |blocks: u64| blocks.saturating_mul(system.fragment_size());
    let (size, free) = (bytes(system.blocks()), bytes(system.blocks_available()));
    let missing = missing(size, free);
    anyhow::ensure!(
        missing == 0,
        "{} lies on a disk with too little room: machines share it, and their kubelets evict Pods \
         when less than {EVICTED_BELOW} % of it is free; free {} GiB more",
        folder.display(),
        missing.div_ceil(1 << 30),
    );
    Ok(())
}

/// Bytes that have to be freed.
fn missing(size: u64, free: u64) -> u64 {
    (size / 100 * EVICTED_BELOW + WRITTEN).saturating_sub(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_needs_more_free_than_kubelets_want() {
        const GIB: u64 = 1 << 30;
        assert_eq!(missing(200 * GIB, 40 * GIB), 0);
        assert!(missing(200 * GIB, 35 * GIB) > 0);
        assert_eq!(missing(0, 0), WRITTEN);
    }
}
