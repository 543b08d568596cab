//! Which programs are built from which module, and how.

/// The version of Kubernetes, on the infrastructure and in the node image.
pub const KUBERNETES_VERSION: &str = "v1.36.3";
/// The version of KubeVirt.
pub const KUBEVIRT_VERSION: &str = "v1.8.0";
/// The version of etcd.
pub const ETCD_VERSION: &str = "v3.6.15";
/// The version of containerd.
pub const CONTAINERD_VERSION: &str = "v2.4.2";
/// The version of CoreDNS.
pub const COREDNS_VERSION: &str = "v1.14.2";
/// The version of flannel.
pub const FLANNEL_VERSION: &str = "v0.27.4";
/// The version of Helm.
pub const HELM_VERSION: &str = "v4.3.1";

/// A Go module under `hack/tools`.
pub(super) struct Module {
    /// Its folder.
    pub(super) name: &'static str,
    /// Whether its programs have C code, which is then linked statically.
    pub(super) cgo: bool,
    /// What is built from it, in this order.
    pub(super) programs: &'static [Program],
    /// The Go package whose CustomResourceDefinitions its controller-gen writes.
    pub(super) crds: Option<&'static str>,
}

/// A program of a module.
pub(super) struct Program {
    /// The name it gets.
    pub(super) name: &'static str,
    /// The Go package of its main function.
    pub(super) package: &'static str,
    /// Go variables that are set when linking: without them the programs don't know their version, and kubeadm and
    /// kubectl refuse to work with a server whose version they can't read.
    pub(super) variables: &'static [(&'static str, &'static str)],
}

const fn program(name: &'static str, package: &'static str) -> Program {
    Program {
        name,
        package,
        variables: &[],
    }
}

const fn kubernetes(name: &'static str, package: &'static str) -> Program {
    Program {
        name,
        package,
        variables: KUBERNETES_VARIABLES,
    }
}

const fn containerd(name: &'static str, package: &'static str) -> Program {
    Program {
        name,
        package,
        variables: CONTAINERD_VARIABLES,
    }
}

const KUBERNETES_VARIABLES: &[(&str, &str)] = &[
    (
        "k8s.io/component-base/version.gitVersion",
        KUBERNETES_VERSION,
    ),
    ("k8s.io/component-base/version.gitMajor", "1"),
    ("k8s.io/component-base/version.gitMinor", "36"),
];

const CONTAINERD_VARIABLES: &[(&str, &str)] = &[(
    "github.com/containerd/containerd/v2/version.Version",
    CONTAINERD_VERSION,
)];

/// Every module. The order is that of the builds: what takes longest comes first, so that a build that will fail for
/// lack of space or memory fails early.
pub(super) const MODULES: &[Module] = &[
    Module {
        name: "kubernetes",
        cgo: false,
        programs: &[
            kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            kubernetes(
                "kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
            ),
            kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            kubernetes("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
            kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
            kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
        ],
        crds: None,
    },
    Module {
        name: "kubevirt",
        cgo: false,
        programs: &[
            program("virt-api", "kubevirt.io/kubevirt/cmd/virt-api"),
            program(
                "virt-controller",
                "kubevirt.io/kubevirt/cmd/virt-controller",
            ),
            program(
                "kubevirt-objects",
                "guestcluster.dev/hack/tools/kubevirt/objects",
            ),
        ],
        crds: None,
    },
    Module {
        name: "etcd",
        cgo: false,
        programs: &[
            program("etcd", "go.etcd.io/etcd/server/v3"),
            program("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
            program("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
        ],
        crds: None,
    },
    Module {
        name: "containerd",
        cgo: false,
        programs: &[
            containerd(
                "containerd",
                "github.com/containerd/containerd/v2/cmd/containerd",
            ),
            containerd(
                "containerd-shim-runc-v2",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            ),
            containerd("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
        ],
        crds: None,
    },
    Module {
        name: "coredns",
        cgo: false,
        programs: &[program("coredns", "github.com/coredns/coredns")],
        crds: None,
    },
    Module {
        name: "flannel",
        cgo: true,
        programs: &[Program {
            name: "flanneld",
            package: "github.com/flannel-io/flannel",
            variables: &[(
                "github.com/flannel-io/flannel/pkg/version.Version",
                FLANNEL_VERSION,
            )],
        }],
        crds: None,
    },
    Module {
        name: "cri-tools",
        cgo: false,
        programs: &[Program {
            name: "crictl",
            package: "sigs.k8s.io/cri-tools/cmd/crictl",
            variables: &[("sigs.k8s.io/cri-tools/pkg/version.Version", "v1.36.0")],
        }],
        crds: None,
    },
    Module {
        name: "helm",
        cgo: false,
        programs: &[Program {
            name: "helm",
            package: "helm.sh/helm/v4/cmd/helm",
            variables: &[("helm.sh/helm/v4/internal/version.version", HELM_VERSION)],
        }],
        crds: None,
    },
    Module {
        name: "cdi-crds",
        cgo: false,
        programs: &[program(
            "controller-gen",
            "sigs.k8s.io/controller-tools/cmd/controller-gen",
        )],
        crds: Some("kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"),
    },
    Module {
        name: "pause",
        cgo: false,
        programs: &[program("pause", "guestcluster.dev/hack/tools/pause")],
        crds: None,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::build::module_folder;

    fn pins(module: &str) -> String {
        std::fs::read_to_string(module_folder(module).join("go.mod")).unwrap()
    }

    #[test]
    fn the_versions_named_here_are_those_that_the_modules_pin() {
        for (module, path, version) in [
            ("kubernetes", "k8s.io/kubernetes", KUBERNETES_VERSION),
            ("kubevirt", "kubevirt.io/kubevirt", KUBEVIRT_VERSION),
            ("etcd", "go.etcd.io/etcd/server/v3", ETCD_VERSION),
            (
                "containerd",
                "github.com/containerd/containerd/v2",
                CONTAINERD_VERSION,
            ),
            ("coredns", "github.com/coredns/coredns", COREDNS_VERSION),
            ("flannel", "github.com/flannel-io/flannel", FLANNEL_VERSION),
            ("helm", "helm.sh/helm/v4", HELM_VERSION),
            ("cri-tools", "sigs.k8s.io/cri-tools", "v1.36.0"),
        ] {
            assert!(
                pins(module).contains(&format!("{path} {version}")),
                "{module} pins another {path}"
            );
        }
    }

    #[test]
    fn every_program_of_another_module_is_pinned_as_a_tool() {
        for module in MODULES {
            let pins = pins(module.name);
            for program in module
                .programs
                .iter()
                .filter(|program| program.name != "pause")
            {
                assert!(
                    pins.contains(program.package),
                    "{} does not name {}",
                    module.name,
                    program.package
                );
            }
        }
    }

    #[test]
    fn no_two_programs_share_a_name() {
        let mut names: Vec<&str> = MODULES
            .iter()
            .flat_map(|module| module.programs)
            .map(|program| program.name)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
