//! The objects of one guest's API, and what its API server does with them. Nothing is validated:
//! what is stated is kept and told again.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::json_patch;
use crate::reply::Reply;
use crate::request::{Place, Request};

/// The objects by their keys.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    all: BTreeMap<String, Value>,
    version: u64,
}

impl Objects {
    /// The object at a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.all.get(key)
    }

    /// All objects whose key begins so.
    pub fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let range = self.all.range(prefix.to_owned()..);
        range.take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Keeps an object as it is stated, with what the server adds.
    pub fn put(&mut self, key: &str, mut object: Value) -> &Value {
        self.version += 1;
        // What is as if it were not stated is left out.
        let spec = object.get_mut("spec").and_then(Value::as_object_mut);
        if let Some(spec) = spec.filter(|spec| spec.get("unschedulable") == Some(&json!(false))) {
            spec.remove("unschedulable");
        }
        let before = self.all.get(key).map(|object| object["metadata"].clone());
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.version.to_string());
        let before = before.unwrap_or_default();
        if before["uid"].is_string() {
            metadata["uid"] = before["uid"].clone();
            metadata["creationTimestamp"] = before["creationTimestamp"].clone();
        } else {
            metadata["uid"] = json!(uid());
            metadata["creationTimestamp"] = json!(now().to_string());
        }
        self.all.insert(key.to_owned(), object);
        &self.all[key]
    }

    /// Changes an object, if it is there.
    pub fn change(&mut self, key: &str, change: impl FnOnce(&mut Value)) {
        let Some(before) = self.all.get(key) else {
            return;
        };
        let mut object = before.clone();
        change(&mut object);
        if object != *before {
            self.put(key, object);
        }
    }

    /// Forgets an object.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.version += 1;
        self.all.remove(key)
    }

    /// Answers a request about objects.
    pub fn answer(&mut self, request: &Request) -> Reply {
        let Some(place) = request.place() else {
            return not_found("", "");
        };
        let reply = match (&*request.method, &place.name, place.subresource.as_deref()) {
            ("GET", Some(name), None) => self.read(&place, name),
            ("GET", None, _) => self.list(&place, request),
            ("POST", None, _) => self.create(&place, request),
            ("POST", Some(name), Some("eviction")) => self.evict(&place, name, request),
            ("PATCH", Some(name), None) => self.patch(&place, name, request),
            ("DELETE", Some(name), None) => self.delete(&place, name, &request.body),
            _ => Reply::refusal(405, "MethodNotAllowed", "the paper guest does not do this"),
        };
        match reply {
            Reply::Json(status, body) if request.wants_metadata() && status < 300 => {
                Reply::Json(status, metadata_alone(body))
            }
            other => other,
        }
    }

    fn read(&self, place: &Place, name: &str) -> Reply {
        match self.get(&place.key(name)) {
            Some(object) => Reply::Json(200, object.clone()),
            None => not_found(&place.resource, name),
        }
    }

    fn list(&self, place: &Place, request: &Request) -> Reply {
        let fields = request.parameter("fieldSelector").unwrap_or_default();
        let labels = request.parameter("labelSelector").unwrap_or_default();
        // Of all namespaces, if none is named.
        let middle = format!("/{}/", place.resource);
        let prefix = match place.namespace {
            Some(_) => place.prefix(),
            None => format!("{}/", place.version),
        };
        let is_of_kind = |key: &str| {
            let rest = key.strip_prefix(&prefix).unwrap_or_default();
            place.namespace.is_some()
                || format!("/{rest}").starts_with(&middle)
                || (rest.starts_with("namespaces/") && rest.contains(&middle))
        };
        let items: Vec<Value> = self
            .under(&prefix)
            .filter(|(key, _)| is_of_kind(key))
            .filter(|(_, object)| matches(object, fields, field))
            .filter(|(_, object)| matches(object, labels, label))
            .map(|(_, object)| without_type(object))
            .collect();
        let version = place.version.trim_start_matches("/apis/");
        let list = json!({
            "kind": format!("{}List", place.kind()),
            "apiVersion": version.trim_start_matches("/api/"),
            "metadata": { "resourceVersion": self.version.to_string() },
            "items": items,
        });
        Reply::Json(200, list)
    }

    fn create(&mut self, place: &Place, request: &Request) -> Reply {
        let name = request.body["metadata"]["name"]
            .as_str()
            .unwrap_or_default();
        let key = place.key(name);
        if self.all.contains_key(&key) {
            let message = format!("{} \"{name}\" already exists", place.resource);
            return Reply::refusal(409, "AlreadyExists", message);
        }
        Reply::Json(201, self.put(&key, request.body.clone()).clone())
    }

    fn patch(&mut self, place: &Place, name: &str, request: &Request) -> Reply {
        let key = place.key(name);
        let before = self.all.get(&key).cloned();
        let changed = match (before, &*request.content_type) {
            (None, "application/apply-patch+yaml") => {
                return Reply::Json(201, self.put(&key, request.body.clone()).clone());
            }
            (None, _) => return not_found(&place.resource, name),
            (Some(before), "application/json-patch+json") => {
                let Ok(changed) = json_patch::apply(&before, &request.body) else {
                    let message = "the server rejected our request due to an error in our request";
                    return Reply::refusal(422, "Invalid", message);
                };
                changed
            }
            // An apply of ours states all that we ever stated, so that nothing is to be removed.
            (Some(before), _) => merged(before, &request.body),
        };
        if Some(&changed) != self.all.get(&key) {
            self.put(&key, changed);
        }
        Reply::Json(200, self.all[&key].clone())
    }

    fn delete(&mut self, place: &Place, name: &str, options: &Value) -> Reply {
        let key = place.key(name);
        let Some(object) = self.all.get(&key) else {
            return not_found(&place.resource, name);
        };
        let uid = object["metadata"]["uid"].clone();
        if let Some(refusal) = precondition(place, name, (options, &uid)) {
            return refusal;
        }
        self.remove(&key);
        let details = json!({ "name": name, "kind": place.resource, "uid": uid });
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details,
        });
        Reply::Json(200, status)
    }

    fn evict(&mut self, place: &Place, name: &str, request: &Request) -> Reply {
        let pod = Place {
            subresource: None,
            ..place.clone()
        };
        match self.delete(&pod, name, &request.body["deleteOptions"]) {
            Reply::Json(200, _) => Reply::Json(
                201,
                json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "code": 201,
                }),
            ),
            refusal => refusal,
        }
    }
}

