//! What is built once and kept: keyed folders under one root, complete or absent.
//!
//! Guarantees: a folder that [`Cache::ensure`] returns was filled by a run that finished; a killed run leaves a
//! temporary folder only, which the next one removes; two runs that want the same folder build it once.
//! Assumes: keys are digests of everything that the content depends on, and nobody edits a finished folder.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ring::digest::{Context as Sha256, SHA256};

use crate::progress::Progress;

/// The environment variable that moves the cache.
pub const ROOT_VARIABLE: &str = "GUESTCLUSTER_CACHE";

/// The folder that survives runs and checkouts.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache of this user: `$GUESTCLUSTER_CACHE`, or `.cache/guestcluster` in the home directory.
    pub fn open() -> Result<Self> {
        let root = match std::env::var_os(ROOT_VARIABLE) {
            Some(root) => PathBuf::from(root),
            None => std::env::home_dir()
                .with_context(|| {
                    format!("no home directory: set {ROOT_VARIABLE} to a folder for build results")
                })?
                .join(".cache/guestcluster"),
        };
        Ok(Self::at(root))
    }

    /// A cache in a folder of the caller's choice.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The folder `kind/key`, filled by `build` if it isn't there yet.
    ///
    /// `build` gets an empty folder that becomes the result when it returns without error.
    pub fn ensure(
        &self,
        kind: &str,
        key: &Key,
        progress: &Progress,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let parent = self.root.join(kind);
        let finished = parent.join(&key.0);
        if finished.is_dir() {
            return Ok(finished);
        }
        fs::create_dir_all(&parent).with_context(|| format!("create {}", parent.display()))?;
        // The lock file is never removed: removing it would let two runs lock two files of the same name.
        let _lock = lock(&parent.join(format!(".{key}.lock")), progress)?;
        if finished.is_dir() {
            return Ok(finished);
        }
        let partial = parent.join(format!(".{key}.partial"));
        remove_folder(&partial)?;
        fs::create_dir(&partial).with_context(|| format!("create {}", partial.display()))?;
        build(&partial)?;
        fs::rename(&partial, &finished)
            .with_context(|| format!("finish {}", finished.display()))?;
        Ok(finished)
    }
}

/// A digest that names a folder of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(String);

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Computes a [`Key`] from everything that a build depends on.
pub struct KeyBuilder(Sha256);

impl Default for KeyBuilder {
    fn default() -> Self {
        Self(Sha256::new(&SHA256))
    }
}

impl KeyBuilder {
    /// Adds one input. Name and value are length-prefixed, so that no two lists of inputs read the same.
    #[must_use]
    pub fn input(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        for part in [name.as_bytes(), value.as_ref()] {
            self.0.update(&(part.len() as u64).to_be_bytes());
            self.0.update(part);
        }
        self
    }

    /// The key: the first 16 hexadecimal digits, enough among the few folders of a cache.
    pub fn key(self) -> Key {
        let mut key = self.digest();
        key.truncate(16);
        Key(key)
    }

    /// The whole digest, in hexadecimal.
    pub fn digest(self) -> String {
        hexadecimal(self.0.finish().as_ref())
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
        text
    })
}

/// The digit for a value below 16.
fn digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap_or_default()
}

/// Removes a folder with all it holds; one that isn't there is fine.
pub fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Takes the lock; it is released when the file is closed, so also by a kill.
fn lock(path: &Path, progress: &Progress) -> Result<File> {
    let describe = || format!("lock {}", path.display());
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(describe)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let step = progress.step("wait for another run that builds the same");
            file.lock().with_context(describe)?;
            step.done("");
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(describe),
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("guestcluster-cache-{name}-{}", std::process::id()));
        remove_folder(&folder).unwrap();
        folder
    }

    fn key(value: &str) -> Key {
        KeyBuilder::default().input("value", value).key()
    }

    #[test]
    fn a_folder_is_built_once() {
        let root = scratch("once");
        let cache = Cache::at(root.clone());
        let mut builds = 0;
        for _ in 0..2 {
            let folder = cache
                .ensure("things", &key("a"), &Progress::plain(), |folder| {
                    builds += 1;
                    Ok(fs::write(folder.join("file"), "content")?)
                })
                .unwrap();
            assert!(folder.join("file").is_file());
        }
        assert_eq!(builds, 1);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_failed_build_leaves_nothing_that_looks_finished() {
        let root = scratch("failed");
        let cache = Cache::at(root.clone());
        let failed = cache.ensure("things", &key("a"), &Progress::plain(), |folder| {
            fs::write(folder.join("half"), "")?;
            anyhow::bail!("power cut")
        });
        assert!(failed.is_err());
        let folder = cache
            .ensure("things", &key("a"), &Progress::plain(), |folder| {
                assert!(
                    fs::read_dir(folder)?.next().is_none(),
                    "the next build starts from nothing"
                );
                Ok(())
            })
            .unwrap();
        assert!(!folder.join("half").exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn two_runs_at_once_build_once() {
        let root = scratch("twice");
        let builds = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    Cache::at(root.clone())
                        .ensure("things", &key("a"), &Progress::plain(), |_| {
                            builds.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            std::thread::sleep(std::time::Duration::from_millis(50));
                            Ok(())
                        })
                        .unwrap();
                });
            }
        });
        assert_eq!(builds.into_inner(), 1);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn inputs_that_only_concatenate_alike_have_different_keys() {
        let one = KeyBuilder::default().input("a", "bc").key();
        let other = KeyBuilder::default().input("ab", "c").key();
        assert_ne!(one, other);
        assert_eq!(one.to_string().len(), 16);
    }
}
