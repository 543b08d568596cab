//! Reading Secrets live, one at a time, when an action or a connection needs their content. No
//! store ever holds it.

use guestcluster_pki::SecretData;
use guestcluster_shell::apply::Writer;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::error::Error;

/// Reads the content of Secrets in the infrastructure cluster.
#[derive(Clone)]
pub struct SecretReader {
    client: Client,
    calls: Writer,
}

impl std::fmt::Debug for SecretReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretReader")
    }
}

impl SecretReader {
    /// Reads through `client`, each call under the writer's timeout.
    pub fn new(client: Client, calls: Writer) -> Self {
        Self { client, calls }
    }

    /// `data` of a Secret, which is wiped when dropped.
    ///
    /// # Errors
    /// [`Error::NoSecret`] if there is none of that name.
    pub async fn read(&self, namespace: &str, name: &str) -> Result<SecretData, Error> {
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let secret = self
            .calls
            .read(&api, name)
            .await?
            .ok_or_else(|| Error::NoSecret(name.to_owned()))?;
        // The bytes are moved, not copied: what is wiped is what was decoded.
        Ok(secret
            .data
            .into_iter()
            .flatten()
            .map(|(key, value)| (key, value.0))
            .collect())
    }
}
