//! The container images that a node has before it ever pulls one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::oci::{Files, Layout};
use super::{programs, sources};
use crate::build_command::{bound, run};
use crate::tools::{FLANNEL_VERSION, Programs};

/// The name that flannel's own manifests use, so that the operator's manifest is the same here and elsewhere.
const FLANNEL: &str = "ghcr.io/flannel-io/flannel";
/// An image with a shell, a web server and a client, for workloads of tests.
const BUSYBOX: &str = "registry.local/busybox:1";

/// The names under which kubeadm of this version asks for its images.
pub(super) struct References {
    all: BTreeMap<String, String>,
    /// The image that holds a Pod's namespaces open.
    pub(super) pause: String,
}

impl References {
    /// Asks kubeadm: its releases change these names and versions.
    pub(super) fn of_kubeadm(built: &Programs, kubernetes: &str) -> Result<Self> {
        let printed = run(bound(built.path("kubeadm")).args([
            "config",
            "images",
            "list",
            "--kubernetes-version",
            kubernetes,
        ]))?;
        Self::parse(&printed)
    }

    fn parse(printed: &str) -> Result<Self> {
        let all: BTreeMap<String, String> = printed
            .lines()
            .filter_map(|line| {
                let (path, _) = line.rsplit_once(':')?;
                let name = path.rsplit_once('/')?.1;
                Some((name.to_owned(), line.to_owned()))
            })
            .collect();
        let pause = all
            .get("pause")
            .context("kubeadm names no pause image")?
            .clone();
        Ok(Self { all, pause })
    }

    fn get(&self, name: &str) -> Result<&str> {
        self.all
            .get(name)
            .map(String::as_str)
            .with_context(|| format!("kubeadm names no image {name}"))
    }
}

/// The images, written.
pub(super) struct Written {
    /// One OCI archive with all of them.
    pub(super) archive: PathBuf,
    /// Its index, which names each by digest.
    pub(super) index: String,
}

/// Images of one static program each: its name, its place in the container, and the programs beside it.
const SINGLE: &[(&str, &str, &[&str])] = &[
    ("pause", "pause", &[]),
    ("coredns", "coredns", &[]),
    ("kube-apiserver", "usr/local/bin/kube-apiserver", &[]),
    (
        "kube-controller-manager",
        "usr/local/bin/kube-controller-manager",
        &[],
    ),
    ("kube-scheduler", "usr/local/bin/kube-scheduler", &[]),
    // The version that is built stands in for the one that kubeadm names: both are patch releases of one minor.
    ("etcd", "usr/local/bin/etcd", &["etcdctl", "etcdutl"]),
];

/// Writes all images into one archive in `scratch`, which is created.
pub(super) fn write(
    scratch: &Path,
    built: &Programs,
    debian: &Path,
    references: &References,
) -> Result<Written> {
    fs::create_dir(scratch).with_context(|| format!("create {}", scratch.display()))?;
    let mut layout = Layout::new(scratch);
    for (program, place, beside) in SINGLE {
        let mut files = skeleton();
        files.copy(place, built.path(program));
        for other in *beside {
            files.copy(&format!("usr/local/bin/{other}"), built.path(other));
        }
        let layer = layout.layer(&files)?;
        layout.image(references.get(program)?, &format!("/{place}"), &[&layer])?;
    }

    let mut files = skeleton();
    programs::add_busybox(&mut files, debian)?;
    let busybox = layout.layer(&files)?;
    layout.image(BUSYBOX, "/usr/bin/busybox", &[&busybox])?;

    let mut files = Files::default();
    programs::add_network(&mut files, debian)?;
    let network = layout.layer(&files)?;

    let mut files = Files::default();
    files.copy(
        "usr/local/bin/kube-proxy",
        sources().join("kube-proxy/kube-proxy"),
    );
    files.copy("usr/local/libexec/kube-proxy", built.path("kube-proxy"));
    let proxy = layout.layer(&files)?;
    layout.image(
        references.get("kube-proxy")?,
        "/usr/local/bin/kube-proxy",
        &[&busybox, &network, &proxy],
    )?;

    let mut files = Files::default();
    files.copy("opt/bin/flanneld", built.path("flanneld"));
    let flannel = layout.layer(&files)?;
    let reference = format!("{FLANNEL}:{FLANNEL_VERSION}");
    layout.image(
        &reference,
        "/opt/bin/flanneld",
        &[&busybox, &network, &flannel],
    )?;

    let archive = scratch.join("images.tar");
    let index = layout.write(&archive)?;
    Ok(Written { archive, index })
}

/// What programs expect in any root.
fn skeleton() -> Files {
    let mut files = Files::default();
    files.folder("tmp", 0o1777);
    for folder in ["run", "var/lib", "var/run"] {
        files.folder(folder, 0o755);
    }
    files.text(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    );
    files.text("etc/group", "root:x:0:\nnogroup:x:65534:\n");
    files.text("etc/nsswitch.conf", "hosts: files dns\n");
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_by_the_last_part_of_their_name() {
        let references = References::parse(
            "registry.example/kube-apiserver:v1.2.3\nregistry.example/coredns/coredns:v1.0.0\nregistry.example/pause:3\n",
        )
        .unwrap();
        assert_eq!(references.pause, "registry.example/pause:3");
        assert_eq!(
            references.get("coredns").unwrap(),
            "registry.example/coredns/coredns:v1.0.0"
        );
        assert!(references.get("etcd").is_err());
    }

    #[test]
    fn a_kubeadm_without_a_pause_image_is_refused() {
        assert!(References::parse("registry.example/etcd:3\n").is_err());
    }
}
