//! Service-account keys, made ahead of their need.
//!
//! An RSA key takes a large part of a second of computing and nothing else in a new cluster does:
//! a cluster that is applied finds one ready. Keys wait in memory only, and few of them.

use std::sync::Arc;

use guestcluster_pki::{Error, ServiceAccountKeys, SigningAlgorithm};
use tokio::sync::{Mutex, mpsc};

/// How many keys wait or are in the making.
const READY: usize = 2;

/// Where keys come from.
#[derive(Clone, Debug)]
pub struct KeyPool {
    keys: Arc<Mutex<mpsc::Receiver<Result<ServiceAccountKeys, Error>>>>,
}

impl KeyPool {
    /// A pool, and the task that fills it. It ends when the pool is dropped, and must run for
    /// [`take`](Self::take) to return.
    pub fn new() -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(READY);
        let fill = async move {
            while let Ok(permit) = sender.reserve().await {
                // Not in a reconcile: it would hold up all others.
                let make = || ServiceAccountKeys::generate(SigningAlgorithm::Rs256);
                let Ok(key) = tokio::task::spawn_blocking(make).await else {
                    return;
                };
                permit.send(key);
            }
        };
        (
            Self {
                keys: Arc::new(Mutex::new(receiver)),
            },
            fill,
        )
    }

    /// A key that nobody else has. `None` if the process is ending.
    pub async fn take(&self) -> Option<Result<ServiceAccountKeys, Error>> {
        self.keys.lock().await.recv().await
    }
}
