//! CustomResourceDefinitions that modules give.

use super::catalogue::Module;

/// Where CustomResourceDefinitions come from.
#[derive(Clone, Copy)]
pub(super) enum Definitions {
    /// controller-gen writes them from the types of this Go package.
    Generated(&'static str),
    /// A Go module carries them ready made.
    Published {
        /// Path of the module, pinned like any other.
        module: &'static str,
        /// Its folders with one YAML file each.
        folders: &'static [&'static str],
    },
}

impl Definitions {
    /// What tells them apart in a digest.
    pub(super) fn key(self) -> String {
        match self {
            Self::Generated(package) => package.to_owned(),
            Self::Published { module, folders } => format!("{module} {}", folders.join(" ")),
        }
    }
}

/// A module of which nothing but its definitions is used.
const fn definitions(
    name: &'static str,
    module: &'static str,
    folders: &'static [&'static str],
) -> Module {
    Module {
        name,
        cgo: false,
        programs: &[],
        crds: Some(Definitions::Published { module, folders }),
    }
}

/// Cluster API's own.
pub(super) const CLUSTER_API: Module = definitions(
    "cluster-api-crds",
    "sigs.k8s.io/cluster-api",
    &[
        "core/config/crd/bases",
        "bootstrap/kubeadm/config/crd/bases",
        "controlplane/kubeadm/config/crd/bases",
    ],
);

/// Those of its provider for KubeVirt.
pub(super) const CAPK: Module = definitions(
    "capk-crds",
    "sigs.k8s.io/cluster-api-provider-kubevirt",
    &["config/crd/bases"],
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::build::module_folder;

    #[test]
    fn every_module_of_definitions_pins_what_they_are_read_from() {
        for module in [CLUSTER_API, CAPK] {
            let pins = std::fs::read_to_string(module_folder(module.name).join("go.mod")).unwrap();
            let Some(Definitions::Published { module: path, .. }) = module.crds else {
                unreachable!("{} publishes nothing", module.name);
            };
            assert!(pins.contains(&format!("require {path} v")), "{path}");
        }
    }
}
