//! The key pair that signs service-account tokens.

use crate::{Error, PrivateKey, SecretData, pem};

/// How service-account tokens are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// RSA 2048, as kubeadm and Cluster API generate by default: the one algorithm that every
    /// consumer of the tokens outside the guest accepts (OpenID Connect requires it). Generating
    /// a key takes 0.1 to 0.6 seconds of CPU: run it where blocking is allowed.
    Rs256,
    /// ECDSA P-256: generated in well under a millisecond, and as good within the guest; some
    /// clouds do not accept such tokens for their workload identity.
    Es256,
}

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

    /// A new pair from the operating system's generator.
    pub fn generate(algorithm: SigningAlgorithm) -> Result<Self, Error> {
        let private = match algorithm {
            SigningAlgorithm::Rs256 => PrivateKey::generate_rsa()?,
            SigningAlgorithm::Es256 => PrivateKey::generate_ecdsa()?,
        };
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
        let (public, private) = data.pair()?;
        Self::from_pem(public, private)
    }

    /// `data` of its Secret.
    pub fn to_secret(&self) -> SecretData {
        SecretData::from_pair(&self.public, self.private.expose_pem())
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
