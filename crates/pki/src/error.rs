//! What can be wrong with key material.

/// Why material was refused or could not be made.
///
/// Messages name the item and never contain any part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A Secret lacks one of the keys that its format requires.
    #[error("the Secret has no key `{0}`")]
    MissingSecretKey(&'static str),
    /// The text is not PEM, or holds a block of another kind.
    #[error("{item} is not a PEM block of the expected kind ({expected})")]
    NotPem {
        /// What was being read.
        item: &'static str,
        /// The PEM labels that would do.
        expected: &'static str,
    },
    /// More than one certificate where exactly one must be: kubeadm's signer breaks on bundles.
    #[error("{item} holds {found} PEM blocks, give exactly one")]
    SeveralBlocks {
        /// What was being read.
        item: &'static str,
        /// How many blocks were there.
        found: usize,
    },
    /// The PEM block does not decode as an X.509 certificate.
    #[error("the certificate is damaged: {0}")]
    DamagedCertificate(String),
    /// The private key does not decode, is inconsistent, or is of a kind that cannot be used
    /// (usable: RSA of 2048 to 4096 bits, ECDSA P-256 and P-384, Ed25519).
    #[error("the private key is damaged or of an unsupported kind")]
    UnusableKey,
    /// Certificate (or public key) and private key do not belong together.
    #[error("the private key does not belong to the {0}")]
    KeyMismatch(&'static str),
    /// The certificate may not sign other certificates.
    #[error("the certificate is not a certificate authority (basic constraint CA is not set)")]
    NotAnAuthority,
    /// A certificate would be over before it begins, for example because its authority is.
    #[error("the validity is empty: it would begin at {not_before} and end at {not_after}")]
    EmptyValidity {
        /// Begin, in Unix seconds.
        not_before: i64,
        /// End, in Unix seconds.
        not_after: i64,
    },
    /// Too few usable bytes were given to draw a token from.
    #[error("a bootstrap token needs more entropy than the {given} bytes given")]
    NotEnoughEntropy {
        /// How many bytes were given.
        given: usize,
    },
    /// Not of the form `[a-z0-9]{6}.[a-z0-9]{16}`.
    #[error("a bootstrap token must have the form `abcdef.0123456789abcdef`")]
    MalformedToken,
    /// A name that may not stand in a kubeconfig.
    #[error("`{0}` is not a name of letters, digits, `-` and `.`")]
    MalformedName(String),
    /// A server address that may not stand in a kubeconfig.
    #[error("`{0}` is not an address of the form https://host:port")]
    MalformedServer(String),
    /// A kubeconfig without the parts that are needed, or in another form.
    #[error("the kubeconfig is not usable: {0}")]
    MalformedKubeconfig(String),
    /// The library refused to generate or sign.
    #[error("cannot generate or sign: {0}")]
    Generation(String),
}
