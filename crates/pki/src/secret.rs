//! The formats of Secrets that hold key material.

use std::{collections::BTreeMap, fmt};

use zeroize::Zeroizing;

use crate::Error;

/// `type` of the Secrets that Cluster API and this project keep for a cluster.
pub const CLUSTER_SECRET_TYPE: &str = "cluster.x-k8s.io/secret";

/// `type` of the Secret in a guest that makes a bootstrap token valid.
pub const BOOTSTRAP_TOKEN_SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";

/// Key of a certificate (for service-account keys: of the public key).
pub const TLS_CERTIFICATE_KEY: &str = "tls.crt";

/// Key of a private key.
pub const TLS_PRIVATE_KEY_KEY: &str = "tls.key";

/// Key of a kubeconfig.
pub const KUBECONFIG_KEY: &str = "value";

/// What follows the cluster's name in the name of its kubeconfig Secret: `prod-kubeconfig`.
pub const KUBECONFIG_SECRET_SUFFIX: &str = "kubeconfig";

/// `data` of a Secret: values are wiped when dropped and never shown.
#[derive(Clone, Default)]
pub struct SecretData(BTreeMap<String, Zeroizing<Vec<u8>>>);

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretData").field(&self.0.keys()).finish()
    }
}

impl SecretData {
    /// Keys and values, in order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_slice()))
    }

    /// The value of one key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key).map(|value| value.as_slice())
    }

    /// Two PEM texts under the keys of a TLS Secret: a certificate or public key, and a private key.
    pub(crate) fn from_pair(public: &str, private: &str) -> Self {
        Self::from_iter([
            (TLS_CERTIFICATE_KEY, public),
            (TLS_PRIVATE_KEY_KEY, private),
        ])
    }

    /// The two texts of such a Secret.
    pub(crate) fn pair(&self) -> Result<(&str, &str), Error> {
        Ok((
            self.text(TLS_CERTIFICATE_KEY)?,
            self.text(TLS_PRIVATE_KEY_KEY)?,
        ))
    }

    /// The text of a key that must be there.
    pub(crate) fn text(&self, key: &'static str) -> Result<&str, Error> {
        let value = self.get(key).ok_or(Error::MissingSecretKey(key))?;
        std::str::from_utf8(value).map_err(|_| Error::NotPem {
            item: key,
            expected: "text",
        })
    }
}

impl<K: Into<String>, V: Into<Vec<u8>>> FromIterator<(K, V)> for SecretData {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(k, v)| (k.into(), Zeroizing::new(v.into())))
                .collect(),
        )
    }
}
