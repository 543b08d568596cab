//! Kubernetes versions that can be rendered.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use serde::{Serialize, Serializer};

use crate::Error;

/// A supported Kubernetes release, `v1.<minor>.<patch>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    minor: u16,
    patch: u16,
}

impl Version {
    /// Minors whose kubeadm accepts what is rendered: all of them read `v1beta4` and know etcd's
    /// `peer-skip-client-san-verification` under that name.
    pub const SUPPORTED_MINORS: RangeInclusive<u16> = 34..=37;

    /// The 36 of v1.36.3.
    pub const fn minor(self) -> u16 {
        self.minor
    }

    /// The 3 of v1.36.3.
    pub const fn patch(self) -> u16 {
        self.patch
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1.{}.{}", self.minor, self.patch)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unsupported = || Error::UnsupportedVersion(text.to_owned());
        let rest = text.strip_prefix("v1.").ok_or_else(unsupported)?;
        let (minor, patch) = rest.split_once('.').ok_or_else(unsupported)?;
        let number = |digits: &str| {
            let canonical = digits == "0" || !digits.starts_with(['0', '+']);
            digits.parse().ok().filter(|_| canonical)
        };
        match (number(minor), number(patch)) {
            (Some(minor), Some(patch)) if Self::SUPPORTED_MINORS.contains(&minor) => {
                Ok(Self { minor, patch })
            }
            _ => Err(unsupported()),
        }
    }
}
