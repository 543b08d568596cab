//! One watch of one kind, kept as a store with an index, and heard by whoever it concerns.
//!
//! ```text
//! API server ─ watch ─▶ slim ─▶ Store ─▶ on_change(object)
//!                                 ▲
//!                        get, labelled, each (from anywhere, at any time)
//! ```
//!
//! # Guarantees
//! - The store is changed before the listener hears of it, so whoever is woken sees the new state.
//! - The listener hears of every object that came, changed or went, also of those that went while
//!   the watch was broken: after a new list the store is compared with what it held. (kube's own
//!   reflector swaps its content silently, and its shared streams never tell of a deletion.)
//! - Store and index change together, under one lock.
//! - An object that our type cannot read neither stops the watch nor looks absent:
//!   [`Store::unreadable`] names it until it can be read or is gone.
//! - Kinds of which only the metadata is wanted (`PartialObjectMeta<K>`) are also asked for
//!   without content: no Secret crosses the wire.
//!
//! # Assumes
//! - Somebody drives the [`Feed`]; a store whose feed is dropped stays as it is.
//!
//! # Caveats
//! - A store is behind the server by as much as the watch is. Before planning on it, ask
//!   [`Ledger`](crate::freshness::Ledger) whether it holds our own last writes.

mod contents;
mod feed;
mod guarded;

#[cfg(test)]
pub(crate) use feed::tests as feed_tests;
pub use feed::{Feed, Watch};
pub use guarded::Unreadable;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use tokio::sync::watch;

use contents::Contents;

use crate::freshness::Version;

/// A namespace and a name; for objects outside namespaces the namespace is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// The namespace, or nothing.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

impl NamespacedName {
    /// A name in a namespace.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Where an object is.
    pub fn of<K: Resource>(object: &K) -> Self {
        Self::of_meta(object.meta())
    }

    fn of_meta(meta: &ObjectMeta) -> Self {
        let text = |field: &Option<String>| field.as_deref().unwrap_or_default().into();
        Self {
            namespace: text(&meta.namespace),
            name: text(&meta.name),
        }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// What a watch has brought so far. Clones share it.
#[derive(Debug)]
pub struct Store<K> {
    contents: Arc<RwLock<Contents<K>>>,
    ready: watch::Receiver<bool>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            contents: Arc::clone(&self.contents),
            ready: self.ready.clone(),
        }
    }
}

impl<K> Store<K> {
    /// The object of that name, if the store has it.
    pub fn get(&self, name: &NamespacedName) -> Option<Arc<K>> {
        self.read().get(name)
    }

    /// The objects whose index label has this value, by name. Costs as much as there are such
    /// objects. Nothing if the watch keeps no index.
    pub fn labelled(&self, value: &str) -> Vec<Arc<K>> {
        self.read().labelled(value)
    }

    /// The objects that our type cannot read and whose index label has this value, with the
    /// reason. Whoever counts on knowing all objects of that value should not act before this is
    /// empty.
    pub fn unreadable(&self, value: &str) -> Vec<(NamespacedName, Unreadable)> {
        self.read().unreadable(value)
    }

    /// How many objects cannot be read at all, of whatever label.
    pub fn unreadable_len(&self) -> usize {
        self.read().unreadable_len()
    }

    /// Folds over all objects in the order of their names, without copying them. The store is
    /// locked meanwhile: `step` must be quick and must not ask the store.
    pub fn fold<T>(&self, initial: T, step: impl FnMut(T, &Arc<K>) -> T) -> T {
        self.read().objects().fold(initial, step)
    }

    /// All objects, by name. Clones as many pointers as there are objects: for one label use
    /// [`labelled`](Self::labelled).
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().objects().cloned().collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list is complete.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Waits until the first list is complete; `false` if the feed was dropped before.
    pub async fn wait_until_ready(&self) -> bool {
        self.ready.clone().wait_for(|ready| *ready).await.is_ok()
    }

    /// An object and the newest version of its kind that the watch has brought, at one moment.
    pub(crate) fn copy_and_newest(
        &self,
        name: &NamespacedName,
    ) -> (Option<Arc<K>>, Option<Version>) {
        let contents = self.read();
        (contents.get(name), contents.newest().cloned())
    }

    /// A panic elsewhere cannot leave the maps half changed in a way that reading them is wrong:
    /// each change is one call of [`Contents`].
    fn read(&self) -> RwLockReadGuard<'_, Contents<K>> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents<K>> {
        self.contents
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Anything that can be waited for until it is filled.
pub trait Readiness: Send + Sync {
    /// Whether the first list is complete.
    fn is_ready(&self) -> bool;
}

impl<K: Send + Sync> Readiness for Store<K> {
    fn is_ready(&self) -> bool {
        Store::is_ready(self)
    }
}

/// Drops what every object carries and nobody here reads: `managedFields`, about half of the
/// metadata, and the annotation in which kubectl keeps a copy of the whole object.
pub fn slim_meta<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
    if object.meta().annotations.is_some() {
        let annotations = object.annotations_mut();
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        if annotations.is_empty() {
            object.meta_mut().annotations = None;
        }
    }
}
