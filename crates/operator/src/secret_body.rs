//! Secrets as JSON, from metadata that a plan gives and data that only the operator has.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use guestcluster_pki::SecretData;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A Secret to be written. Its data is encoded only while the request is built.
#[derive(Debug)]
pub struct SecretBody<'a> {
    metadata: Value,
    type_: &'static str,
    data: &'a SecretData,
}

/// A Secret of a type, with metadata, that holds `data`.
pub fn secret_body<'a>(
    metadata: Value,
    type_: &'static str,
    data: &'a SecretData,
) -> SecretBody<'a> {
    SecretBody {
        metadata,
        type_,
        data,
    }
}

impl Serialize for SecretBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("apiVersion", "v1")?;
        map.serialize_entry("kind", "Secret")?;
        map.serialize_entry("metadata", &self.metadata)?;
        map.serialize_entry("type", self.type_)?;
        map.serialize_entry("data", &Data(self.data))?;
        map.end()
    }
}

struct Data<'a>(&'a SecretData);

impl Serialize for Data<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.0
                .iter()
                .map(|(key, value)| (key, STANDARD.encode(value))),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_carries_its_data_in_base64() {
        let data = SecretData::from_iter([("value", "words")]);
        let body = secret_body(json!({ "name": "a" }), "Opaque", &data);
        assert_eq!(
            serde_json::to_value(&body).unwrap(),
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": { "name": "a" },
                "type": "Opaque",
                "data": { "value": "d29yZHM=" },
            })
        );
    }
}
