//! Whether the stores have seen what we ourselves wrote.
//!
//! A plan made on a store that does not show our last write would make the write again, or worse,
//! the next one too early. So each write is noted with the owner it was made for, and nothing is
//! planned for that owner before the stores have caught up.
//!
//! # Guarantees
//! - [`Ledger::behind`] is empty only if, for each noted write of the owner, the store has the
//!   object at that version or a later one, or has seen a later state of the kind without it.
//!
//! # Assumes
//! - Resource versions of one kind are compared as numbers where both are: Kubernetes promises
//!   since 1.35 that they can be, and every release before behaved so. Versions that are no numbers
//!   are compared for equality alone.
//!
//! # Caveats
//! - A write to an object that the store's selector leaves out is never seen. Such entries, like
//!   any that is older than [`EXPIRY`], come back as [`Behind::expired`]: read the object live,
//!   then [`settle`](Ledger::settle) it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Resource;

use crate::clock::Instant;
use crate::store::{NamespacedName, Store};

/// How long a store may lag behind a write before the caller should look for itself.
pub const EXPIRY: Duration = Duration::from_secs(30);

/// A resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// A number, which can be compared.
    Number(u64),
    /// Anything else, of which only equality is known.
    Opaque(Box<str>),
}

impl Version {
    /// Reads a resource version.
    pub fn new(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Opaque(text.into()), Self::Number)
    }

    /// Whether this is the other version or a later one, as far as can be known.
    pub fn is_at_least(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(this), Self::Number(other)) => this >= other,
            _ => self == other,
        }
    }
}

/// What a store should show.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    /// The object at this version or later, or gone again.
    Written(Version),
    /// No object of this uid.
    Gone { uid: Box<str> },
}

/// A store, as far as the ledger asks it.
trait Copies: Send + Sync {
    fn show(&self, name: &NamespacedName, expected: &Expected) -> bool;
}

impl<K: Resource + Send + Sync> Copies for Store<K> {
    fn show(&self, name: &NamespacedName, expected: &Expected) -> bool {
        let (copy, newest) = self.copy_and_newest(name);
        match expected {
            Expected::Written(version) => {
                let held = copy
                    .as_ref()
                    .and_then(|copy| copy.meta().resource_version.as_deref());
                held.map(Version::new).is_some_and(|held| held.is_at_least(version))
                    // Not there, though the stream is past our write: it has gone since.
                    || copy.is_none() && newest.is_some_and(|newest| newest.is_at_least(version))
            }
            Expected::Gone { uid } => {
                copy.is_none_or(|copy| copy.meta().uid.as_deref() != Some(&**uid))
            }
        }
    }
}

/// A kind of object: its group and kind, whatever the version or view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    group: Box<str>,
    kind: Box<str>,
}

impl Kind {
    fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self {
            group: (&*K::group(&())).into(),
            kind: (&*K::kind(&())).into(),
        }
    }
}

#[derive(Debug)]
struct Noted {
    expected: Expected,
    at: Instant,
}

type Notes = BTreeMap<(Kind, NamespacedName), Noted>;

/// A write of ours that a store does not show yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The kind of the object.
    pub kind: Box<str>,
    /// The object.
    pub name: NamespacedName,
    /// How long ago it was written.
    pub age: Duration,
}

impl Behind {
    /// Whether waiting for the store has taken too long and the object should be read live.
    pub fn expired(&self) -> bool {
        self.age >= EXPIRY
    }
}

/// Our own last writes, by the owner they were made for. Clones share it.
#[derive(Clone, Default)]
pub struct Ledger {
    stores: BTreeMap<Kind, Arc<dyn Copies>>,
    owners: Arc<Mutex<BTreeMap<NamespacedName, Notes>>>,
}

impl Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.stores.keys()).finish()
    }
}

