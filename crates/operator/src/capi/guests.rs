//! Connections to guests of Cluster API, by the kubeconfigs that their control planes publish.
//!
//! A kubeconfig is read as data: one that names a program to run or a file to read is refused, since
//! whoever may write that Secret could have the operator run or read anything.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use guestcluster_shell::NamespacedName;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::doors::impatient;
use crate::error::Error;
use crate::secrets::SecretReader;

/// Key of the kubeconfig in its Secret, by Cluster API's contract.
const KEY: &str = "value";
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
        let value = data.iter().find(|(key, _)| *key == KEY);
        let text = value.and_then(|(_, value)| std::str::from_utf8(value).ok());
        let text = text.ok_or_else(|| unusable(format!("it has no text under {KEY}")))?;
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
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| error.to_string())?;
    refuse(&kubeconfig)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.map_err(|error| error.to_string())?;
    impatient(config).map_err(|error| error.to_string())
}

/// Only what is written in the kubeconfig itself is used.
fn refuse(kubeconfig: &Kubeconfig) -> Result<(), String> {
    let users = kubeconfig
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref());
    let clusters = kubeconfig
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref());
    let foreign = users
        .filter_map(of_user)
        .chain(clusters.filter_map(of_cluster))
        .next();
    foreign.map_or(Ok(()), |field| {
        Err(format!(
            "its kubeconfig uses {field}, which is not followed: write certificates, keys or a token \
             into it"
        ))
    })
}

fn of_user(user: &AuthInfo) -> Option<&'static str> {
    [
        ("exec", user.exec.is_some()),
        ("auth-provider", user.auth_provider.is_some()),
        ("tokenFile", user.token_file.is_some()),
        ("client-certificate", user.client_certificate.is_some()),
        ("client-key", user.client_key.is_some()),
    ]
    .into_iter()
    .find_map(|(field, is_used)| is_used.then_some(field))
}

fn of_cluster(cluster: &Cluster) -> Option<&'static str> {
    [
        (
            "certificate-authority",
            cluster.certificate_authority.is_some(),
        ),
        ("proxy-url", cluster.proxy_url.is_some()),
    ]
    .into_iter()
    .find_map(|(field, is_used)| is_used.then_some(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str, cluster: &str) -> Kubeconfig {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n\
             - name: c\n  context: {{ cluster: k, user: u }}\n\
             clusters:\n- name: k\n  cluster: {{ server: 'https://127.0.0.1:1'{cluster} }}\n\
             users:\n- name: u\n  user: {{ {user} }}\n"
        );
        Kubeconfig::from_yaml(&text).unwrap()
    }

    #[test]
    fn a_kubeconfig_that_runs_or_reads_something_is_refused() {
        assert_eq!(refuse(&kubeconfig("token: abc", "")), Ok(()));
        for (user, cluster, named) in [
            (
                "exec: { command: sh, apiVersion: client.authentication.k8s.io/v1 }",
                "",
                "exec",
            ),
            (
                "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
                "",
                "tokenFile",
            ),
            ("client-key: /etc/key", "", "client-key"),
            ("client-certificate: /etc/crt", "", "client-certificate"),
            (
                "token: abc",
                ", certificate-authority: /etc/ca",
                "certificate-authority",
            ),
            ("token: abc", ", proxy-url: 'http://somewhere'", "proxy-url"),
        ] {
            let why = refuse(&kubeconfig(user, cluster)).unwrap_err();
            assert!(why.contains(named), "{named}: {why}");
        }
    }
}
