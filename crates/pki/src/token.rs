//! Bootstrap tokens: what lets a new machine join.

use std::{fmt, str::FromStr};

use zeroize::Zeroizing;

use crate::{Error, SecretData};

/// Namespace, in the guest, of the Secrets that make tokens valid.
pub const BOOTSTRAP_TOKEN_NAMESPACE: &str = "kube-system";

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// Bytes at or above this are skipped, so that every character is equally likely.
const FAIR_LIMIT: u8 = 252;

/// A bootstrap token `<id>.<secret>`. The id is public (it names a Secret and shows in logs); the
/// secret half is wiped when dropped and never shown.
#[derive(Clone)]
pub struct BootstrapToken {
    id: String,
    secret: Zeroizing<String>,
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({}.<redacted>)", self.id)
    }
}

impl BootstrapToken {
    /// How many random bytes to give to [`Self::from_entropy`]: with this many the chance that
    /// too few are usable is below 10⁻⁴⁰.
    pub const ENTROPY: usize = 64;

    /// Group that a token's bearer gets: kubeadm binds to it what a joining machine may do.
    pub const GROUP: &'static str = "system:bootstrappers:kubeadm:default-node-token";

    /// Draws a token from random bytes.
    pub fn from_entropy(entropy: &[u8]) -> Result<Self, Error> {
        let mut characters = entropy
            .iter()
            .filter(|byte| **byte < FAIR_LIMIT)
            .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]));
        let id: String = characters.by_ref().take(ID_LENGTH).collect();
        let secret: String = characters.take(SECRET_LENGTH).collect();
        if secret.len() < SECRET_LENGTH {
            return Err(Error::NotEnoughEntropy {
                given: entropy.len(),
            });
        }
        Ok(Self {
            id,
            secret: Zeroizing::new(secret),
        })
    }

    /// The public half.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole token, `<id>.<secret>`.
    pub fn expose(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}.{}", self.id, self.secret.as_str()))
    }

    /// Name of the Secret that makes it valid.
    pub fn secret_name(&self) -> String {
        format!("bootstrap-token-{}", self.id)
    }

    /// `data` of that Secret: valid until `expires_at` (Unix seconds), for the two uses a join
    /// needs. `description` says to people whose it is.
    pub fn to_secret(&self, expires_at: i64, description: &str) -> Result<SecretData, Error> {
        Ok(SecretData::from_iter([
            ("token-id", self.id.clone()),
            ("token-secret", self.secret.as_str().to_owned()),
            ("expiration", Self::expiration(expires_at)?),
            ("usage-bootstrap-authentication", "true".to_owned()),
            ("usage-bootstrap-signing", "true".to_owned()),
            ("auth-extra-groups", Self::GROUP.to_owned()),
            ("description", description.to_owned()),
        ]))
    }

    /// The value of the key `expiration`, RFC 3339 in UTC: to extend a token, write this alone.
    pub fn expiration(expires_at: i64) -> Result<String, Error> {
        time::OffsetDateTime::from_unix_timestamp(expires_at)
            .ok()
            .and_then(|date| {
                date.format(&time::format_description::well_known::Rfc3339)
                    .ok()
            })
            .ok_or_else(|| Error::Generation(format!("{expires_at} is no date")))
    }
}

impl FromStr for BootstrapToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = |part: &str, length| {
            part.len() == length && part.bytes().all(|byte| ALPHABET.contains(&byte))
        };
        match text.split_once('.') {
            Some((id, secret)) if fits(id, ID_LENGTH) && fits(secret, SECRET_LENGTH) => Ok(Self {
                id: id.to_owned(),
                secret: Zeroizing::new(secret.to_owned()),
            }),
            _ => Err(Error::MalformedToken),
        }
    }
}
