//! The provider as a part of the process: its watches, its loops, and what is shown of its health.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use guestcluster_bridge::serve::Dialect;
use guestcluster_foreign::core::HostNode;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::apply::Writer;
use guestcluster_shell::backoff::Jitter;
use guestcluster_shell::health::Health;
use guestcluster_shell::queue::{Limits, Loop, Queue};
use guestcluster_shell::shutdown::Shutdown;
use guestcluster_shell::store::Store;
use kube::Client;
use tracing::{info, warn};

use super::templates::dialect;
use super::{Context, Guests, Memories, Queues, Rival, put_up};
use crate::leader::Leader;
use crate::run::{DEBOUNCE, SILENCE};
use crate::secrets::SecretReader;
use crate::wiring::filled;

/// How often it is asked whether the provider's kinds are there.
const LOOK: Duration = Duration::from_secs(2);
/// What the provider needs of the rest of the process.
pub struct Parts {
    /// The cluster in which everything is.
    pub client: Client,
    /// Hosts.
    pub hosts: Store<HostNode>,
    /// Reads Secrets.
    pub secrets: SecretReader,
    /// Writes objects, status, and in guests.
    pub writers: [Writer; 3],
    /// Whether this replica leads.
    pub leader: Leader,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// Why the provider does not work yet, for people. Clones share it.
#[derive(Clone, Debug, Default)]
struct Obstacle(Arc<Mutex<Option<String>>>);

impl Obstacle {
    fn set(&self, why: Option<&str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why.map(str::to_owned);
    }

    fn get(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Serves Cluster API until the end.
pub async fn serve(parts: Parts, health: &Health, shutdown: &Shutdown) {
    let (obstacle, rival) = (Obstacle::default(), Rival::default());
    let (shown, other) = (obstacle.clone(), rival.clone());
    health.check("capk-provider", move || {
        shown.get().or_else(|| other.obstacle()).map_or(Ok(()), Err)
    });
    let found = tokio::select! {
        dialect = wait_for_kinds(&parts.client, &obstacle) => dialect,
        _ = shutdown.requested() => return,
    };
    info!(schema = ?found, "serving Cluster API");
    let watch = rival.clone().watch(parts.client.clone());
    let queues = Queues {
        clusters: Queue::new(DEBOUNCE),
        templates: Queue::new(DEBOUNCE),
    };
    let (stores, watches) = put_up(&parts.client, &queues, parts.hosts);
    let [writer, status_writer, guest_calls] = parts.writers;
    let context = Context {
        dialect: found,
        ledger: stores.ledger(),
        stores,
        memories: Memories::default(),
        writer,
        status_writer,
        guest_calls,
        guests: Guests::new(parts.secrets.clone()),
        secrets: parts.secrets,
        rival,
        leader: parts.leader,
        client: parts.client,
    };
    let feeds = futures::future::join_all(watches.feeds);
    let gates = watches.gates;
    let work = async {
        obstacle.set(Some(
            "the first lists of Cluster API's kinds are not complete",
        ));
        filled(&gates).await;
        obstacle.set(None);
        visit(&context, queues, health, shutdown).await;
    };
    tokio::select! {
        // Of the three only the work ends, when it is told to.
        _ = feeds => {}
        () = watch => {}
        () = work => {}
    }
}

/// Waits until the API server knows the provider's kinds, and tells in which schema.
async fn wait_for_kinds(client: &Client, obstacle: &Obstacle) -> Dialect {
    loop {
        match dialect(client).await {
            Ok(Some(found)) => return found,
            Ok(None) => obstacle.set(Some(
                "the kinds of Cluster API Provider KubeVirt are not installed: apply its \
                 CustomResourceDefinitions, or switch --capk-provider off",
            )),
            Err(error) => {
                warn!(%error, "the provider's kinds are not known yet");
                obstacle.set(Some("the API server does not tell which kinds there are"));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn visit(context: &Context, queues: Queues, health: &Health, shutdown: &Shutdown) {
    let jitter = || Jitter::from_seed(rand::random());
    let clusters = Loop::new(queues.clusters, Limits::default(), jitter())
        .pulse(health.pulse("capk-provider", SILENCE));
    let templates = Loop::new(queues.templates, Limits::default(), jitter());
    let visit = |key: NamespacedName| async move { context.reconcile(&key).await };
    let measure = |key: NamespacedName| async move { context.measure(&key).await };
    tokio::join!(
        clusters.run(shutdown, visit),
        templates.run(shutdown, measure)
    );
}