impl Ledger {
    /// A ledger that knows no store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also asks this store. Writes to kinds without a store are not noted: nothing is planned on
    /// them that could be stale.
    #[must_use]
    pub fn with<K>(mut self, store: &Store<K>) -> Self
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        self.stores.insert(Kind::of::<K>(), Arc::new(store.clone()));
        self
    }

    /// Notes that we made or changed an object for `owner`; `object` is the server's answer.
    pub fn wrote<K>(&self, owner: &NamespacedName, object: &K, now: Instant)
    where
        K: Resource<DynamicType = ()>,
    {
        if let Some(version) = object.meta().resource_version.as_deref() {
            let expected = Expected::Written(Version::new(version));
            self.note::<K>(
                owner,
                NamespacedName::of(object),
                Noted { expected, at: now },
            );
        }
    }

    /// Notes that an object of `owner` is gone by our doing.
    pub fn removed<K>(&self, owner: &NamespacedName, object: &K, now: Instant)
    where
        K: Resource<DynamicType = ()>,
    {
        if let Some(uid) = object.meta().uid.as_deref() {
            let expected = Expected::Gone { uid: uid.into() };
            self.note::<K>(
                owner,
                NamespacedName::of(object),
                Noted { expected, at: now },
            );
        }
    }

    /// The writes made for `owner` that the stores do not show yet. Those which they do show are
    /// forgotten.
    pub fn behind(&self, owner: &NamespacedName, now: Instant) -> Vec<Behind> {
        let mut owners = self.lock();
        let Some(notes) = owners.get_mut(owner) else {
            return Vec::new();
        };
        notes.retain(|(kind, name), noted| {
            self.stores
                .get(kind)
                .is_some_and(|store| !store.show(name, &noted.expected))
        });
        let behind = notes
            .iter()
            .map(|((kind, name), noted)| Behind {
                kind: kind.kind.clone(),
                name: name.clone(),
                age: now.saturating_duration_since(noted.at),
            })
            .collect();
        if notes.is_empty() {
            owners.remove(owner);
        }
        behind
    }

    /// Forgets one write, after the caller has read the object live.
    pub fn settle(&self, owner: &NamespacedName, behind: &Behind) {
        if let Some(notes) = self.lock().get_mut(owner) {
            notes.retain(|(kind, name), _| kind.kind != behind.kind || *name != behind.name);
        }
    }

    /// Forgets all writes made for an owner that is gone.
    pub fn forget(&self, owner: &NamespacedName) {
        self.lock().remove(owner);
    }

    fn note<K>(&self, owner: &NamespacedName, name: NamespacedName, noted: Noted)
    where
        K: Resource<DynamicType = ()>,
    {
        let kind = Kind::of::<K>();
        if self.stores.contains_key(&kind) {
            self.lock()
                .entry(owner.clone())
                .or_default()
                .insert((kind, name), noted);
        }
    }

    /// Each change of the map is one call, so a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Notes>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use rstest::rstest;

    use super::*;
    use crate::clock::monotonic;
    use crate::store::feed_tests::{Fixture, map};

    fn owner() -> NamespacedName {
        NamespacedName::new("n", "guest")
    }

    fn written(name: &str, version: u64) -> ConfigMap {
        serde_json::from_value(map(name, "x", version)).unwrap()
    }

    #[rstest]
    #[case("10", "9", true)]
    #[case("9", "9", true)]
    #[case("9", "10", false)]
    #[case("a", "a", true)]
    #[case("b", "a", false)]
    #[case("10", "a", false)]
    fn versions_compare_as_numbers_or_not_at_all(
        #[case] held: &str,
        #[case] wanted: &str,
        #[case] enough: bool,
    ) {
        assert_eq!(
            Version::new(held).is_at_least(&Version::new(wanted)),
            enough
        );
    }

    #[test]
    fn a_write_is_behind_until_the_store_has_it_or_something_later() {
        let fixture = Fixture::new();
        let ledger = Ledger::new().with(&fixture.store);
        let start = monotonic();
        fixture.apply(map("a", "x", 4));
        ledger.wrote(&owner(), &written("a", 7), start);
        let behind = ledger.behind(&owner(), start + Duration::from_secs(2));
        assert_eq!(behind.len(), 1);
        assert_eq!(behind[0].name, NamespacedName::new("n", "a"));
        assert_eq!(
            (behind[0].age, behind[0].expired()),
            (Duration::from_secs(2), false)
        );

        fixture.apply(map("a", "x", 8));
        assert_eq!(ledger.behind(&owner(), start), []);
        // It was seen once: a later deletion does not bring it back.
        fixture.delete(map("a", "x", 9));
        assert_eq!(ledger.behind(&owner(), start), []);
    }

    #[test]
    fn an_object_that_came_and_went_is_not_waited_for() {
        let fixture = Fixture::new();
        let ledger = Ledger::new().with(&fixture.store);
        ledger.wrote(&owner(), &written("a", 7), monotonic());
        assert_eq!(
            ledger.behind(&owner(), monotonic()).len(),
            1,
            "not there yet"
        );
        fixture.apply(map("other", "x", 8));
        assert_eq!(ledger.behind(&owner(), monotonic()), []);
    }

    #[test]
    fn a_list_that_comes_in_does_not_prove_an_object_gone() {
        let fixture = Fixture::new();
        let ledger = Ledger::new().with(&fixture.store);
        ledger.wrote(&owner(), &written("a", 7), monotonic());
        fixture.begin_list(map("newer", "x", 9));
        assert_eq!(
            ledger.behind(&owner(), monotonic()).len(),
            1,
            "it may be on the next page"
        );
        fixture.end_list();
        assert_eq!(ledger.behind(&owner(), monotonic()), []);
    }

    #[test]
    fn a_deletion_is_behind_while_the_store_shows_the_same_object() {
        let fixture = Fixture::new();
        let ledger = Ledger::new().with(&fixture.store);
        fixture.apply(map("a", "x", 4));
        ledger.removed(&owner(), &written("a", 4), monotonic());
        assert_eq!(ledger.behind(&owner(), monotonic()).len(), 1);
        fixture.delete(map("a", "x", 5));
        assert_eq!(ledger.behind(&owner(), monotonic()), []);
    }

    #[test]
    fn after_thirty_seconds_the_caller_looks_itself_and_settles() {
        let fixture = Fixture::new();
        let ledger = Ledger::new().with(&fixture.store);
        let start = monotonic();
        ledger.wrote(&owner(), &written("a", 7), start);
        let behind = ledger.behind(&owner(), start + EXPIRY);
        assert!(behind[0].expired());
        ledger.settle(&owner(), &behind[0]);
        assert_eq!(ledger.behind(&owner(), start + EXPIRY), []);
    }

    #[test]
    fn owners_do_not_wait_for_each_other_and_unknown_kinds_for_nobody() {
        let fixture = Fixture::new();
        let ledger = Ledger::new().with(&fixture.store);
        ledger.wrote(&owner(), &written("a", 7), monotonic());
        assert_eq!(
            ledger.behind(&NamespacedName::new("n", "other"), monotonic()),
            []
        );
        let mut secret = Secret::default();
        secret.metadata.resource_version = Some("9".to_owned());
        ledger.wrote(&NamespacedName::new("n", "other"), &secret, monotonic());
        assert_eq!(
            ledger.behind(&NamespacedName::new("n", "other"), monotonic()),
            []
        );
    }
}
