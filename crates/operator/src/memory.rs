//! What is known of each cluster besides the stores: answers of its guest, consoles, and what was
//! done last. Nothing here must survive a restart: all of it is asked or found out again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guestcluster_planner::observed::{Certificate, Etcd, Guest, GuestPod, Probe};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::clock::Instant;

/// How long the discovery that somebody holds a name counts before it is tried again.
const TAKEN: Duration = Duration::from_secs(30);
/// How long the refusal of an eviction is remembered that is not asked for any more.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// How many failures in a row are not yet believed.
pub const TOLERATED: u32 = 2;

/// What is known of one cluster.
#[derive(Debug, Default)]
pub struct Memory {
    /// The last answers of the guest.
    pub probes: Probes,
    /// Names that others hold, what holds them, and when that was found out.
    pub taken: BTreeMap<String, (String, Instant)>,
    /// Authorities' Secrets as last read: version, and what is wrong with it.
    pub authorities: BTreeMap<String, (String, Option<String>)>,
    /// Consoles by machine.
    pub consoles: BTreeMap<String, Console>,
    /// Certificates of machines, and when they were asked for.
    pub certificates: BTreeMap<String, (Instant, Certificate)>,
    /// Evictions in the guest that were refused, by the Pod's UID.
    pub refusals: BTreeMap<String, Refusal>,
    /// When its status was last written.
    pub status_written: Option<Instant>,
}

/// An eviction that the guest refused.
#[derive(Debug)]
pub struct Refusal {
    /// Why: what holds the Pod.
    pub why: String,
    /// When it was last asked for.
    pub at: Instant,
}

/// The last answers of a guest.
#[derive(Debug, Default)]
pub struct Probes {
    /// Of its API server.
    pub guest: Asked<Guest>,
    /// Of its etcd.
    pub etcd: Asked<Etcd>,
    /// Of whoever is behind the address that users and workers dial.
    pub endpoint: Asked<()>,
    /// Members answered for themselves, and none knew a leader.
    pub quorum_lost: bool,
    /// `kubeadm init` was seen to have come to its end.
    pub init_finished: bool,
    /// When they were asked for.
    pub asked: Option<Instant>,
}

impl Probes {
    /// One of the answers that count was not confirmed when last asked for.
    pub fn wavers(&self) -> bool {
        self.guest.wavers() || self.etcd.wavers() || self.endpoint.wavers()
    }
}

/// What was asked, and what came of it.
#[derive(Debug)]
pub struct Asked<T> {
    /// The answer that counts.
    pub answer: Probe<T>,
    /// How often in a row there was none.
    pub failures: u32,
}

impl<T> Default for Asked<T> {
    fn default() -> Self {
        Self {
            answer: Probe::NotAsked,
            failures: 0,
        }
    }
}

impl<T> Asked<T> {
    /// Takes in an answer. One that fails to come once or twice leaves the former one standing:
    /// a lost packet or a busy second is no news, and would be written into status twice.
    pub fn take_in(&mut self, answer: Probe<T>) {
        let failed = matches!(answer, Probe::Unreachable(_));
        self.failures = if failed {
            self.failures.saturating_add(1)
        } else {
            0
        };
        if !self.wavers() {
            self.answer = answer;
        }
    }

    /// The answer that counts is one that was not confirmed when last asked for.
    pub fn wavers(&self) -> bool {
        (1..=TOLERATED).contains(&self.failures) && self.answer.known().is_some()
    }
}

/// The console of a machine whose first boot is not over.
#[derive(Debug)]
pub struct Console {
    /// UID of the instance.
    pub instance: String,
    /// When it was first seen to run.
    pub running_since: Instant,
    /// When it was last read.
    pub read: Option<Instant>,
    /// Its last lines.
    pub lines: Vec<String>,
}

impl Memory {
    /// Takes in what came of an eviction. Old refusals, of Pods that are long gone, are dropped.
    pub fn refused(&mut self, pod: &GuestPod, why: Option<String>, at: Instant) {
        let fresh = |refusal: &Refusal| at.saturating_duration_since(refusal.at) < FORGOTTEN;
        self.refusals.retain(|_, refusal| fresh(refusal));
        match why {
            Some(why) => drop(self.refusals.insert(pod.uid.clone(), Refusal { why, at })),
            None => drop(self.refusals.remove(&pod.uid)),
        }
    }

    /// Names that others hold, as far as that is still to be believed.
    pub fn taken(&mut self, now: Instant) -> BTreeMap<String, String> {
        self.taken
            .retain(|_, (_, since)| now.saturating_duration_since(*since) < TAKEN);
        self.taken
            .iter()
            .map(|(name, (owner, _))| (name.clone(), owner.clone()))
            .collect()
    }
}

/// The memories of all clusters, and which of them want attention. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Memories {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    memories: BTreeMap<NamespacedName, Memory>,
    /// Clusters whose guest must be asked anew, because something of theirs has changed.
    stale: BTreeSet<NamespacedName>,
    /// Clusters in which nothing is on its way.
    settled: BTreeSet<NamespacedName>,
}

impl Memories {
    /// Takes a cluster's memory for one reconcile. One that is not put back, because the
    /// reconcile was cut off, is lost, and what it held is found out again.
    pub fn take(&self, cluster: &NamespacedName) -> Memory {
        self.lock().memories.remove(cluster).unwrap_or_default()
    }

    /// Puts a memory back.
    pub fn put(&self, cluster: &NamespacedName, memory: Memory) {
        self.lock().memories.insert(cluster.clone(), memory);
    }

    /// Forgets a cluster that is gone.
    pub fn forget(&self, cluster: &NamespacedName) {
        let mut shared = self.lock();
        shared.memories.remove(cluster);
        shared.stale.remove(cluster);
        shared.settled.remove(cluster);
    }

    /// The answers of a cluster's guest are out of date.
    pub fn invalidate(&self, cluster: &NamespacedName) {
        self.lock().stale.insert(cluster.clone());
    }

    /// Whether the answers are out of date, which they are not after this call.
    pub fn take_stale(&self, cluster: &NamespacedName) -> bool {
        self.lock().stale.remove(cluster)
    }

    /// Whether anything is on its way in a cluster.
    pub fn set_settled(&self, cluster: &NamespacedName, settled: bool) {
        let mut shared = self.lock();
        if settled {
            shared.settled.insert(cluster.clone());
        } else {
            shared.settled.remove(cluster);
        }
    }

    /// Whether nothing is on its way in a cluster.
    pub fn is_settled(&self, cluster: &NamespacedName) -> bool {
        self.lock().settled.contains(cluster)
    }

    /// Each change is one call, so a panic elsewhere leaves the value whole.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_stands_until_it_has_failed_to_come_three_times() {
        let mut asked = Asked::default();
        asked.take_in(Probe::Known("here"));
        for _ in 0..TOLERATED {
            asked.take_in(Probe::Unreachable("lost".to_owned()));
            assert!(asked.wavers());
            assert_eq!(asked.answer, Probe::Known("here"));
        }
        asked.take_in(Probe::Unreachable("lost".to_owned()));
        assert!(!asked.wavers());
        assert_eq!(asked.answer, Probe::Unreachable("lost".to_owned()));
        asked.take_in(Probe::Known("back"));
        assert_eq!((asked.answer, asked.failures), (Probe::Known("back"), 0));
    }

    #[test]
    fn without_a_former_answer_the_first_failure_counts() {
        let mut asked = Asked::<()>::default();
        asked.take_in(Probe::Unreachable("not yet".to_owned()));
        assert_eq!(asked.answer, Probe::Unreachable("not yet".to_owned()));
    }
}
