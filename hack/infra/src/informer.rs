//! A local copy of all objects of one kind, with a feed of what changes in it.
//!
//! kube's own shared reflector does not tell its subscribers of deletions, and a stand-in for a
//! kubelet lives from them; this one also reports what vanished during an outage.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// How long to wait after a failed watch: an outage made by a test ends soon.
const PAUSE: Duration = Duration::from_millis(300);

/// What happened to an object.
#[derive(Debug)]
pub enum Change<K> {
    /// It is there, in this state.
    Applied(Arc<K>),
    /// It is gone; its last known state.
    Deleted(Arc<K>),
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied(object) => Self::Applied(object.clone()),
            Self::Deleted(object) => Self::Deleted(object.clone()),
        }
    }
}

/// The local copy. Clones share it.
pub struct Informer<K> {
    state: Arc<Mutex<State<K>>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
        }
    }
}

struct State<K> {
    /// By uid: an object that was made anew under its old name is another object.
    objects: HashMap<String, Arc<K>>,
    subscribers: Vec<mpsc::UnboundedSender<Change<K>>>,
}

impl<K> Informer<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Begins to watch all objects behind `api`.
    pub fn start(api: Api<K>) -> Self {
        let informer = Self::empty();
        tokio::spawn(informer.clone().follow(api));
        informer
    }

    fn empty() -> Self {
        let state = State {
            objects: HashMap::new(),
            subscribers: Vec::new(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// All objects now, and every change from here on. Objects that are there come first.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Change<K>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.lock();
        for object in state.objects.values() {
            // The receiver is in hand: this cannot fail.
            let _ = sender.send(Change::Applied(object.clone()));
        }
        state.subscribers.push(sender);
        receiver
    }

    /// The objects that `wanted` picks.
    pub fn list(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.lock()
            .objects
            .values()
            .filter(|object| wanted(object))
            .cloned()
            .collect()
    }

    /// The object with this name.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let is_it = |object: &Arc<K>| {
            let meta = object.meta();
            meta.name.as_deref() == Some(name)
                && meta.namespace.as_deref().unwrap_or_default() == namespace
        };
        self.lock()
            .objects
            .values()
            .find(|object| is_it(object))
            .cloned()
    }

    /// The object with this uid.
    pub fn get(&self, uid: &str) -> Option<Arc<K>> {
        self.lock().objects.get(uid).cloned()
    }

    async fn follow(self, api: Api<K>) {
        let mut stream = watcher(api, watcher::Config::default()).boxed();
        let mut listed = HashMap::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(mut object)) => {
                    trim(&mut object);
                    listed.insert(uid(&object), Arc::new(object));
                }
                Ok(Event::InitDone) => self.replace(std::mem::take(&mut listed)),
                Ok(Event::Apply(object)) => self.apply(object),
                Ok(Event::Delete(object)) => self.delete(&object),
                Err(error) => {
                    tracing::debug!(%error, "watch failed");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn replace(&self, listed: HashMap<String, Arc<K>>) {
        let mut state = self.lock();
        let old = std::mem::replace(&mut state.objects, listed);
        let gone: Vec<_> = old
            .into_iter()
            .filter(|(uid, _)| !state.objects.contains_key(uid))
            .map(|(_, object)| Change::Deleted(object))
            .collect();
        let there: Vec<_> = state
            .objects
            .values()
            .cloned()
            .map(Change::Applied)
            .collect();
        for change in gone.into_iter().chain(there) {
            state.tell(&change);
        }
    }

    fn apply(&self, mut object: K) {
        trim(&mut object);
        let uid = uid(&object);
        let object = Arc::new(object);
        let mut state = self.lock();
        state.objects.insert(uid, object.clone());
        state.tell(&Change::Applied(object));
    }

    fn delete(&self, object: &K) {
        let mut state = self.lock();
        state.objects.remove(&uid(object));
        state.tell(&Change::Deleted(Arc::new(object.clone())));
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> State<K> {
    fn tell(&mut self, change: &Change<K>) {
        self.subscribers
            .retain(|subscriber| subscriber.send(change.clone()).is_ok());
    }
}

/// Forgets who owns which field: it is half of an object, nothing here reads it, and a write
/// without it leaves it as it is.
fn trim<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

fn uid<K: Resource>(object: &K) -> String {
    object.meta().uid.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Change, Informer, uid};
    use k8s_openapi::api::core::v1::Pod;
    use std::sync::Arc;

    fn pod(name: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.uid = Some(format!("uid-{name}"));
        Arc::new(pod)
    }

    #[test]
    fn what_vanished_during_an_outage_is_reported_as_deleted() {
        let informer = Informer::<Pod>::empty();
        informer.replace([pod("a"), pod("b")].map(|pod| (uid(&*pod), pod)).into());
        let mut feed = informer.subscribe();
        while feed.try_recv().is_ok() {}
        informer.replace([pod("b")].map(|pod| (uid(&*pod), pod)).into());
        let Ok(Change::Deleted(gone)) = feed.try_recv() else {
            panic!("nothing was reported")
        };
        assert_eq!(gone.metadata.name.as_deref(), Some("a"));
        assert!(matches!(feed.try_recv(), Ok(Change::Applied(_))));
    }
}
