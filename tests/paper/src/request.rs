//! A request to a guest's API server, taken apart.

use serde_json::Value;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// `GET`, `POST`, …
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Parameters, decoded.
    pub query: Vec<(String, String)>,
    /// `Accept`, which tells whether metadata alone is wanted.
    pub accept: String,
    /// `Content-Type`, which tells the kind of a patch.
    pub content_type: String,
    /// The document; null if there is none.
    pub body: Value,
}

/// Where objects of one kind are, or one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `/api/v1` or `/apis/<group>/<version>`.
    pub version: String,
    /// The namespace, if one is named.
    pub namespace: Option<String>,
    /// Plural of the kind.
    pub resource: String,
    /// Name of the object.
    pub name: Option<String>,
    /// What follows the name.
    pub subresource: Option<String>,
}

impl Request {
    /// Takes a path with its query apart.
    pub fn new(method: &str, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: pairs
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
            ..Self::default()
        }
    }

    /// A parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut named = self.query.iter().filter(|(key, _)| key == name);
        named.next().map(|(_, value)| value.as_str())
    }

    /// Whether it may change something.
    pub fn writes(&self) -> bool {
        !matches!(&*self.method, "GET" | "HEAD")
    }

    /// Metadata alone is wanted.
    pub fn wants_metadata(&self) -> bool {
        self.accept.contains("as=PartialObjectMetadata")
    }

    /// Which objects it is about; none if it is about no object.
    pub fn place(&self) -> Option<Place> {
        let segments: Vec<&str> = self.path.trim_matches('/').split('/').collect();
        let (version, rest) = match *segments.as_slice() {
            ["api", version, ref rest @ ..] => (format!("/api/{version}"), rest),
            ["apis", group, version, ref rest @ ..] => (format!("/apis/{group}/{version}"), rest),
            _ => return None,
        };
        let (namespace, rest) = match *rest {
            // A namespace itself, and what is in it.
            ["namespaces", namespace, ref rest @ ..] if !rest.is_empty() => (Some(namespace), rest),
            ref rest => (None, rest),
        };
        let (&resource, rest) = rest.split_first()?;
        Some(Place {
            version,
            namespace: namespace.map(str::to_owned),
            resource: resource.to_owned(),
            name: rest.first().map(|name| (*name).to_owned()),
            subresource: rest.get(1).map(|name| (*name).to_owned()),
        })
    }
}

impl Place {
    /// The key of an object of that name.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }

    /// What the keys of all objects there begin with.
    pub fn prefix(&self) -> String {
        let namespace = self.namespace.as_ref();
        let namespace = namespace.map_or_else(String::new, |name| format!("/namespaces/{name}"));
        format!("{}{namespace}/{}/", self.version, self.resource)
    }

    /// The kind of the objects.
    pub fn kind(&self) -> String {
        KINDS
            .iter()
            .find(|(resource, _)| *resource == self.resource)
            .map_or_else(|| self.resource.clone(), |(_, kind)| (*kind).to_owned())
    }
}

/// Kinds that a guest's objects have.
const KINDS: [(&str, &str); 11] = [
    ("clusterrolebindings", "ClusterRoleBinding"),
    ("clusterroles", "ClusterRole"),
    ("configmaps", "ConfigMap"),
    ("daemonsets", "DaemonSet"),
    ("deployments", "Deployment"),
    ("namespaces", "Namespace"),
    ("nodes", "Node"),
    ("pods", "Pod"),
    ("replicasets", "ReplicaSet"),
    ("secrets", "Secret"),
    ("serviceaccounts", "ServiceAccount"),
];

/// Percent-decoding, with `+` for a space.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digits =
            (byte == b'%').then(|| [rest.next(), rest.next()].map(Option::unwrap_or_default));
        let decoded = digits.and_then(|digits| {
            let digits = std::str::from_utf8(&digits).ok()?.to_owned();
            u8::from_str_radix(&digits, 16).ok()
        });
        bytes.push(decoded.unwrap_or(if byte == b'+' { b' ' } else { byte }));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::Request;

    #[test]
    fn a_path_says_which_objects_are_meant() {
        let place = |path| Request::new("GET", path).place().unwrap();
        assert_eq!(place("/api/v1/nodes").prefix(), "/api/v1/nodes/");
        assert_eq!(place("/api/v1/namespaces/a").resource, "namespaces");
        let pod = place("/api/v1/namespaces/a/pods/p/eviction");
        assert_eq!(pod.subresource.as_deref(), Some("eviction"));
        assert_eq!(pod.key("p"), "/api/v1/namespaces/a/pods/p");
        let set = place("/apis/apps/v1/namespaces/a/daemonsets/d");
        assert_eq!(set.key("d"), "/apis/apps/v1/namespaces/a/daemonsets/d");
        assert!(Request::new("GET", "/readyz").place().is_none());
    }

    #[test]
    fn parameters_are_decoded() {
        let request = Request::new(
            "GET",
            "/api/v1/pods?&fieldSelector=a%3Db%2Cc%21%3Dd&limit=1",
        );
        assert_eq!(request.parameter("fieldSelector"), Some("a=b,c!=d"));
    }
}
