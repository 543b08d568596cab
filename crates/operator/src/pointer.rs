//! JSON pointers (RFC 6901) into maps whose keys hold slashes, as labels and annotations do.

/// Where a label stands.
pub fn label(key: &str) -> String {
    entry("/metadata/labels", key)
}

/// Where an annotation stands.
pub fn annotation(key: &str) -> String {
    entry("/metadata/annotations", key)
}

/// Where the value of a key stands in the map at `map`.
pub fn entry(map: &str, key: &str) -> String {
    format!("{map}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_slashes_and_tildes() {
        assert_eq!(label("a.b/c~d"), "/metadata/labels/a.b~1c~0d");
    }
}
