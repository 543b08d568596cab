//! The image of the guest machines: a Debian root, Kubernetes' programs on top, and container images that are already
//! in containerd's store.
//!
//! It is three folders instead of a disk: a machine of the local infrastructure mounts the first two on top of each
//! other and takes the third as its `/var/lib/containerd`. What a machine on this host needs and a virtual machine does
//! not (cgroup v1, conntrack limits) is settled in the image, so that user data is the same for both.

mod containers;
mod debian;
mod layer;
mod oci;
mod programs;
mod store;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::{Cache, Key, KeyBuilder, remove_folder};
use crate::host_packages;
use crate::progress::{Progress, mebibytes};
use crate::tools::{self, Programs, Release};
use debian::Debian;

/// The name of the image, without version and digest.
pub const REPOSITORY: &str = "registry.local/guest/node";

/// A node image, built.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeImage {
    /// The version of Kubernetes in it, with its v.
    pub kubernetes: String,
    /// `sha256:…` of everything that is in it: the same digest means the same content.
    pub digest: String,
    /// `registry.local/guest/node:<version>@<digest>`.
    pub reference: String,
    /// The root of a Debian system: the lower of a machine's read-only folders.
    pub base: PathBuf,
    /// What the image adds to the root: the upper of a machine's read-only folders.
    pub layer: PathBuf,
    /// The containerd root folder with all images unpacked. Its files never change, except `*.db`: a machine links the
    /// former and copies the latter.
    pub containerd: PathBuf,
}

/// Builds what is missing of the image of this release; returns at once when everything is cached.
///
/// All releases lie on the same Debian root. Building takes root, and Debian's package mirror for it.
pub fn ensure(release: Release, progress: &Progress) -> Result<NodeImage> {
    let programs = tools::ensure_node(release, progress)?;
    let cache = Cache::open()?;
    let recipe = Recipe {
        kubernetes: release.version(),
        debian: debian::ensure(&cache, progress)?,
        programs,
    };
    let folder = cache.ensure("node-images", &recipe.key()?, progress, |folder| {
        recipe.build(folder, progress)
    })?;
    let file = folder.join(DIGEST_FILE);
    let digest = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    Ok(NodeImage {
        kubernetes: recipe.kubernetes.to_owned(),
        reference: format!("{REPOSITORY}:{}@{digest}", recipe.kubernetes),
        digest,
        base: recipe.debian.root,
        layer: folder.join(LAYER_FOLDER),
        containerd: folder.join(STORE_FOLDER),
    })
}

const DIGEST_FILE: &str = "digest";
const LAYER_FOLDER: &str = "layer";
const STORE_FOLDER: &str = "containerd";

/// Where the files of the image lie in this checkout.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("node-image")
}

/// What an image is made of.
struct Recipe {
    kubernetes: &'static str,
    programs: Programs,
    debian: Debian,
}

impl Recipe {
    /// A digest of everything that the image depends on. The code that builds it is part of that: a number to raise
    /// by hand would be forgotten.
    fn key(&self) -> Result<Key> {
        Ok(KeyBuilder::default()
            .input("programs", &self.programs.digest)
            .input("debian", &self.debian.packages)
            .input("files", tree::describe(&sources())?)
            .input("containers", include_str!("node_image/containers.rs"))
            .input("layer", include_str!("node_image/layer.rs"))
            .input("oci", include_str!("node_image/oci.rs"))
            .input("network-programs", include_str!("node_image/programs.rs"))
            .input("store", include_str!("node_image/store.rs"))
            .key())
    }

    fn build(&self, folder: &Path, progress: &Progress) -> Result<()> {
        host_packages::require_root("build a node image")?;
        let (programs, debian) = (&self.programs, &self.debian.root);
        let references = containers::References::of_kubeadm(programs, self.kubernetes)?;

        let step = progress.step(format!("lay out the node image of {}", self.kubernetes));
        let layer = folder.join(LAYER_FOLDER);
        layer::write(&layer, programs, debian, &references.pause)?;
        let content = tree::describe(&layer)?;
        step.done(&mebibytes(tree::size(&layer)?));

        let step = progress.step("write the container images");
        let scratch = folder.join("images");
        let images = containers::write(&scratch, programs, debian, &references)?;
        step.done(&mebibytes(fs::metadata(&images.archive)?.len()));

        let step = progress.step("unpack the container images");
        let containerd = folder.join(STORE_FOLDER);
        store::import(&containerd, &images.archive, programs)?;
        remove_folder(&scratch)?;
        step.done(&mebibytes(tree::size(&containerd)?));

        let digest = KeyBuilder::default()
            .input("kubernetes", self.kubernetes)
            .input("debian", &self.debian.packages)
            .input("layer", content)
            .input("containers", images.index)
            .digest();
        fs::write(folder.join(DIGEST_FILE), format!("sha256:{digest}"))?;
        Ok(())
    }
}
