//! How the two versions of Cluster API's kinds write the same thing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::capi;

/// A version of Cluster API's own kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiVersion {
    /// For Cluster API before v1.11, and as long as it is served.
    V1Beta1,
    /// For Cluster API v1.11 and newer.
    #[default]
    V1Beta2,
}

impl ApiVersion {
    /// As objects say it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }

    pub(super) fn of(self, group: &str) -> String {
        let version = if group == capi::INFRASTRUCTURE {
            "v1alpha1"
        } else {
            self.as_str()
        };
        format!("{group}/{version}")
    }

    /// A reference to an object in the same namespace.
    pub(super) fn reference(self, (group, kind): (&str, &str), name: &str) -> Value {
        match self {
            Self::V1Beta1 => json!({ "apiVersion": self.of(group), "kind": kind, "name": name }),
            Self::V1Beta2 => json!({ "apiGroup": group, "kind": kind, "name": name }),
        }
    }

    /// Arguments of a program.
    pub(super) fn arguments(self, map: &BTreeMap<String, String>) -> Value {
        let pair = |(name, value)| json!({ "name": name, "value": value });
        match self {
            Self::V1Beta1 => json!(map),
            Self::V1Beta2 => map.iter().map(pair).collect(),
        }
    }

    /// A span of time under a key, whose name tells the unit in v1beta2.
    pub(super) fn seconds(self, key: &str, seconds: i64) -> (String, Value) {
        match self {
            Self::V1Beta1 => (key.to_owned(), json!(format!("{seconds}s"))),
            Self::V1Beta2 => (format!("{key}Seconds"), json!(seconds)),
        }
    }
}

/// First digits of the digest of a document.
pub(super) fn digest(document: &Value) -> String {
    let mut digits = String::new();
    for byte in Sha256::digest(document.to_string().as_bytes())
        .iter()
        .take(4)
    {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
