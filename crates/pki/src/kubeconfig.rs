//! Kubeconfigs: written for users, read back to see until when they hold.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::{Certificate, ClientCredentials, Error, KUBECONFIG_KEY, PrivateKey, SecretData};

/// What goes into a kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubeconfig<'a> {
    /// Name of the cluster; the user becomes `<cluster>-admin`, the context
    /// `<cluster>-admin@<cluster>`, as Cluster API names them.
    pub cluster: &'a str,
    /// `https://host:port`.
    pub server: &'a str,
    /// Authority that signed the API servers.
    pub authority: &'a Certificate,
    /// Who connects.
    pub credentials: &'a ClientCredentials,
}

/// The text of a kubeconfig: holds a private key, so it is never shown.
#[derive(Clone)]
pub struct KubeconfigDocument(Zeroizing<String>);

impl fmt::Debug for KubeconfigDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KubeconfigDocument(<redacted>)")
    }
}

impl KubeconfigDocument {
    /// The document itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `data` of its Secret.
    pub fn to_secret(&self) -> SecretData {
        SecretData::from_iter([(KUBECONFIG_KEY, self.expose())])
    }
}

impl Kubeconfig<'_> {
    /// The YAML document.
    pub fn render(&self) -> Result<KubeconfigDocument, Error> {
        check_name(self.cluster)?;
        check_server(self.server)?;
        let (cluster, server) = (self.cluster, self.server);
        let authority = STANDARD.encode(self.authority.pem());
        let certificate = STANDARD.encode(self.credentials.certificate.pem());
        let key = Zeroizing::new(STANDARD.encode(self.credentials.key.expose_pem()));
        Ok(KubeconfigDocument(Zeroizing::new(format!(
            "apiVersion: v1
kind: Config
clusters:
- name: \"{cluster}\"
  cluster:
    server: \"{server}\"
    certificate-authority-data: {authority}
users:
- name: \"{cluster}-admin\"
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: \"{cluster}-admin@{cluster}\"
  context:
    cluster: \"{cluster}\"
    user: \"{cluster}-admin\"
current-context: \"{cluster}-admin@{cluster}\"
preferences: {{}}
",
            key = key.as_str()
        ))))
    }
}

/// What a kubeconfig says, without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigFacts {
    /// `https://host:port`.
    pub server: String,
    /// Authority that signed the API servers.
    pub authority: Certificate,
    /// Who connects, and until when.
    pub client: Certificate,
}

impl KubeconfigFacts {
    /// Reads the current context of a kubeconfig whose certificates are inline, and checks that
    /// key and certificate belong together.
    pub fn read(text: &str) -> Result<Self, Error> {
        let bad = |why: &str| Error::MalformedKubeconfig(why.to_owned());
        let file: File =
            serde_saphyr::from_str(text).map_err(|_| bad("it is not YAML of a Config"))?;
        let context = find(&file.contexts, &file.current_context)
            .ok_or_else(|| bad("its current context is missing"))?;
        let cluster = find(&file.clusters, &context.cluster)
            .ok_or_else(|| bad("the cluster of its context is missing"))?;
        let user = find(&file.users, &context.user)
            .ok_or_else(|| bad("the user of its context is missing"))?;
        let client = Certificate::from_pem(&decode(&user.client_certificate_data)?)?;
        if !client.matches(&PrivateKey::from_pem(&decode(&user.client_key_data)?)?)? {
            return Err(Error::KeyMismatch("client certificate"));
        }
        Ok(Self {
            server: cluster.server.clone(),
            authority: Certificate::from_pem(&decode(&cluster.certificate_authority_data)?)?,
            client,
        })
    }

    /// Reads the kubeconfig in a Secret.
    pub fn from_secret(data: &SecretData) -> Result<Self, Error> {
        Self::read(data.text(KUBECONFIG_KEY)?)
    }
}

fn decode(data: &str) -> Result<Zeroizing<String>, Error> {
    let bad = || Error::MalformedKubeconfig("a certificate or key in it is not base64".to_owned());
    let bytes = STANDARD.decode(data).map_err(|_| bad())?;
    String::from_utf8(bytes)
        .map(Zeroizing::new)
        .map_err(|_| bad())
}

fn check_name(name: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    if !name.is_empty() && name.chars().all(fits) {
        Ok(())
    } else {
        Err(Error::MalformedName(name.to_owned()))
    }
}

fn check_server(server: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
    match server.strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && rest.chars().all(fits) => Ok(()),
        _ => Err(Error::MalformedServer(server.to_owned())),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    clusters: Vec<Named<Cluster>>,
    users: Vec<Named<User>>,
    contexts: Vec<Named<Context>>,
    current_context: String,
}

/// The three lists have one shape; only the key of the value differs.
#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "cluster", alias = "user", alias = "context")]
    value: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: String,
    client_key_data: Zeroizing<String>,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

fn find<'a, T>(list: &'a [Named<T>], name: &str) -> Option<&'a T> {
    list.iter()
        .find(|entry| entry.name == name)
        .map(|entry| &entry.value)
}
