//! Status by server-side apply, written only when it says something new.

use std::fmt::Debug;

use kube::api::Patch;
use kube::core::object::HasStatus;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Result, Writer, call};
use crate::error::Error;

/// The times in a status that alone are no reason to write it.
pub const TIMES: &[&str] = &[
    "lastTransitionTime",
    "lastProbeTime",
    "lastHeartbeatTime",
    "lastUpdateTime",
];

/// What became of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusWrite<K> {
    /// It said what the object's status says already; nothing was sent.
    Unchanged,
    /// It was written; this is the object as the server answered it.
    Written(Box<K>),
}

impl Writer {
    /// Applies `status` to the object as observed, unless the status it has equals it but for
    /// [`TIMES`].
    ///
    /// # Assumes
    /// We are the only writer of this status: a field that another manager holds in it would make
    /// it differ for ever.
    pub async fn apply_status<K>(
        &self,
        api: &Api<K>,
        seen: &K,
        status: &K::Status,
    ) -> Result<StatusWrite<K>>
    where
        K: Resource<DynamicType = ()> + HasStatus + Clone + DeserializeOwned + Debug,
        K::Status: Serialize,
    {
        let name = seen.name_any();
        let call = call::<K>("apply the status of", &name);
        let value = |status: &K::Status| {
            serde_json::to_value(status).map_err(|error| Error::Malformed {
                call: call.clone(),
                reason: error.to_string(),
            })
        };
        let after = value(status)?;
        if let Some(before) = seen.status()
            && equal_ignoring(&value(before)?, &after, TIMES)
        {
            return Ok(StatusWrite::Unchanged);
        }
        let body = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": name, "namespace": seen.namespace()},
            "status": after,
        });
        let patch = Patch::Apply(&body);
        let written = self
            .within(call, api.patch_status(&name, &self.apply_params(), &patch))
            .await?;
        Ok(StatusWrite::Written(Box::new(written)))
    }
}

/// Whether two JSON values say the same when the members named in `ignored` are left out, at any
/// depth. A member that is `null` equals one that is absent, as for the API server.
pub fn equal_ignoring(one: &Value, other: &Value, ignored: &[&str]) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            covers(one, other, ignored) && covers(other, one, ignored)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| equal_ignoring(one, other, ignored))
        }
        _ => one == other,
    }
}

/// Whether each member of `one` that counts has its equal in `other`.
fn covers(one: &Map<String, Value>, other: &Map<String, Value>, ignored: &[&str]) -> bool {
    one.iter()
        .filter(|(key, _)| !ignored.contains(&key.as_str()))
        .all(|(key, value)| equal_ignoring(value, other.get(key).unwrap_or(&Value::Null), ignored))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_later_transition_time(
        json!({"conditions": [{"type": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        json!({"conditions": [{"type": "Ready", "lastTransitionTime": "2026-01-02T00:00:00Z"}]}),
        true
    )]
    #[case::a_transition_time_that_was_absent(
        json!({"conditions": [{"type": "Ready"}]}),
        json!({"conditions": [{"type": "Ready", "lastTransitionTime": "2026-01-02T00:00:00Z"}]}),
        true
    )]
    #[case::another_message(json!({"message": "a"}), json!({"message": "b"}), false)]
    #[case::a_field_that_went_away(json!({"a": 1, "b": 2}), json!({"a": 1}), false)]
    #[case::a_field_that_came(json!({"a": 1}), json!({"a": 1, "b": 2}), false)]
    #[case::null_and_absent(json!({"a": null}), json!({}), true)]
    #[case::another_order(json!([1, 2]), json!([2, 1]), false)]
    #[case::a_longer_list(json!([1]), json!([1, 2]), false)]
    fn a_status_is_new_only_when_it_says_something_new(
        #[case] before: Value,
        #[case] after: Value,
        #[case] equal: bool,
    ) {
        assert_eq!(equal_ignoring(&before, &after, TIMES), equal);
    }
}
