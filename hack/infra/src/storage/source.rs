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

/// Whether `url` names the node image; on paper there is no image, and any version will do.
///
/// A digest decides, whatever the tag says; without one the tag must be the version.
pub fn is_node_image(url: &str, image: Option<&NodeImage>) -> bool {
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
        return false;
    }
    match (image, digest) {
        (None, _) => true,
        (Some(image), Some(digest)) => image.digest == digest,
        (Some(image), None) => image.kubernetes == tag,
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, is_node_image};
    use crate::node_image::NodeImage;
    use rstest::rstest;
    use serde_json::json;

    fn image() -> NodeImage {
        NodeImage {
            kubernetes: "v1.36.3".into(),
            digest: "sha256:abc".into(),
            reference: "registry.local/guest/node:v1.36.3@sha256:abc".into(),
            base: "/".into(),
            layer: "/".into(),
            containerd: "/".into(),
        }
    }

    #[rstest]
    #[case("docker://registry.local/guest/node@sha256:abc", true)]
    #[case("docker://registry.local/guest/node:v1.36.3@sha256:abc", true)]
    #[case("docker://registry.local/guest/node:v1.36.3", true)]
    #[case("docker://registry.local/guest/node:v1.0.0", false)]
    #[case("docker://registry.local/guest/node@sha256:def", false)]
    #[case("docker://registry.local/guest/nodes:v1.36.3", false)]
    #[case("docker://quay.example/node@sha256:abc", false)]
    fn only_the_built_image_can_be_pulled(#[case] url: &str, #[case] known: bool) {
        assert_eq!(is_node_image(url, Some(&image())), known);
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
