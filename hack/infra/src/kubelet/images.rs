//! The images that hosts can pull: each holds one static program and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the operator's image is looked for, whatever its tag.
const OPERATOR_REPOSITORY: &str = "registry.local/guestcluster/operator";
/// Where the program lies in the operator's image.
const OPERATOR_ENTRY_POINT: &str = "/guestcluster-operator";

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Where the program lies inside: an absolute path, which is run if a container states no command.
    pub entry_point: String,
    /// The program on the box.
    pub binary: PathBuf,
}

/// All images, by repository: a tag makes no difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images(BTreeMap<String, Image>);

impl Images {
    /// The operator's image from now on.
    pub fn set_operator(&mut self, binary: &Path) {
        let image = Image {
            entry_point: OPERATOR_ENTRY_POINT.to_owned(),
            binary: binary.to_owned(),
        };
        self.set(OPERATOR_REPOSITORY, image);
    }

    /// The image behind `reference` from now on.
    pub fn set(&mut self, reference: &str, image: Image) {
        self.0.insert(repository(reference).to_owned(), image);
    }

    /// The image behind `reference`, if it can be pulled now.
    pub fn find(&self, reference: &str) -> Option<&Image> {
        self.0.get(repository(reference))
    }

    /// Whether `reference` can be pulled now or may be later: the operator is built by whoever needs it.
    pub fn knows(&self, reference: &str) -> bool {
        repository(reference) == OPERATOR_REPOSITORY || self.find(reference).is_some()
    }
}

/// A reference without its tag and digest.
fn repository(reference: &str) -> &str {
    let name = reference
        .split_once('@')
        .map_or(reference, |(name, _)| name);
    match name.rsplit_once(':') {
        // What stands before a slash is the port of a registry.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::{Image, Images, repository};

    #[test]
    fn a_repository_is_a_reference_without_tag_and_digest() {
        for (reference, expected) in [
            ("127.0.0.1:5000/a/b:v1", "127.0.0.1:5000/a/b"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b"),
            ("r/a:v1@sha256:0", "r/a"),
        ] {
            assert_eq!(repository(reference), expected);
        }
    }

    #[test]
    fn the_operators_image_is_known_before_it_is_built() {
        let mut images = Images::default();
        let operator = "registry.local/guestcluster/operator:0.1.0";
        assert!(images.knows(operator) && images.find(operator).is_none());
        images.set_operator("/operator".as_ref());
        assert!(images.find(operator).is_some());
        assert!(!images.knows("r/other:1"));
        let other = Image {
            entry_point: "/manager".to_owned(),
            binary: "/other".into(),
        };
        images.set("r/other:1", other.clone());
        assert_eq!(images.find("r/other:2"), Some(&other));
    }
}
