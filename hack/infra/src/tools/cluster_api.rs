//! Cluster API's controllers, the KubeVirt provider (CAPK), and the objects that each is installed with.
//!
//! They are built for whoever asks only: an infrastructure works without them. The objects come out of the same
//! modules as the programs, built with kustomize as for a release, so that definitions carry the labels of the
//! contracts that they serve.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::build::module_folder;
use super::catalogue::{Module, Variables, program, versioned};
use super::{assemble, ensure};
use crate::build_command::{bound, run};
use crate::cache::{Cache, KeyBuilder};
use crate::progress::Progress;

/// The version of Cluster API.
pub const CLUSTER_API_VERSION: &str = "v1.14.2";
/// The version of the KubeVirt provider.
pub const CAPK_VERSION: &str = "v0.11.2";

const VARIABLES: Variables = &[
    (
        "sigs.k8s.io/cluster-api/version.gitVersion",
        CLUSTER_API_VERSION,
    ),
    ("sigs.k8s.io/cluster-api/version.gitMajor", "1"),
    ("sigs.k8s.io/cluster-api/version.gitMinor", "14"),
];

const CLUSTER_API: Module = Module::plain(
    "cluster-api",
    &[
        versioned("capi-core", "sigs.k8s.io/cluster-api/core", VARIABLES),
        versioned(
            "capi-kubeadm-bootstrap",
            "sigs.k8s.io/cluster-api/bootstrap/kubeadm",
            VARIABLES,
        ),
        versioned(
            "capi-kubeadm-control-plane",
            "sigs.k8s.io/cluster-api/controlplane/kubeadm",
            VARIABLES,
        ),
        versioned(
            "clusterctl",
            "sigs.k8s.io/cluster-api/cmd/clusterctl",
            VARIABLES,
        ),
    ],
);

const CAPK: Module = Module::plain(
    "capk",
    &[program("capk", "sigs.k8s.io/cluster-api-provider-kubevirt")],
);

/// Where the objects of a program are described: the program, its module's folder here, the Go module, and the
/// folder in it.
const CONFIGURATIONS: [(&str, &str, &str, &str); 4] = [
    (
        "capi-core",
        "cluster-api",
        "sigs.k8s.io/cluster-api",
        "core/config/default",
    ),
    (
        "capi-kubeadm-bootstrap",
        "cluster-api",
        "sigs.k8s.io/cluster-api",
        "bootstrap/kubeadm/config/default",
    ),
    (
        "capi-kubeadm-control-plane",
        "cluster-api",
        "sigs.k8s.io/cluster-api",
        "controlplane/kubeadm/config/default",
    ),
    (
        "capk",
        "capk",
        "sigs.k8s.io/cluster-api-provider-kubevirt",
        "config/default",
    ),
];

/// Programs and objects of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterApi {
    /// The folder of the programs: `capi-core`, `capi-kubeadm-bootstrap`, `capi-kubeadm-control-plane`, `capk` and
    /// `clusterctl`.
    pub bin: PathBuf,
    /// The folder of the objects: `<program>.json`, a list in the order in which they are applied.
    pub objects: PathBuf,
}

/// Builds what is missing of Cluster API; returns at once when everything is cached.
///
/// # Errors
/// Without Go; without the module registry for what isn't cached.
pub fn ensure_cluster_api(progress: &Progress) -> Result<ClusterApi> {
    let kubectl = ensure(progress)?.programs.path("kubectl");
    let (root, digest) = assemble("cluster-api-programs", &[&CLUSTER_API, &CAPK], progress)?;
    let key = KeyBuilder::default()
        .input("programs", digest)
        .input("how", include_str!("cluster_api.rs"))
        .key();
    let objects = Cache::open()?.ensure("cluster-api-objects", &key, progress, |folder| {
        write_objects(&kubectl, folder, progress)
    })?;
    Ok(ClusterApi {
        bin: root.join("bin"),
        objects,
    })
}

fn write_objects(kubectl: &Path, folder: &Path, progress: &Progress) -> Result<()> {
    for (program, module, go_module, configuration) in CONFIGURATIONS {
        let step = progress.step(format!("write the objects of {program}"));
        let source = source_folder(module, go_module)?.join(configuration);
        let text = run(bound(kubectl).arg("kustomize").arg(&source))?;
        let objects = serde_saphyr::from_multiple::<Value>(&with_defaults(&text))
            .with_context(|| format!("the objects of {program}"))?;
        let file = folder.join(format!("{program}.json"));
        fs::write(&file, serde_json::to_vec(&objects)?)?;
        step.done(&format!("{} objects", objects.len()));
    }
    Ok(())
}

/// The folder with the sources of a module, as pinned by the module in the folder `pinned_by`.
fn source_folder(pinned_by: &str, go_module: &str) -> Result<PathBuf> {
    let mut go = bound("go");
    let go = go.current_dir(module_folder(pinned_by));
    let said = run(go
        .env("GOWORK", "off")
        .args(["mod", "download", "-json", go_module]))?;
    let said: Value = serde_json::from_str(&said)?;
    let folder = said["Dir"].as_str();
    let folder = folder.with_context(|| format!("Go has no sources of {go_module}"))?;
    Ok(folder.into())
}

/// Replaces each `${NAME:=default}` by its default, as clusterctl does where the variable is not set.
fn with_defaults(text: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        replaced.push_str(before);
        let expression = after.split_once('}');
        let default =
            expression.and_then(|(inside, tail)| Some((inside.split_once(":=")?.1, tail)));
        if let Some((default, tail)) = default {
            replaced.push_str(default);
            rest = tail;
        } else {
            replaced.push_str("${");
            rest = after;
        }
    }
    replaced.push_str(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_becomes_its_default() {
        for (text, expected) in [
            ("--a=${A:=:8443},${B:=true}.", "--a=:8443,true."),
            ("${A}", "${A}"),
            ("$(A) ${A", "$(A) ${A"),
        ] {
            assert_eq!(with_defaults(text), expected);
        }
    }

    #[test]
    fn the_versions_named_here_are_those_that_the_modules_pin() {
        for (module, path, version) in [
            (
                "cluster-api",
                "sigs.k8s.io/cluster-api",
                CLUSTER_API_VERSION,
            ),
            (
                "capk",
                "sigs.k8s.io/cluster-api-provider-kubevirt",
                CAPK_VERSION,
            ),
        ] {
            let pins = fs::read_to_string(module_folder(module).join("go.mod")).unwrap();
            assert!(pins.contains(&format!("\t{path} {version}")), "{module}");
        }
    }

    #[test]
    fn every_program_is_pinned_as_a_tool() {
        for module in [CLUSTER_API, CAPK] {
            let pins = fs::read_to_string(module_folder(module.name).join("go.mod")).unwrap();
            for program in module.programs {
                assert!(pins.contains(program.package), "{}", program.package);
            }
        }
    }
}
