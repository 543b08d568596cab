//! From keys, time and what exists: certificates, kubeconfigs and bootstrap tokens.
//!
//! A guest cluster has its own public-key infrastructure: three certificate authorities and one
//! service-account key pair ([`ClusterPki`]), kept in Secrets with Cluster API's names and
//! formats ([`SecretData`]), so that other tools find them and a user may bring their own.
//! Everything else is minted from those when it is needed: client certificates
//! ([`CertificateAuthority::issue_client`]), kubeconfigs ([`Kubeconfig`]) and bootstrap tokens
//! ([`BootstrapToken`]).
//!
//! # Guarantees
//! - Nothing here reads a clock: every time is an argument, in seconds since the Unix epoch.
//! - Private key material is wiped from memory when dropped, and `Debug` never shows it.
//! - Damaged or mismatching material is refused with an [`Error`] that names what is wrong.
//!
//! # Caveats
//! Functions named `generate…` and `issue…` draw keys and signature nonces from the operating
//! system's generator, because the certificate library offers no other way. Two calls therefore
//! never give equal bytes; compare decoded fields instead.

mod authority;
mod certificate;
mod client;
mod cluster;
mod error;
mod kubeconfig;
mod pem;
mod private_key;
mod secret;
mod service_account;
mod token;
mod validity;

pub use authority::{Authority, CertificateAuthority};
pub use certificate::{Certificate, Digest, Subject, SubjectAltName};
pub use client::{ClientCredentials, ClientProfile};
pub use cluster::ClusterPki;
pub use error::Error;
pub use kubeconfig::{Kubeconfig, KubeconfigDocument, KubeconfigFacts};
pub use private_key::PrivateKey;
pub use secret::{
    BOOTSTRAP_TOKEN_SECRET_TYPE, CLUSTER_SECRET_TYPE, KUBECONFIG_KEY, KUBECONFIG_SECRET_SUFFIX,
    SecretData, TLS_CERTIFICATE_KEY, TLS_PRIVATE_KEY_KEY,
};
pub use service_account::{ServiceAccountKeys, SigningAlgorithm};
pub use token::{BOOTSTRAP_TOKEN_NAMESPACE, BootstrapToken};
pub use validity::{
    ADMIN_LIFETIME, AUTHORITY_LIFETIME, BACKDATE, OPERATOR_LIFETIME, Validity, renew_at,
};
