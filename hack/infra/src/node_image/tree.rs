//! Folders as values: what is in them, and how much.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ring::digest::{Context as Sha256, SHA256};

use crate::cache::hexadecimal;

/// Everything below a folder, as paths relative to it, in a fixed order; links are not followed.
pub(super) fn list(root: &Path) -> Result<Vec<(PathBuf, Metadata)>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        for entry in fs::read_dir(&path).with_context(|| format!("list {}", path.display()))? {
            let entry = entry?;
            let (relative, metadata) = (folder.join(entry.file_name()), entry.metadata()?);
            if metadata.is_dir() {
                folders.push(relative.clone());
            }
            found.push((relative, metadata));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// The bytes in all files below a folder.
pub(super) fn size(root: &Path) -> Result<u64> {
    let files = list(root)?;
    Ok(files
        .iter()
        .filter(|(_, metadata)| metadata.is_file())
        .map(|(_, metadata)| metadata.len())
        .sum())
}

/// One line for everything below a folder: its mode, its digest or target, its path. Times don't count.
pub(super) fn describe(root: &Path) -> Result<String> {
    let line = |(path, metadata): (PathBuf, Metadata)| {
        let full = root.join(&path);
        let content = if metadata.is_symlink() {
            fs::read_link(&full)?.display().to_string()
        } else if metadata.is_file() {
            digest(&full)?
        } else {
            "folder".to_owned()
        };
        let mode = metadata.permissions().mode();
        Ok(format!("{mode:o} {content} {}\n", path.display()))
    };
    list(root)?.into_iter().map(line).collect()
}

fn digest(file: &Path) -> Result<String> {
    let mut hasher = Hasher::new(io::sink());
    let mut content = File::open(file).with_context(|| format!("read {}", file.display()))?;
    io::copy(&mut content, &mut hasher)?;
    Ok(hasher.finish().digest)
}

/// Passes bytes on and takes their digest and number on the way.
pub(super) struct Hasher<W> {
    inner: W,
    digest: Sha256,
    size: u64,
}

/// What a [`Hasher`] saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hashed {
    /// SHA-256 in hexadecimal.
    pub(super) digest: String,
    /// Bytes.
    pub(super) size: u64,
}

impl<W: Write> Hasher<W> {
    /// Hashes what is written to `inner` through it.
    pub(super) fn new(inner: W) -> Self {
        Self {
            inner,
            digest: Sha256::new(&SHA256),
            size: 0,
        }
    }

    /// The digest and number of all bytes.
    pub(super) fn finish(self) -> Hashed {
        Hashed {
            digest: hexadecimal(self.digest.finish().as_ref()),
            size: self.size,
        }
    }
}

impl<W: Write> Write for Hasher<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_described_by_content_mode_and_name() {
        let root = std::env::temp_dir().join(format!("guestcluster-tree-{}", std::process::id()));
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("sub/file"), "abc").unwrap();
        std::os::unix::fs::symlink("file", root.join("sub/link")).unwrap();
        let described = describe(&root).unwrap();
        let lines: Vec<&str> = described.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].ends_with("folder sub"));
        assert!(lines[1].ends_with(
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad sub/file"
        ));
        assert!(lines[2].ends_with("file sub/link"));
        assert_eq!(size(&root).unwrap(), 3);
        fs::remove_dir_all(root).unwrap();
    }
}