fn precondition(place: &Place, name: &str, (options, uid): (&Value, &Value)) -> Option<Reply> {
    let wanted = options["preconditions"]["uid"].as_str()?;
    let found = uid.as_str().unwrap_or_default();
    (wanted != found).then(|| {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": the UID in the precondition ({wanted}) \
             does not match the UID in record ({found})",
            place.resource
        );
        Reply::refusal(409, "Conflict", message)
    })
}

fn not_found(resource: &str, name: &str) -> Reply {
    let message = format!("{resource} \"{name}\" not found");
    Reply::refusal(404, "NotFound", message)
}

/// Lays `extra` over `base`, member by member; lists are replaced.
fn merged(mut base: Value, extra: &Value) -> Value {
    match (&mut base, extra) {
        (Value::Object(base), Value::Object(extra)) => {
            for (key, value) in extra {
                let before = base.remove(key).unwrap_or_default();
                base.insert(key.clone(), merged(before, value));
            }
        }
        (base, extra) => *base = extra.clone(),
    }
    base
}

/// Items of a list do not say their kind.
fn without_type(object: &Value) -> Value {
    let mut item = object.clone();
    if let Some(item) = item.as_object_mut() {
        item.remove("kind");
        item.remove("apiVersion");
    }
    item
}

fn metadata_alone(mut body: Value) -> Value {
    if body["kind"] == "Status" {
        return body;
    }
    let bare = |object: &Value| {
        json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"],
        })
    };
    let Some(items) = body.get_mut("items").and_then(Value::as_array_mut) else {
        return bare(&body);
    };
    for item in items {
        *item = bare(item);
    }
    body["kind"] = json!("PartialObjectMetadataList");
    body["apiVersion"] = json!("meta.k8s.io/v1");
    body
}

