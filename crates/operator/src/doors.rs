//! Connections to guests: to their API servers and to the members of their etcd.
//!
//! The operator knows a guest's authorities from their Secrets. For each it mints a client
//! certificate of a short life, keeps it in memory, and mints anew when the Secret has changed or
//! the certificate nears its end.
//!
//! # Guarantees
//! - A connection is trusted by the guest's own authority alone.
//! - What is kept for a guest without traffic is one certificate with its key, about 2 KiB:
//!   connections that were not used for [`IDLE`] are closed, and there are never more than
//!   [`OPEN`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use guestcluster_pki::{
    Certificate, CertificateAuthority, ClientCredentials, ClientProfile, OPERATOR_LIFETIME,
    Validity,
};
use guestcluster_planner::action::Authority;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::clock::{Instant, monotonic, now};
use kube::config::AuthInfo;
use kube::{Client, Config};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use secrecy::SecretString;

use crate::error::Error;
use crate::secrets::SecretReader;

/// How long an unused connection is kept: longer than the pause between two looks at a guest that
/// is being built, shorter than the pause between two looks at one that is not.
const IDLE: Duration = Duration::from_secs(20);
/// How many connections are kept at most.
const OPEN: usize = 64;
/// How long a connection may take to come about. Guests are in the same data centre.
const CONNECT: Duration = Duration::from_secs(2);
/// How long a guest may be silent within an answer.
const SILENCE: Duration = Duration::from_secs(3);

/// Where to connect, and whose authority vouches for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Door {
    /// The cluster.
    pub cluster: NamespacedName,
    /// The authority that signs both ends.
    pub authority: Authority,
    /// Resource version of the authority's Secret as last seen.
    pub secret_version: String,
    /// `https://host:port`.
    pub url: String,
    /// The name that the server's certificate must carry, if it is not the URL's host.
    pub server_name: Option<String>,
}

/// Who we are at a guest.
#[derive(Clone)]
struct Identity {
    secret_version: String,
    renew_at: i64,
    root: Vec<u8>,
    certificate: String,
    key: SecretString,
}

struct Open {
    client: Client,
    used: Instant,
}

/// Opens connections to guests and keeps those in use.
pub struct Doors {
    secrets: SecretReader,
    identities: Mutex<BTreeMap<(NamespacedName, Authority), Identity>>,
    open: Mutex<BTreeMap<Door, Open>>,
}

impl std::fmt::Debug for Doors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doors")
            .field("open", &lock(&self.open).len())
            .finish_non_exhaustive()
    }
}

