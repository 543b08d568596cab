//! Writes container images as an OCI image layout in one archive (OCI image specification 1.1), which containerd
//! imports.
//!
//! Guarantees: the same content gives the same bytes and so the same digests (no times, no owners, fixed order); a
//! layer that several images share is in the archive once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::tree::{Hashed, Hasher};

/// The files of a layer, by their path in the container without the leading slash.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(BTreeMap<String, Entry>);

#[derive(Clone, Debug)]
enum Entry {
    Folder { mode: u32 },
    Copy { source: PathBuf },
    Text(String),
    Link { target: String },
}

impl Files {
    /// Adds a folder with a mode of its own. Folders above other entries need no mention.
    pub(super) fn folder(&mut self, path: &str, mode: u32) {
        self.0.insert(path.to_owned(), Entry::Folder { mode });
    }

    /// Adds a copy of a file.
    pub(super) fn copy(&mut self, path: &str, source: impl Into<PathBuf>) {
        self.0.insert(
            path.to_owned(),
            Entry::Copy {
                source: source.into(),
            },
        );
    }

    /// Adds a file with this text.
    pub(super) fn text(&mut self, path: &str, text: &str) {
        self.0.insert(path.to_owned(), Entry::Text(text.to_owned()));
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.0.insert(
            path.to_owned(),
            Entry::Link {
                target: target.to_owned(),
            },
        );
    }

    /// Adds the folders that lie above entries and were not mentioned: an archive names them before their content.
    fn with_parents(&self) -> BTreeMap<String, Entry> {
        let mut all = self.0.clone();
        for path in self.0.keys() {
            for (end, _) in path.match_indices('/') {
                all.entry(path[..end].to_owned())
                    .or_insert(Entry::Folder { mode: 0o755 });
            }
        }
        all
    }
}

/// A blob as manifests refer to it.
#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    media_type: &'static str,
    hashed: Hashed,
}

impl Descriptor {
    fn digest(&self) -> String {
        format!("sha256:{}", self.hashed.digest)
    }

    fn json(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest(), "size": self.hashed.size})
    }
}

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image layout being written.
pub(super) struct Layout {
    /// Holds the blobs until the archive is written.
    scratch: PathBuf,
    blobs: BTreeMap<String, PathBuf>,
    manifests: Vec<Value>,
}

impl Layout {
    /// Begins a layout; `scratch` must exist and have room for all layers.
    pub(super) fn new(scratch: &Path) -> Self {
        Self {
            scratch: scratch.to_owned(),
            blobs: BTreeMap::new(),
            manifests: Vec::new(),
        }
    }

    /// Writes a layer, uncompressed: it is unpacked on this machine right away.
    pub(super) fn layer(&mut self, files: &Files) -> Result<Descriptor> {
        let path = self.scratch.join(format!("blob-{}", self.blobs.len()));
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let mut archive = Builder::new(Hasher::new(BufWriter::new(file)));
        for (path, entry) in files.with_parents() {
            append(&mut archive, &path, &entry)
                .with_context(|| format!("add {path} to a layer"))?;
        }
        let mut hasher = archive.into_inner()?;
        io::Write::flush(&mut hasher)?;
        let descriptor = Descriptor {
            media_type: LAYER,
            hashed: hasher.finish(),
        };
        self.blobs.insert(descriptor.hashed.digest.clone(), path);
        Ok(descriptor)
    }

    /// Adds an image made of these layers, the lowest first.
    pub(super) fn image(
        &mut self,
        reference: &str,
        entrypoint: &str,
        layers: &[&Descriptor],
    ) -> Result<()> {
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": [entrypoint], "Env": [format!("PATH={SEARCH_PATH}")]},
            "rootfs": {"type": "layers", "diff_ids": digests(layers)},
        });
        let config = self.blob(CONFIG, &config)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.json(),
            "layers": layers.iter().map(|layer| layer.json()).collect::<Vec<_>>(),
        });
        let mut manifest = self.blob(MANIFEST, &manifest)?.json();
        manifest["platform"] = json!({"architecture": architecture(), "os": "linux"});
        // containerd's own annotation: the specification has room for a tag only, not for a whole reference.
        manifest["annotations"] = json!({"io.containerd.image.name": reference});
        self.manifests.push(manifest);
        Ok(())
    }

    fn blob(&mut self, media_type: &'static str, content: &Value) -> Result<Descriptor> {
        let text = content.to_string();
        let mut hasher = Hasher::new(io::sink());
        io::Write::write_all(&mut hasher, text.as_bytes())?;
        let descriptor = Descriptor {
            media_type,
            hashed: hasher.finish(),
        };
        let path = self.scratch.join(format!("blob-{}", self.blobs.len()));
        fs::write(&path, text)?;
        self.blobs.insert(descriptor.hashed.digest.clone(), path);
        Ok(descriptor)
    }

    /// Writes the archive and returns its index, which names every image by digest.
    pub(super) fn write(self, archive: &Path) -> Result<String> {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": self.manifests})
            .to_string();
        let file =
            File::create(archive).with_context(|| format!("create {}", archive.display()))?;
        let mut tar = Builder::new(BufWriter::new(file));
        append(
            &mut tar,
            "oci-layout",
            &Entry::Text(r#"{"imageLayoutVersion":"1.0.0"}"#.to_owned()),
        )?;
        append(&mut tar, "index.json", &Entry::Text(index.clone()))?;
        for (digest, source) in self.blobs {
            append(
                &mut tar,
                &format!("blobs/sha256/{digest}"),
                &Entry::Copy { source },
            )?;
        }
        io::Write::flush(&mut tar.into_inner()?)?;
        Ok(index)
    }
}