fn matches(object: &Value, selector: &str, read: fn(&Value, &str) -> String) -> bool {
    let mut terms = selector.split(',').filter(|term| !term.is_empty());
    terms.all(|term| {
        if let Some((key, value)) = term.split_once("!=") {
            return read(object, key) != value;
        }
        let (key, value) = term.split_once('=').unwrap_or((term, ""));
        read(object, key) == value.trim_start_matches('=')
    })
}

fn field(object: &Value, path: &str) -> String {
    let value = object.pointer(&format!("/{}", path.replace('.', "/")));
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn label(object: &Value, key: &str) -> String {
    let value = object["metadata"]["labels"].get(key);
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn uid() -> String {
    let random: u128 = rand::random();
    let hex = format!("{random:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

/// The time to the second, as Kubernetes writes it.
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(objects: &mut Objects, (method, path): (&str, &str), body: Value) -> Reply {
        let request = Request {
            body,
            content_type: "application/json-patch+json".to_owned(),
            ..Request::new(method, path)
        };
        objects.answer(&request)
    }

    fn pod(name: &str, node: &str) -> Value {
        json!({ "metadata": { "name": name }, "spec": { "nodeName": node } })
    }

    #[test]
    fn an_object_is_made_once_and_deleted_if_it_is_the_one_that_is_meant() {
        let mut objects = Objects::default();
        let pods = "/api/v1/namespaces/n/pods";
        let made = ask(&mut objects, ("POST", pods), pod("a", "x"));
        assert_eq!(made.status(), Some(201));
        let again = ask(&mut objects, ("POST", pods), pod("a", "x"));
        assert_eq!(again.status(), Some(409));
        let other = json!({ "preconditions": { "uid": "other" } });
        let path = format!("{pods}/a");
        let refused = ask(&mut objects, ("DELETE", &path), other);
        assert_eq!(refused.status(), Some(409));
        let gone = ask(&mut objects, ("DELETE", &path), json!({}));
        assert_eq!(gone.status(), Some(200));
        assert_eq!(
            ask(&mut objects, ("GET", &path), Value::Null).status(),
            Some(404)
        );
    }

    #[test]
    fn a_list_of_all_namespaces_is_selected_by_fields() {
        let mut objects = Objects::default();
        for (namespace, name, node) in [("n", "a", "x"), ("m", "b", "y"), ("m", "c", "x")] {
            let path = format!("/api/v1/namespaces/{namespace}/pods");
            ask(&mut objects, ("POST", &path), pod(name, node));
        }
        let path = "/api/v1/pods?fieldSelector=spec.nodeName%3Dx%2Cstatus.phase%21%3DFailed";
        let reply = ask(&mut objects, ("GET", path), Value::Null);
        let items = &reply.body().unwrap()["items"];
        assert_eq!(items.as_array().map(Vec::len), Some(2), "{items}");
    }

    #[test]
    fn a_failed_test_of_a_patch_is_invalid_and_names_no_field() {
        let mut objects = Objects::default();
        objects.put("/api/v1/nodes/a", json!({ "metadata": { "name": "a" } }));
        let steps = json!([{ "op": "test", "path": "/metadata/uid", "value": "other" }]);
        let reply = ask(&mut objects, ("PATCH", "/api/v1/nodes/a"), steps);
        assert_eq!(reply.status(), Some(422));
    }
}