impl Doors {
    /// No connection yet; authorities are read through `secrets`.
    pub fn new(secrets: SecretReader) -> Self {
        Self {
            secrets,
            identities: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// A client for a door. Does not connect yet.
    pub async fn open(&self, door: &Door) -> Result<Client, Error> {
        let used = monotonic();
        self.close_idle(used);
        let identity = self.identity(door).await?;
        if let Some(open) = lock(&self.open).get_mut(door) {
            open.used = used;
            return Ok(open.client.clone());
        }
        let client = connect(door, identity)?;
        lock(&self.open).insert(
            door.clone(),
            Open {
                client: client.clone(),
                used,
            },
        );
        Ok(client)
    }

    /// The certificate that the server behind a door shows, in a handshake of its own.
    pub async fn certificate(&self, door: &Door) -> Result<Certificate, Error> {
        let identity = self.identity(door).await?;
        let shown = handshake(door, identity.root);
        let shown = tokio::time::timeout(CONNECT, shown).await;
        shown.map_err(|_elapsed| unusable(door, &"no answer"))?
    }

    /// Forgets a cluster that is gone.
    pub fn forget(&self, cluster: &NamespacedName) {
        lock(&self.identities).retain(|(owner, _), _| owner != cluster);
        lock(&self.open).retain(|door, _| door.cluster != *cluster);
    }

    async fn identity(&self, door: &Door) -> Result<Identity, Error> {
        let key = (door.cluster.clone(), door.authority);
        let time = now().as_second();
        if let Some(identity) = lock(&self.identities).get(&key)
            && identity.secret_version == door.secret_version
            && time < identity.renew_at
        {
            return Ok(identity.clone());
        }
        let identity = self.mint(door, time).await?;
        lock(&self.identities).insert(key, identity.clone());
        // Whoever was connected with the former certificate connects anew.
        lock(&self.open)
            .retain(|open, _| open.cluster != door.cluster || open.authority != door.authority);
        Ok(identity)
    }

    async fn mint(&self, door: &Door, time: i64) -> Result<Identity, Error> {
        let secret = door.authority.secret(&door.cluster.name);
        let data = self.secrets.read(&door.cluster.namespace, &secret).await?;
        let damaged = |source| Error::DamagedSecret {
            secret: secret.clone(),
            source,
        };
        let authority = CertificateAuthority::from_secret(&data).map_err(damaged)?;
        let profile = match door.authority {
            Authority::Etcd => ClientProfile::Etcd,
            Authority::Kubernetes | Authority::FrontProxy | Authority::ServiceAccount => {
                ClientProfile::Operator
            }
        };
        let validity = Validity::starting(time, OPERATOR_LIFETIME);
        let credentials = authority.issue_client(profile, validity).map_err(damaged)?;
        let root = CertificateDer::from_pem_slice(authority.certificate().pem().as_bytes())
            .map_err(|error| unusable(door, &error))?;
        Ok(Identity {
            secret_version: door.secret_version.clone(),
            renew_at: credentials.certificate.renew_at(),
            root: root.to_vec(),
            certificate: STANDARD.encode(credentials.certificate.pem()),
            key: encoded_key(&credentials),
        })
    }

    fn close_idle(&self, time: Instant) {
        let mut open = lock(&self.open);
        open.retain(|_, open| time.saturating_duration_since(open.used) < IDLE);
        while open.len() >= OPEN {
            let oldest = open
                .iter()
                .min_by_key(|(_, open)| open.used)
                .map(|(door, _)| door.clone());
            let Some(oldest) = oldest else { break };
            open.remove(&oldest);
        }
    }
}

fn encoded_key(credentials: &ClientCredentials) -> SecretString {
    SecretString::from(STANDARD.encode(credentials.key.expose_pem()))
}

fn connect(door: &Door, identity: Identity) -> Result<Client, Error> {
    let url = door.url.parse().map_err(|error| unusable(door, &error))?;
    let mut config = Config::new(url);
    config.root_cert = Some(vec![identity.root]);
    config.auth_info = AuthInfo {
        client_certificate_data: Some(identity.certificate),
        client_key_data: Some(identity.key),
        ..AuthInfo::default()
    };
    config.tls_server_name.clone_from(&door.server_name);
    impatient(config).map_err(|error| unusable(door, &error))
}

/// A client that waits for nobody: a guest that is away is an answer in itself, and asking again is
/// the planner's decision.
///
/// # Errors
/// If the configuration cannot be used.
pub fn impatient(mut config: Config) -> kube::Result<Client> {
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.default_retry = false;
    config.disable_compression = true;
    Client::try_from(config)
}

async fn handshake(door: &Door, root: Vec<u8>) -> Result<Certificate, Error> {
    let unusable = |error: &dyn std::fmt::Display| unusable(door, error);
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from(root))
        .map_err(|error| unusable(&error))?;
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let url: http::Uri = door.url.parse().map_err(|error| unusable(&error))?;
    let (host, port) = (url.host().unwrap_or_default(), url.port_u16());
    let name = ServerName::try_from(door.server_name.as_deref().unwrap_or(host).to_owned())
        .map_err(|error| unusable(&error))?;
    let stream = tokio::net::TcpStream::connect((host, port.unwrap_or(443)))
        .await
        .map_err(|error| unusable(&error))?;
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let tls = connector
        .connect(name, stream)
        .await
        .map_err(|error| unusable(&error))?;
    let shown = tls.get_ref().1.peer_certificates().unwrap_or_default();
    let shown = shown.first().ok_or_else(|| unusable(&"no certificate"))?;
    Certificate::from_der(shown).map_err(|error| unusable(&error))
}

fn unusable(door: &Door, error: &dyn std::fmt::Display) -> Error {
    Error::Connection {
        url: door.url.clone(),
        reason: error.to_string(),
    }
}

/// Each change of a map is one call, so a panic elsewhere leaves it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
