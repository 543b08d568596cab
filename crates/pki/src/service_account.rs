//! The key pair that signs service-account tokens.

use crate::{Error, PrivateKey, SecretData, TLS_CERTIFICATE_KEY, TLS_PRIVATE_KEY_KEY, pem};

/// Signs and checks the tokens of a guest's service accounts. Not a certificate: the Secret's
/// `tls.crt` holds the bare public key.
#[derive(Clone, Debug)]
pub struct ServiceAccountKeys {
    public: String,
    private: PrivateKey,
}

impl ServiceAccountKeys {
    /// What follows the cluster's name in the Secret's name: `prod-sa`.
    pub const SECRET_SUFFIX: &'static str = "sa";

    /// A new RSA 2048 pair from the operating system's generator. RSA and not ECDSA, because
    /// some clouds' workload identity accepts RS256 tokens only. Takes up to a second of CPU:
    /// run it where blocking is allowed.
    pub fn generate() -> Result<Self, Error> {
        let private = PrivateKey::generate_rsa()?;
        Ok(Self {
            public: private.public_key_pem()?,
            private,
        })
    }

    /// A pair that exists; both halves must belong together.
    pub fn from_pem(public: &str, private: &str) -> Result<Self, Error> {
        let key = PrivateKey::from_pem(private)?;
        let block = pem::single(public, "the public key", &["PUBLIC KEY"])?;
        if *block.der != key.public_key_der()? {
            return Err(Error::KeyMismatch("public key"));
        }
        Ok(Self {
            public: public.to_owned(),
            private: key,
        })
    }

    /// A pair from its Secret, which a user may have brought.
    pub fn from_secret(data: &SecretData) -> Result<Self, Error> {
        Self::from_pem(
            data.text(TLS_CERTIFICATE_KEY)?,
            data.text(TLS_PRIVATE_KEY_KEY)?,
        )
    }

    /// `data` of its Secret.
    pub fn to_secret(&self) -> SecretData {
        SecretData::from_iter([
            (TLS_CERTIFICATE_KEY, self.public.as_str()),
            (TLS_PRIVATE_KEY_KEY, self.private.expose_pem()),
        ])
    }

    /// The public half in PEM.
    pub fn public_pem(&self) -> &str {
        &self.public
    }

    /// The private half.
    pub fn private(&self) -> &PrivateKey {
        &self.private
    }
}
