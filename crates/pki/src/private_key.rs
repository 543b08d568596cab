//! Private keys, which are never shown and are wiped when dropped.

use std::fmt;

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rsa::pkcs8::EncodePrivateKey;
use zeroize::Zeroizing;

use crate::{Error, pem};

const LABELS: &[&str] = &["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"];

/// Bits of a generated service-account key: what kubeadm generates, and the smallest that
/// verifiers of RS256 tokens accept.
const RSA_BITS: usize = 2048;

/// DER of the algorithm identifiers that PKCS#8 puts around the older key formats.
const RSA_ENCRYPTION: &[u8] = &[
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
const EC_P256: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
    0xce, 0x3d, 0x03, 0x01, 0x07,
];
const EC_P384: &[u8] = &[
    0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04,
    0x00, 0x22,
];

/// A private key in PEM, checked to be usable: PKCS#8, SEC1 (`EC PRIVATE KEY`) or PKCS#1
/// (`RSA PRIVATE KEY`). The text is kept as it was given, so that a user's own Secret is passed
/// on unchanged.
#[derive(Clone)]
pub struct PrivateKey {
    pem: Zeroizing<String>,
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(<redacted>)")
    }
}

impl PrivateKey {
    /// Reads a key and checks that it can be used to sign.
    pub fn from_pem(text: &str) -> Result<Self, Error> {
        let key = Self {
            pem: Zeroizing::new(text.to_owned()),
        };
        key.key_pair()?;
        Ok(key)
    }

    /// The key itself, in PEM. The name is long on purpose: whoever calls it holds a secret.
    pub fn expose_pem(&self) -> &str {
        &self.pem
    }

    /// The public half in PEM (`PUBLIC KEY`), as Kubernetes wants service-account keys.
    pub fn public_key_pem(&self) -> Result<String, Error> {
        Ok(pem::encode("PUBLIC KEY", &self.public_key_der()?).to_string())
    }

    /// DER of the public half (SubjectPublicKeyInfo).
    pub(crate) fn public_key_der(&self) -> Result<Vec<u8>, Error> {
        Ok(self.key_pair()?.subject_public_key_info())
    }

    /// A new ECDSA P-256 key from the operating system's generator.
    pub(crate) fn generate_ecdsa() -> Result<Self, Error> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .map_err(|error| Error::Generation(error.to_string()))?;
        let pair = Zeroizing::new(pair);
        Ok(Self {
            pem: pem::encode("PRIVATE KEY", pair.serialized_der()),
        })
    }

    /// A new RSA key from the operating system's generator.
    pub(crate) fn generate_rsa() -> Result<Self, Error> {
        let key = rsa::RsaPrivateKey::new(&mut rand::rngs::OsRng, RSA_BITS)
            .map_err(|error| Error::Generation(error.to_string()))?;
        let der = key
            .to_pkcs8_der()
            .map_err(|error| Error::Generation(error.to_string()))?;
        Ok(Self {
            pem: pem::encode("PRIVATE KEY", der.as_bytes()),
        })
    }

    /// The key in the library's form. Decoded on each use: this happens a few times in the life
    /// of a cluster, and so there is one copy of the secret less in memory.
    pub(crate) fn key_pair(&self) -> Result<Zeroizing<KeyPair>, Error> {
        let block = pem::single(&self.pem, "the private key", LABELS)?;
        let candidates = match block.label.as_str() {
            "RSA PRIVATE KEY" => vec![pkcs8(RSA_ENCRYPTION, &block.der)],
            "EC PRIVATE KEY" => vec![pkcs8(EC_P256, &block.der), pkcs8(EC_P384, &block.der)],
            _ => vec![block.der],
        };
        candidates
            .iter()
            .find_map(|der| KeyPair::try_from(der.as_slice()).ok())
            .map(Zeroizing::new)
            .ok_or(Error::UnusableKey)
    }
}

/// Puts a PKCS#8 envelope (RFC 5208) around a PKCS#1 or SEC1 key: the signing library reads
/// nothing else, and Cluster API and OpenSSL write the older forms.
fn pkcs8(algorithm: &[u8], key: &[u8]) -> Zeroizing<Vec<u8>> {
    const SEQUENCE: u8 = 0x30;
    const OCTET_STRING: u8 = 0x04;
    const VERSION_ZERO: &[u8] = &[0x02, 0x01, 0x00];

    let octets = element(OCTET_STRING, &[key]);
    element(SEQUENCE, &[VERSION_ZERO, algorithm, &octets])
}

/// One DER element: tag, length, parts.
fn element(tag: u8, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let bytes = length.to_be_bytes();
    let significant = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let mut der = Zeroizing::new(Vec::with_capacity(length + 2 + bytes.len()));
    der.push(tag);
    match (
        length,
        u8::try_from(length),
        u8::try_from(significant.len()),
    ) {
        (0..0x80, Ok(short), _) => der.push(short),
        (_, _, Ok(count)) => {
            der.push(0x80 | count);
            der.extend_from_slice(significant);
        }
        (_, _, Err(_)) => {}
    }
    for part in parts {
        der.extend_from_slice(part);
    }
    der
}
