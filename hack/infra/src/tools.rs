//! The programs of the infrastructure and of the node image, built from pinned Go modules.
//!
//! Each module under `hack/tools` pins its dependencies with a `go.mod` and a `go.sum`; what is built from it is kept
//! in the cache under a digest of those files, the build flags and the Go version. A change of one module builds
//! that module again and no other.

mod build;
mod catalogue;
mod cluster_api;
mod definitions;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::{Cache, KeyBuilder};
use crate::host_packages;
use crate::progress::Progress;
use catalogue::Module;

pub use catalogue::{
    CONTAINERD_VERSION, COREDNS_VERSION, ETCD_VERSION, FLANNEL_VERSION, HELM_VERSION,
    KUBERNETES_VERSION, KUBEVIRT_VERSION, NEXT_COREDNS_VERSION, NEXT_ETCD_VERSION,
    NEXT_KUBERNETES_VERSION, Release,
};
pub use cluster_api::{CAPK_VERSION, CLUSTER_API_VERSION, ClusterApi, ensure_cluster_api};

/// Programs, complete and ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// The folder of the programs.
    pub bin: PathBuf,
    /// The digest of all pins, build flags and the compiler: the same digest means the same programs.
    pub digest: String,
}

impl Programs {
    /// Where a program is. Names are those of the programs themselves (`kube-apiserver`, `ctr`), except that
    /// `kubevirt-objects` prints KubeVirt's own objects.
    pub fn path(&self, program: &str) -> PathBuf {
        self.bin.join(program)
    }
}

/// What the infrastructure is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// Its programs.
    pub programs: Programs,
    /// The folder of the Containerized Data Importer's CustomResourceDefinitions, one YAML file each.
    pub cdi_crds: PathBuf,
}

/// Builds what is missing; returns at once when everything is cached.
///
/// Needs Go on the host (see the error otherwise) and, for what isn't cached, the module registry.
pub fn ensure(progress: &Progress) -> Result<Tools> {
    let (root, digest) = assemble("tools", catalogue::INFRASTRUCTURE, progress)?;
    Ok(Tools {
        programs: Programs {
            bin: root.join("bin"),
            digest,
        },
        cdi_crds: root.join("cdi-crds"),
    })
}

/// Builds what is missing of the programs of a node of this release.
///
/// They have a digest of their own: what only the infrastructure runs doesn't change a node's image.
pub fn ensure_node(release: Release, progress: &Progress) -> Result<Programs> {
    let (root, digest) = assemble("node-programs", &release.node_modules(), progress)?;
    Ok(Programs {
        bin: root.join("bin"),
        digest,
    })
}

/// One folder with what all these modules build, and the digest of what they depend on.
fn assemble(name: &str, modules: &[&Module], progress: &Progress) -> Result<(PathBuf, String)> {
    host_packages::ensure(progress)?;
    let (cache, compiler) = (Cache::open()?, build::Compiler::find()?);
    let mut key = KeyBuilder::default();
    let mut folders = Vec::new();
    for module in modules {
        let module_key = build::key(module, &compiler)?;
        key = key.input(module.name, module_key.to_string());
        let kind = format!("tool-modules/{}", module.name);
        folders.push(cache.ensure(&kind, &module_key, progress, |folder| {
            build::module(module, folder, progress)
        })?);
    }
    let digest = key.digest();
    let key = KeyBuilder::default().input(name, &digest).key();
    let root = cache.ensure(name, &key, progress, |folder| {
        folders
            .iter()
            .try_for_each(|module| link_tree(module, folder))
    })?;
    Ok((root, digest))
}

/// Hard links: one folder with every program, at no cost in space.
fn link_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            link_tree(&entry.path(), &target)?;
        } else {
            fs::hard_link(entry.path(), &target)
                .with_context(|| format!("link {}", target.display()))?;
        }
    }
    Ok(())
}
