//! Where the content of a DataVolume comes from, and whether it can be had.

use serde_json::Value;

use crate::node_image::{NodeImage, REPOSITORY};

/// Where a DataVolume's content comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A container image, by its URL.
    Registry(String),
    /// Another claim.
    Claim {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Nothing: an empty disk.
    Blank,
    /// Something that the stand-in cannot reach; its kind.
    Elsewhere(String),
}

impl Source {
    /// Reads the source of a DataVolume in `namespace`.
    pub fn read(spec: &Value, namespace: &str) -> Self {
        let source = &spec["source"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(url) = text(&source["registry"]["url"]) {
            Self::Registry(url)
        } else if let Some(name) = text(&source["pvc"]["name"]) {
            let stated = text(&source["pvc"]["namespace"]).filter(|stated| !stated.is_empty());
            Self::Claim {
                namespace: stated.unwrap_or_else(|| namespace.to_owned()),
                name,
            }
        } else if source["blank"].is_object() {
            Self::Blank
        } else {
            let kind = source
                .as_object()
                .and_then(|source| source.keys().next().cloned());
            Self::Elsewhere(kind.unwrap_or_else(|| "no".to_owned()))
        }
    }
}

/// What a registry has under a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pulled<'a> {
    /// A node image.
    Image(&'a NodeImage),
    /// A node image that exists on paper only, where nothing boots from it.
    OnPaper,
    /// Nothing.
    Unknown,
}

/// Finds what `url` names among the node images; on paper there are none, and any version will do.
///
/// A digest decides, whatever the tag says; without one the tag must be the version.
pub fn pull<'a>(url: &str, images: &[&'a NodeImage]) -> Pulled<'a> {
    let reference = url.strip_prefix("docker://").unwrap_or(url);
    let (name, digest) = match reference.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (reference, None),
    };
    let (repository, tag) = match name.strip_prefix(REPOSITORY) {
        Some(rest) => (REPOSITORY, rest.strip_prefix(':').unwrap_or(rest)),
        None => (name, ""),
    };
    if repository != REPOSITORY {
        return Pulled::Unknown;
    }
    if images.is_empty() {
        return Pulled::OnPaper;
    }
    let is_named = |image: &&&NodeImage| match digest {
        Some(digest) => image.digest == digest,
        None => image.kubernetes == tag,
    };
    match images.iter().find(is_named) {
        Some(image) => Pulled::Image(image),
        None => Pulled::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{Pulled, Source, pull};
    use crate::node_image::NodeImage;
    use rstest::rstest;
    use serde_json::json;

    fn image(kubernetes: &str, digest: &str) -> NodeImage {
        NodeImage {
            kubernetes: kubernetes.into(),
            digest: digest.into(),
            reference: format!("registry.local/guest/node:{kubernetes}@{digest}"),
            base: "/".into(),
            layer: "/".into(),
            containerd: "/".into(),
        }
    }

    #[rstest]
    #[case("docker://registry.local/guest/node@sha256:abc", Some("v1.36.3"))]
    #[case(
        "docker://registry.local/guest/node:v1.36.3@sha256:abc",
        Some("v1.36.3")
    )]
    #[case(
        "docker://registry.local/guest/node:v1.36.3@sha256:def",
        Some("v1.37.2")
    )]
    #[case("docker://registry.local/guest/node:v1.36.3", Some("v1.36.3"))]
    #[case("docker://registry.local/guest/node:v1.37.2", Some("v1.37.2"))]
    #[case("docker://registry.local/guest/node:v1.0.0", None)]
    #[case("docker://registry.local/guest/node@sha256:123", None)]
    #[case("docker://registry.local/guest/nodes:v1.36.3", None)]
    #[case("docker://quay.example/node@sha256:abc", None)]
    fn only_what_was_built_can_be_pulled(#[case] url: &str, #[case] version: Option<&str>) {
        let built = [
            image("v1.36.3", "sha256:abc"),
            image("v1.37.2", "sha256:def"),
        ];
        let pulled = match pull(url, &built.each_ref()) {
            Pulled::Image(image) => Some(image.kubernetes.as_str()),
            Pulled::OnPaper | Pulled::Unknown => None,
        };
        assert_eq!(pulled, version);
    }

    #[test]
    fn on_paper_any_version_will_do() {
        let pulled = pull("docker://registry.local/guest/node:v1.0.0", &[]);
        assert_eq!(pulled, Pulled::OnPaper);
        let pulled = pull("docker://quay.example/node:v1.0.0", &[]);
        assert_eq!(pulled, Pulled::Unknown);
    }

    #[test]
    fn sources_are_told_apart() {
        let read = |source| Source::read(&json!({"source": source}), "here");
        assert_eq!(read(json!({"blank": {}})), Source::Blank);
        assert_eq!(
            read(json!({"pvc": {"name": "golden"}})),
            Source::Claim {
                namespace: "here".into(),
                name: "golden".into()
            }
        );
        assert_eq!(
            read(json!({"http": {"url": "x"}})),
            Source::Elsewhere("http".into())
        );
    }
}
