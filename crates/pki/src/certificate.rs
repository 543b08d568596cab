//! Reading certificates.

use std::{fmt, net::IpAddr, str::FromStr};

use sha2::{Digest as _, Sha256};
use x509_parser::{extensions::GeneralName, prelude::*};

use crate::{Error, PrivateKey, Validity, pem};

/// A SHA-256 digest, written `sha256:<64 hex digits>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Whom a certificate names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Common name: the user, for a client of the Kubernetes API.
    pub common_name: String,
    /// Organizations: the groups, for a client of the Kubernetes API.
    pub organizations: Vec<String>,
}

/// A name or address for which a server certificate holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectAltName {
    /// A host name.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

impl FromStr for SubjectAltName {
    type Err = std::convert::Infallible;

    /// An address if it reads as one, else a host name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text
            .parse()
            .map_or_else(|_| Self::Dns(text.to_owned()), Self::Ip))
    }
}

/// One X.509 certificate: public, so it may be shown and compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pem: String,
    digest: Digest,
    public_key: Vec<u8>,
    subject: Subject,
    validity: Validity,
    names: Vec<SubjectAltName>,
    authority: bool,
}

impl Certificate {
    /// Reads exactly one certificate.
    pub fn from_pem(text: &str) -> Result<Self, Error> {
        let block = pem::single(text, "the certificate", &["CERTIFICATE"])?;
        let damaged = |error: &dyn fmt::Display| Error::DamagedCertificate(error.to_string());
        let (rest, x509) =
            X509Certificate::from_der(&block.der).map_err(|error| damaged(&error))?;
        if !rest.is_empty() {
            return Err(damaged(&"bytes follow it"));
        }
        Ok(Self {
            pem: text.to_owned(),
            digest: Digest::of(&block.der),
            public_key: x509.public_key().raw.to_vec(),
            subject: subject(&x509),
            validity: Validity {
                not_before: x509.validity().not_before.timestamp(),
                not_after: x509.validity().not_after.timestamp(),
            },
            names: names(&x509).map_err(|error| damaged(&error))?,
            authority: x509.is_ca(),
        })
    }

    /// Reads one certificate in DER, as a TLS handshake shows it.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        Self::from_pem(&pem::encode("CERTIFICATE", der))
    }

    /// The certificate in PEM, as it was given.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Digest of the whole certificate: two with one digest are the same.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Digest of the public key (SubjectPublicKeyInfo): what kubeadm's discovery compares
    /// (`caCertHashes`).
    pub fn public_key_hash(&self) -> Digest {
        Digest::of(&self.public_key)
    }

    /// Whom it names.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// From when until when it holds.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Last second at which it holds, in Unix seconds.
    pub fn not_after(&self) -> i64 {
        self.validity.not_after
    }

    /// When to renew it, in Unix seconds: see [`crate::renew_at`].
    pub fn renew_at(&self) -> i64 {
        self.validity.renew_at()
    }

    /// Host names and addresses for which it holds, in the order of the certificate.
    pub fn subject_alt_names(&self) -> &[SubjectAltName] {
        &self.names
    }

    /// Whether it may sign other certificates.
    pub fn is_authority(&self) -> bool {
        self.authority
    }

    /// Whether `key` is its private key.
    pub fn matches(&self, key: &PrivateKey) -> Result<bool, Error> {
        Ok(key.public_key_der()? == self.public_key)
    }
}

fn subject(x509: &X509Certificate<'_>) -> Subject {
    let text =
        |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().unwrap_or_default().to_owned();
    Subject {
        common_name: x509
            .subject()
            .iter_common_name()
            .next()
            .map(text)
            .unwrap_or_default(),
        organizations: x509.subject().iter_organization().map(text).collect(),
    }
}

fn names(x509: &X509Certificate<'_>) -> Result<Vec<SubjectAltName>, X509Error> {
    let Some(extension) = x509.subject_alternative_name()? else {
        return Ok(Vec::new());
    };
    Ok(extension
        .value
        .general_names
        .iter()
        .filter_map(alt_name)
        .collect())
}

/// Mail addresses and the like name no server and are left out.
fn alt_name(name: &GeneralName<'_>) -> Option<SubjectAltName> {
    match name {
        GeneralName::DNSName(host) => Some(SubjectAltName::Dns((*host).to_owned())),
        GeneralName::IPAddress(bytes) => <[u8; 4]>::try_from(*bytes)
            .map(IpAddr::from)
            .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from))
            .ok()
            .map(SubjectAltName::Ip),
        _ => None,
    }
}
