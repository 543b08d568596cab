//! Connections to guests of Cluster API, by the kubeconfigs that their control planes publish.
//!
//! They are read as data: see [`guestcluster_shell::kubeconfig`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use guestcluster_bridge::capi::KUBECONFIG_KEY;
use guestcluster_shell::{NamespacedName, kubeconfig};
use kube::Client;

use crate::doors::impatient;
use crate::error::Error;
use crate::secrets::SecretReader;

/// Clients of guests, each kept while its kubeconfig stays the same.
pub struct Guests {
    secrets: SecretReader,
    clients: Mutex<BTreeMap<NamespacedName, (String, Client)>>,
}

impl std::fmt::Debug for Guests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guests").finish_non_exhaustive()
    }
}

impl Guests {
    /// No client yet; kubeconfigs are read through `secrets`.
    pub fn new(secrets: SecretReader) -> Self {
        Self {
            secrets,
            clients: Mutex::default(),
        }
    }

    /// A client of a Cluster's guest. `secret` is the name of its kubeconfig, `version` the resource
    /// version last seen.
    ///
    /// # Errors
    /// If the Secret cannot be read or its kubeconfig cannot be used.
    pub async fn client(
        &self,
        cluster: &NamespacedName,
        (secret, version): (&str, &str),
    ) -> Result<Client, Error> {
        if let Some((known, client)) = self.lock().get(cluster)
            && known == version
        {
            return Ok(client.clone());
        }
        let data = self.secrets.read(&cluster.namespace, secret).await?;
        let unusable = |reason: String| Error::Connection {
            url: format!("the guest of Secret {secret}"),
            reason,
        };
        let value = data.iter().find(|(key, _)| *key == KUBECONFIG_KEY);
        let text = value.and_then(|(_, value)| std::str::from_utf8(value).ok());
        let text =
            text.ok_or_else(|| unusable(format!("it has no text under {KUBECONFIG_KEY}")))?;
        let client = connect(text).await.map_err(unusable)?;
        self.lock()
            .insert(cluster.clone(), (version.to_owned(), client.clone()));
        Ok(client)
    }

    /// Forgets a Cluster that is gone.
    pub fn forget(&self, cluster: &NamespacedName) {
        self.lock().remove(cluster);
    }

    /// Each change of the map is one call, so a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, (String, Client)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(text: &str) -> Result<Client, String> {
    let config = kubeconfig::config(text).await?;
    impatient(config).map_err(|error| error.to_string())
}
