//! The maps of a store: objects by name, and names by the value of one label.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kube::{Resource, ResourceExt};

use super::NamespacedName;
use super::guarded::{Guarded, Unreadable};
use crate::freshness::Version;

/// An object as the watch brought it.
pub(super) enum Entry<K> {
    Readable(Arc<K>),
    /// With the value of its index label, since there is no object to ask for it.
    Unreadable {
        label: Option<String>,
        why: Unreadable,
    },
}

impl<K> Clone for Entry<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Readable(object) => Self::Readable(Arc::clone(object)),
            Self::Unreadable { label, why } => Self::Unreadable {
                label: label.clone(),
                why: why.clone(),
            },
        }
    }
}

/// What the store holds.
pub(super) struct Contents<K> {
    entries: BTreeMap<NamespacedName, Entry<K>>,
    index_label: Option<&'static str>,
    index: BTreeMap<String, BTreeSet<NamespacedName>>,
    unreadable: usize,
    /// The newest version that the stream has brought for any object of the kind.
    newest: Option<Version>,
    /// The names of a list in progress.
    listed: Option<BTreeSet<NamespacedName>>,
}

impl<K> fmt::Debug for Contents<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contents({} objects)", self.entries.len())
    }
}

impl<K> Contents<K> {
    pub(super) fn new(index_label: Option<&'static str>) -> Self {
        Self {
            entries: BTreeMap::new(),
            index_label,
            index: BTreeMap::new(),
            unreadable: 0,
            newest: None,
            listed: None,
        }
    }

    pub(super) fn get(&self, name: &NamespacedName) -> Option<Arc<K>> {
        match self.entries.get(name)? {
            Entry::Readable(object) => Some(Arc::clone(object)),
            Entry::Unreadable { .. } => None,
        }
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<K>> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Readable(object) => Some(object),
            Entry::Unreadable { .. } => None,
        })
    }

    pub(super) fn labelled(&self, value: &str) -> Vec<Arc<K>> {
        self.names(value)
            .filter_map(|name| self.get(name))
            .collect()
    }

    pub(super) fn unreadable(&self, value: &str) -> Vec<(NamespacedName, Unreadable)> {
        let unreadable = |name: &NamespacedName| match self.entries.get(name)? {
            Entry::Unreadable { why, .. } => Some((name.clone(), why.clone())),
            Entry::Readable(_) => None,
        };
        self.names(value).filter_map(unreadable).collect()
    }

    pub(super) fn unreadable_len(&self) -> usize {
        self.unreadable
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.unreadable
    }

    /// The newest version that the watch has brought. Unknown while a list comes in, since its
    /// objects are in no order of time: a newer one may arrive before an older one.
    pub(super) fn newest(&self) -> Option<&Version> {
        self.newest.as_ref().filter(|_| self.listed.is_none())
    }

    fn names(&self, value: &str) -> impl Iterator<Item = &NamespacedName> {
        self.index.get(value).into_iter().flatten()
    }
}

impl<K: Resource> Contents<K> {
    /// A new list begins. What is there stays visible until the list is complete.
    pub(super) fn begin_list(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    /// Takes in an object and answers it as kept, and what was there before under its name.
    pub(super) fn apply(&mut self, arrived: Guarded<K>) -> (Entry<K>, Option<Entry<K>>) {
        let name = NamespacedName::of(&arrived);
        let label = self.label(&arrived);
        self.note_version(&arrived);
        if let Some(listed) = &mut self.listed {
            listed.insert(name.clone());
        }
        let before = self.take(&name);
        let entry = match arrived.0 {
            Ok(object) => Entry::Readable(Arc::new(object)),
            Err(bad) => Entry::Unreadable {
                label: label.clone(),
                why: bad.why,
            },
        };
        if let Some(value) = label {
            self.index.entry(value).or_default().insert(name.clone());
        }
        self.unreadable += usize::from(matches!(entry, Entry::Unreadable { .. }));
        self.entries.insert(name, entry.clone());
        (entry, before)
    }

    /// Takes out an object that the server says is gone.
    pub(super) fn remove(&mut self, gone: &Guarded<K>) -> Option<Entry<K>> {
        self.note_version(gone);
        self.take(&NamespacedName::of(gone))
    }

    /// The list is complete: what it did not name went while nobody watched.
    pub(super) fn end_list(&mut self) -> Vec<Entry<K>> {
        let listed = self.listed.take().unwrap_or_default();
        let gone: Vec<_> = self
            .entries
            .keys()
            .filter(|name| !listed.contains(*name))
            .cloned()
            .collect();
        gone.iter().filter_map(|name| self.take(name)).collect()
    }

    fn take(&mut self, name: &NamespacedName) -> Option<Entry<K>> {
        let entry = self.entries.remove(name)?;
        let label = match &entry {
            Entry::Readable(object) => self.label(object.as_ref()),
            Entry::Unreadable { label, .. } => {
                self.unreadable -= 1;
                label.clone()
            }
        };
        if let Some(value) = label
            && let Some(names) = self.index.get_mut(&value)
        {
            names.remove(name);
            if names.is_empty() {
                self.index.remove(&value);
            }
        }
        Some(entry)
    }

    fn label<R: Resource>(&self, object: &R) -> Option<String> {
        object.labels().get(self.index_label?).cloned()
    }

    fn note_version(&mut self, object: &Guarded<K>) {
        let Some(version) = object.meta().resource_version.as_deref().map(Version::new) else {
            return;
        };
        // What cannot be compared counts as newer: the stream goes forward.
        if self
            .newest
            .as_ref()
            .is_none_or(|newest| !newest.is_at_least(&version))
        {
            self.newest = Some(version);
        }
    }
}
