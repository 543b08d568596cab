//! Adding and removing one finalizer by a JSON patch that first tests what was observed.

use std::fmt::Debug;

use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Result, Writer};

impl Writer {
    /// Adds a finalizer to the object as observed. Does nothing, and answers `None`, if it is
    /// there already.
    ///
    /// # Errors
    /// [`Error::Changed`](crate::error::Error::Changed) if the object is another one by now or its finalizers have changed.
    pub async fn add_finalizer<K>(
        &self,
        api: &Api<K>,
        seen: &K,
        finalizer: &str,
    ) -> Result<Option<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        match addition(seen.uid().as_deref(), seen.finalizers(), finalizer) {
            Some(steps) => self.patch(api, &seen.name_any(), steps).await.map(Some),
            None => Ok(None),
        }
    }

    /// Removes a finalizer from the object as observed, which may end it. Does nothing, and
    /// answers `None`, if the finalizer is not there or the object is gone.
    ///
    /// # Errors
    /// [`Error::Changed`](crate::error::Error::Changed) if the object is another one by now or its finalizers have changed.
    pub async fn remove_finalizer<K>(
        &self,
        api: &Api<K>,
        seen: &K,
        finalizer: &str,
    ) -> Result<Option<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let Some(steps) = removal(seen.uid().as_deref(), seen.finalizers(), finalizer) else {
            return Ok(None);
        };
        match self.patch(api, &seen.name_any(), steps).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The patch that appends `finalizer`, or `None` if nothing is to be done.
fn addition(uid: Option<&str>, seen: &[String], finalizer: &str) -> Option<Value> {
    if seen.iter().any(|present| present == finalizer) {
        return None;
    }
    let mut steps = vec![test_uid(uid)];
    if seen.is_empty() {
        // An absent list tests equal to null.
        steps.push(json!({"op": "test", "path": "/metadata/finalizers", "value": null}));
        steps.push(json!({"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}));
    } else {
        // The server does not deduplicate finalizers, so the whole list is tested.
        steps.push(json!({"op": "test", "path": "/metadata/finalizers", "value": seen}));
        steps.push(json!({"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}));
    }
    Some(Value::Array(steps))
}

/// The patch that removes `finalizer`, or `None` if nothing is to be done.
fn removal(uid: Option<&str>, seen: &[String], finalizer: &str) -> Option<Value> {
    let index = seen.iter().position(|present| present == finalizer)?;
    // Removal is by index: the test keeps us from removing what someone else put there.
    let path = format!("/metadata/finalizers/{index}");
    Some(json!([
        test_uid(uid),
        {"op": "test", "path": path, "value": finalizer},
        {"op": "remove", "path": path},
    ]))
}

fn test_uid(uid: Option<&str>) -> Value {
    json!({"op": "test", "path": "/metadata/uid", "value": uid})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(finalizers: &[&str]) -> Vec<String> {
        finalizers.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_finalizer_that_is_there_is_not_added_again() {
        assert_eq!(addition(Some("u"), &list(&["a/b", "c/d"]), "c/d"), None);
    }

    #[test]
    fn the_first_finalizer_makes_the_list() {
        assert_eq!(
            addition(Some("u"), &[], "a/b"),
            Some(json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/finalizers", "value": null},
                {"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]},
            ]))
        );
    }

    #[test]
    fn removal_tests_the_place_that_it_removes() {
        assert_eq!(
            removal(Some("u"), &list(&["x/y", "a/b"]), "a/b"),
            Some(json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/finalizers/1", "value": "a/b"},
                {"op": "remove", "path": "/metadata/finalizers/1"},
            ]))
        );
        assert_eq!(removal(Some("u"), &list(&["x/y"]), "a/b"), None);
    }
}
