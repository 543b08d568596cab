//! From a watch to its store and its listener.

use std::fmt::Debug;
use std::sync::{Arc, RwLock};

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::warn;

use super::contents::{Contents, Entry};
use super::guarded::Guarded;
use super::{NamespacedName, Store, slim_meta};

/// Objects per page of a list: enough to keep lists quick, few enough that a page of the largest
/// objects stays small in memory.
const PAGE: u32 = 100;

/// What is to be watched, and how it is kept.
#[derive(Debug)]
pub struct Watch<K> {
    api: Api<K>,
    config: watcher::Config,
    index_label: Option<&'static str>,
    slim: fn(&mut K),
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// All objects that `api` covers.
    pub fn new(api: Api<K>) -> Self {
        let config = watcher::Config::default().page_size(PAGE);
        Self {
            api,
            config,
            index_label: None,
            slim: |_| {},
        }
    }

    /// Only objects that this label selector matches.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// Only objects that this field selector matches.
    #[must_use]
    pub fn fields(mut self, selector: &str) -> Self {
        self.config = self.config.fields(selector);
        self
    }

    /// Keeps an index by the value of this label, for [`Store::labelled`].
    #[must_use]
    pub fn indexed_by(mut self, label: &'static str) -> Self {
        self.index_label = Some(label);
        self
    }

    /// Takes from each object what nobody reads before it is kept, besides what
    /// [`slim_meta`] takes from all.
    #[must_use]
    pub fn slim(mut self, slim: fn(&mut K)) -> Self {
        self.slim = slim;
        self
    }

    /// Receives the first list as a stream instead of pages, if `on`: less memory on both sides,
    /// for API servers with the WatchList feature.
    #[must_use]
    pub fn streaming_lists(mut self, on: bool) -> Self {
        if on {
            self.config = self.config.streaming_lists();
        }
        self
    }

    /// The store, empty for now, and the feed that fills it.
    pub fn split(self) -> (Store<K>, Feed<K>) {
        let (store, intake) = Intake::new(self.index_label, self.slim);
        (
            store,
            Feed {
                api: self.api,
                config: self.config,
                intake,
            },
        )
    }
}

/// Fills a [`Store`] for as long as it is driven.
#[derive(Debug)]
pub struct Feed<K> {
    api: Api<K>,
    config: watcher::Config,
    intake: Intake<K>,
}

impl<K> Feed<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Watches for ever, waiting longer and longer between failed attempts, and tells
    /// `on_change` of each object that came, changed or went. Where the index label of an object
    /// has changed, the object as it was is told of too, so that both sides hear of it.
    ///
    /// Objects that cannot be read are not told of; they are logged and found in the store.
    pub async fn run(self, mut on_change: impl FnMut(&K) + Send) {
        let events = watcher(guarded(self.api), self.config).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.intake.take(event, &mut on_change),
                // Denied or refused for good is what an operator of this program must see; the
                // rest is the ordinary end of a connection.
                Err(error) => warn!(kind = %K::kind(&()), %error, "watch interrupted"),
            }
        }
    }
}

/// Where events become contents.
#[derive(Debug)]
pub(crate) struct Intake<K> {
    store: Store<K>,
    is_ready: watch::Sender<bool>,
    index_label: Option<&'static str>,
    slim: fn(&mut K),
}

impl<K: Resource<DynamicType = ()>> Intake<K> {
    pub(crate) fn new(index_label: Option<&'static str>, slim: fn(&mut K)) -> (Store<K>, Self) {
        let (is_ready, ready) = watch::channel(false);
        let contents = Arc::new(RwLock::new(Contents::new(index_label)));
        let store = Store { contents, ready };
        (
            store.clone(),
            Self {
                store,
                is_ready,
                index_label,
                slim,
            },
        )
    }

    /// Changes the store, then tells the listener.
    fn take(&self, event: Event<Guarded<K>>, on_change: &mut impl FnMut(&K)) {
        match event {
            Event::Init => self.store.write().begin_list(),
            Event::InitApply(object) | Event::Apply(object) => self.apply(object, on_change),
            Event::Delete(object) => {
                let before = self.store.write().remove(&object);
                match object.0 {
                    // The last state, which the server sends along, rather than the one we had.
                    Ok(object) => on_change(&object),
                    Err(_) => tell(before.as_ref(), on_change),
                }
            }
            Event::InitDone => {
                let gone = self.store.write().end_list();
                for entry in &gone {
                    tell(Some(entry), on_change);
                }
                self.is_ready.send_replace(true);
            }
        }
    }

    fn apply(&self, mut object: Guarded<K>, on_change: &mut impl FnMut(&K)) {
        slim_meta(&mut object);
        if let Ok(object) = &mut object.0 {
            (self.slim)(object);
        }
        let name = NamespacedName::of(&object);
        let (after, before) = self.store.write().apply(object);
        if let Entry::Unreadable { why, .. } = &after {
            warn!(kind = %K::kind(&()), object = %name, %why, "object cannot be read");
        }
        if self.has_moved(before.as_ref(), &after) {
            tell(before.as_ref(), on_change);
        }
        tell(Some(&after), on_change);
    }

    /// Whether an object went from one value of the index label to another, or became
    /// unreadable: then only its former state can tell whom else the change concerns.
    fn has_moved(&self, before: Option<&Entry<K>>, after: &Entry<K>) -> bool {
        let Some(label) = self.index_label else {
            return false;
        };
        match (before, after) {
            (Some(Entry::Readable(before)), Entry::Readable(after)) => {
                before.labels().get(label) != after.labels().get(label)
            }
            (Some(Entry::Readable(_)), Entry::Unreadable { .. }) => true,
            (Some(Entry::Unreadable { .. }) | None, _) => false,
        }
    }
}

fn tell<K>(entry: Option<&Entry<K>>, on_change: &mut impl FnMut(&K)) {
    if let Some(Entry::Readable(object)) = entry {
        on_change(object);
    }
}

/// The same objects through the wrapper that tolerates those which cannot be read.
fn guarded<K: Resource<DynamicType = ()>>(api: Api<K>) -> Api<Guarded<K>> {
    match api.namespace().map(str::to_owned) {
        Some(namespace) => Api::namespaced_with(api.into_client(), &namespace, &()),
        None => Api::all_with(api.into_client(), &()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
