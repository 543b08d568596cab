//! A specification as a map from paths to values, and what differs between two of them.
//!
//! Worker pools go by their names, so that a path means the same whatever their order.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Path of a value, as a JSON pointer; a worker pool stands in it by name.
pub type Path = String;

/// A value that Cluster API has no place for.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Kept {
    /// The value; null where there is none.
    pub is: Value,
    /// What is read from the objects in its place; null where nothing is.
    pub read: Value,
}

/// Every scalar and list of a document. A list of pools is taken apart, any other is one value.
pub fn leaves(document: &Value) -> BTreeMap<Path, Value> {
    let mut found = BTreeMap::new();
    collect(&by_name(document.clone()).0, "", &mut found);
    found
}

fn collect(value: &Value, path: &str, found: &mut BTreeMap<Path, Value>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                collect(value, &format!("{path}/{}", escape(key)), found);
            }
        }
        Value::Null => {}
        leaf => {
            found.insert(path.to_owned(), leaf.clone());
        }
    }
}

/// Where `wanted` says something else than `read`.
pub fn difference(wanted: &Value, read: &Value) -> BTreeMap<Path, Kept> {
    let (wanted, read) = (leaves(wanted), leaves(read));
    let paths = wanted.keys().chain(read.keys());
    let at = |leaves: &BTreeMap<Path, Value>, path| leaves.get(path).cloned().unwrap_or_default();
    let pairs = paths.map(|path| {
        let kept = Kept {
            is: at(&wanted, path),
            read: at(&read, path),
        };
        (path.clone(), kept)
    });
    pairs.filter(|(_, kept)| kept.is != kept.read).collect()
}

/// Puts back what was kept. Where the objects say something else than they did, somebody has changed
/// them since, and what they say holds.
pub fn restore(read: Value, kept: &BTreeMap<Path, Kept>) -> Value {
    let (mut document, order) = by_name(read);
    for (path, kept) in kept {
        let now = document.pointer(path).cloned().unwrap_or_default();
        if now == kept.read {
            put(&mut document, path, kept.is.clone());
        }
    }
    in_order(document, &order)
}

fn put(document: &mut Value, path: &str, value: Value) {
    let Some((parents, last)) = path.rsplit_once('/') else {
        return;
    };
    let mut place = document;
    for key in parents.split('/').skip(1) {
        if !place.is_object() {
            return;
        }
        place = &mut place[unescape(key)];
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
    }
    let Some(fields) = place.as_object_mut() else {
        return;
    };
    if value.is_null() {
        fields.remove(&unescape(last));
    } else {
        fields.insert(unescape(last), value);
    }
}

/// Pools by name, and their order.
fn by_name(mut document: Value) -> (Value, Vec<String>) {
    let Some(Value::Array(pools)) = document.get_mut("workers").map(Value::take) else {
        return (document, Vec::new());
    };
    let name = |pool: &Value| pool["name"].as_str().unwrap_or_default().to_owned();
    let order = pools.iter().map(name).collect();
    let named: Map<_, _> = pools.into_iter().map(|pool| (name(&pool), pool)).collect();
    document["workers"] = Value::Object(named);
    (document, order)
}

fn in_order(mut document: Value, order: &[String]) -> Value {
    if let Some(Value::Object(mut named)) = document.get_mut("workers").map(Value::take) {
        let pools = order.iter().filter_map(|name| named.remove(name));
        document["workers"] = pools.collect();
    }
    document
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn unescape(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

/// A path as people write it: `spec.workers[general].machine.cpu`.
pub fn shown(path: &str) -> String {
    let mut text = String::from("spec");
    let mut is_pool = false;
    for key in path.split('/').skip(1).map(unescape) {
        // Writing to a String cannot fail.
        let _ = if is_pool || key.contains(['.', '/']) {
            write!(text, "[{key}]")
        } else {
            write!(text, ".{key}")
        };
        is_pool = key == "workers" && text == "spec.workers";
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_comes_back_unless_the_objects_say_something_else_by_now() {
        let wanted = json!({ "a": 1, "workers": [
            { "name": "y", "labels": { "x/y": "1" } }, { "name": "x", "b": [1] },
        ]});
        let read = json!({ "workers": [{ "name": "y", "c": 1 }, { "name": "x", "b": [2] }] });
        let kept = difference(&wanted, &read);
        assert_eq!(kept.len(), 4);
        assert_eq!(restore(read.clone(), &kept), wanted);
        let mut edited = read;
        edited["workers"][1]["b"] = json!([3]);
        assert_eq!(restore(edited, &kept)["workers"][1]["b"], json!([3]));
    }

    #[test]
    fn paths_are_shown_as_people_write_them() {
        assert_eq!(
            shown("/workers/general/labels/example.com~1a"),
            "spec.workers[general].labels[example.com/a]"
        );
        assert_eq!(shown("/deletion/disks"), "spec.deletion.disks");
    }
}