const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn digests(layers: &[&Descriptor]) -> Vec<String> {
    layers.iter().map(|layer| layer.digest()).collect()
}

/// This machine's architecture as Go, and with it every container tool, calls it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn append<W: io::Write>(archive: &mut Builder<W>, path: &str, entry: &Entry) -> Result<()> {
    let header = |kind: EntryType, mode: u32, size: u64| {
        // Times, owners and groups stay 0.
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header
    };
    match entry {
        Entry::Folder { mode } => {
            archive.append_data(
                &mut header(EntryType::Directory, *mode, 0),
                path,
                io::empty(),
            )?;
        }
        Entry::Link { target } => {
            archive.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?;
        }
        Entry::Text(text) => {
            let mut header = header(EntryType::Regular, 0o644, text.len() as u64);
            archive.append_data(&mut header, path, text.as_bytes())?;
        }
        Entry::Copy { source } => {
            let file = File::open(source).with_context(|| format!("read {}", source.display()))?;
            let metadata = file.metadata()?;
            let executable = metadata.permissions().mode() & 0o100 != 0;
            let mode = if executable { 0o755 } else { 0o644 };
            archive.append_data(
                &mut header(EntryType::Regular, mode, metadata.len()),
                path,
                file,
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn write(name: &str) -> (String, BTreeMap<String, Vec<u8>>) {
        let scratch =
            std::env::temp_dir().join(format!("guestcluster-oci-{name}-{}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap();
        let mut files = Files::default();
        files.text("etc/motd", "hello");
        files.link("bin", "usr/bin");
        files.folder("tmp", 0o1777);
        let mut layout = Layout::new(&scratch);
        let layer = layout.layer(&files).unwrap();
        layout
            .image("registry.example/one:1", "/one", &[&layer])
            .unwrap();
        layout
            .image("registry.example/two:1", "/two", &[&layer])
            .unwrap();
        let archive = scratch.join("archive.tar");
        let index = layout.write(&archive).unwrap();
        let mut entries = BTreeMap::new();
        for entry in tar::Archive::new(File::open(&archive).unwrap())
            .entries()
            .unwrap()
        {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            entries.insert(entry.path().unwrap().display().to_string(), content);
        }
        fs::remove_dir_all(scratch).unwrap();
        (index, entries)
    }

    #[test]
    fn every_blob_is_named_by_the_digest_of_its_content() {
        let (_, entries) = write("digests");
        let blobs: Vec<_> = entries
            .iter()
            .filter(|(name, _)| name.starts_with("blobs/"))
            .collect();
        assert_eq!(
            blobs.len(),
            5,
            "two configurations, two manifests and the layer that they share"
        );
        for (name, content) in blobs {
            let mut hasher = Hasher::new(io::sink());
            io::Write::write_all(&mut hasher, content).unwrap();
            assert_eq!(*name, format!("blobs/sha256/{}", hasher.finish().digest));
        }
    }

    #[test]
    fn the_index_leads_to_the_layers_of_each_image() {
        let (index, entries) = write("index");
        let index: Value = serde_json::from_str(&index).unwrap();
        assert_eq!(
            index["manifests"][1]["annotations"]["io.containerd.image.name"],
            "registry.example/two:1"
        );
        let blob = |digest: &Value| -> Value {
            let name = digest.as_str().unwrap().replace("sha256:", "blobs/sha256/");
            serde_json::from_slice(&entries[&name]).unwrap()
        };
        let manifest = blob(&index["manifests"][1]["digest"]);
        let config = blob(&manifest["config"]["digest"]);
        assert_eq!(config["config"]["Entrypoint"][0], "/two");
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            manifest["layers"][0]["digest"]
        );
    }

    #[test]
    fn folders_come_before_what_is_in_them_and_keep_their_modes() {
        let (index, entries) = write("folders");
        let (again, _) = write("again");
        assert_eq!(index, again, "the same content gives the same digests");
        let layer = entries
            .values()
            .find(|content| content.len() > 1024)
            .unwrap();
        let names: Vec<(String, u32)> = tar::Archive::new(layer.as_slice())
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (
                    entry.path().unwrap().display().to_string(),
                    entry.header().mode().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            names,
            [
                ("bin", 0o777),
                ("etc", 0o755),
                ("etc/motd", 0o644),
                ("tmp", 0o1777)
            ]
            .map(|(name, mode)| (name.to_owned(), mode))
        );
    }
}
