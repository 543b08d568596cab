//! An object that may not fit our type, so that one such object does not stop a whole watch.
//!
//! kube has a wrapper of this kind, `DeserializeGuard`; under it a metadata-only kind is asked for
//! in full, which would bring the content of every Secret.

use std::borrow::Cow;

use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::DynamicResourceScope;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// An object of which only the metadata could be read.
#[derive(Clone, Debug)]
pub(super) struct Bad {
    meta: Box<ObjectMeta>,
    pub(super) why: Unreadable,
}

/// An object, or why it is none.
#[derive(Clone, Debug)]
pub(super) struct Guarded<K>(pub(super) Result<K, Bad>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        // About half of the metadata; taken here so that it is not even decoded.
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
        let read = match K::deserialize(&object) {
            Ok(object) => Ok(object),
            Err(error) => {
                // Without readable metadata there is no object to speak of.
                let meta = object.get("metadata").unwrap_or(&Value::Null);
                let meta = Box::new(ObjectMeta::deserialize(meta).map_err(D::Error::custom)?);
                Err(Bad {
                    meta,
                    why: Unreadable(error.to_string()),
                })
            }
        };
        Ok(Self(read))
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    // Whether there is a namespace in the URL is decided by the `Api` that is wrapped.
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|bad| &*bad.meta, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(bad) => &mut bad.meta,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Secret};
    use kube::ResourceExt;
    use kube::core::PartialObjectMeta;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_does_not_fit_keeps_its_name_and_says_why() {
        let pod: Guarded<Pod> = serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "p", "labels": {"l": "v"}},
            "spec": {"containers": 3},
        }))
        .unwrap();
        assert_eq!(
            (pod.name_any(), pod.labels()["l"].as_str()),
            ("p".to_owned(), "v")
        );
        assert!(pod.0.is_err_and(|bad| bad.why.to_string().contains('3')));
    }

    #[test]
    fn a_metadata_only_kind_stays_metadata_only() {
        assert!(Guarded::<PartialObjectMeta<Secret>>::metadata_api());
        assert!(!Guarded::<Secret>::metadata_api());
    }
}
