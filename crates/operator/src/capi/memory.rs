//! What is known of a Cluster besides what is watched. Nothing here must survive a restart.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use guestcluster_bridge::serve::Guest;
use guestcluster_planner::observed::Probe;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::clock::Instant;

/// What is known of one Cluster.
#[derive(Debug, Default)]
pub struct Memory {
    /// What its guest said, and when.
    pub guest: Option<(Instant, Probe<Guest>)>,
    /// Evictions that were refused, by UID of the Pod: when, and why.
    pub refusals: BTreeMap<String, (Instant, String)>,
    /// When the status of each machine was last written.
    pub told: BTreeMap<String, Instant>,
    /// What was last said against making a virtual machine, by its name, and when.
    pub refused: BTreeMap<String, (Instant, String)>,
}

/// What is known of all Clusters.
#[derive(Debug, Default)]
pub struct Memories(Mutex<BTreeMap<NamespacedName, Memory>>);

impl Memories {
    /// Takes what is known of a Cluster, which is visited by one at a time.
    pub fn take(&self, key: &NamespacedName) -> Memory {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(key).unwrap_or_default()
    }

    /// Puts it back.
    pub fn put(&self, key: &NamespacedName, memory: Memory) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(key.clone(), memory);
    }
}
