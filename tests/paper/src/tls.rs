//! Certificates of paper machines, signed by the authorities of their guest.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use guestcluster_pki::{CertificateAuthority, SubjectAltName, Validity};
use k8s_openapi::jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::document::FirstBoot;

/// A year, as kubeadm's.
const LIFETIME: i64 = 365 * 24 * 3600;

/// How a machine serves its two ports.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Its API server: clients may have a certificate.
    pub api: Arc<ServerConfig>,
    /// Its etcd: clients must have one.
    pub etcd: Arc<ServerConfig>,
}

impl Serving {
    /// With certificates for the names that kubeadm gives them.
    pub fn new(
        (kubernetes, etcd): (&CertificateAuthority, &CertificateAuthority),
        boot: &FirstBoot,
    ) -> anyhow::Result<Self> {
        let advertised = boot.advertise.unwrap_or(Ipv4Addr::LOCALHOST);
        let own = [
            SubjectAltName::Dns(boot.name.clone()),
            SubjectAltName::Ip(IpAddr::V4(advertised)),
            SubjectAltName::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ];
        let host = boot
            .endpoint
            .rsplit_once(':')
            .map_or(&*boot.endpoint, |(host, _)| host);
        let endpoint = match host.parse() {
            Ok(address) => SubjectAltName::Ip(address),
            Err(_) => SubjectAltName::Dns(host.to_owned()),
        };
        let services = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let services = services.map(|name| SubjectAltName::Dns(name.to_owned()));
        let all: Vec<SubjectAltName> = own
            .iter()
            .cloned()
            .chain(services)
            .chain([endpoint])
            .collect();
        Ok(Self {
            api: config(kubernetes, &all, false)?,
            etcd: config(etcd, &own, true)?,
        })
    }
}

fn config(
    authority: &CertificateAuthority,
    names: &[SubjectAltName],
    must_know: bool,
) -> anyhow::Result<Arc<ServerConfig>> {
    let validity = Validity::starting(Timestamp::now().as_second(), LIFETIME);
    let credentials = authority.issue_server(names, validity)?;
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes());
    let certificate = der(credentials.certificate.pem())?;
    let key = PrivateKeyDer::from_pem_slice(credentials.key.expose_pem().as_bytes())?;
    let mut roots = RootCertStore::empty();
    roots.add(der(authority.certificate().pem())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let clients = if must_know {
        clients.build()?
    } else {
        clients.allow_unauthenticated().build()?
    };
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate], key)?;
    Ok(Arc::new(config))
}
