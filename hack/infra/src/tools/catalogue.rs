//! Which programs are built from which module, and how.

use super::definitions::{self, Definitions};

/// The version of Kubernetes on the infrastructure, and in the node image that machines boot from unless they ask for
/// another.
pub const KUBERNETES_VERSION: &str = "v1.36.3";
/// The version of Kubernetes that guests are upgraded to.
pub const NEXT_KUBERNETES_VERSION: &str = "v1.37.2";
/// The version of KubeVirt.
pub const KUBEVIRT_VERSION: &str = "v1.8.0";
/// The version of etcd.
pub const ETCD_VERSION: &str = "v3.6.15";
/// The version of etcd beside the next Kubernetes.
pub const NEXT_ETCD_VERSION: &str = "v3.7.3";
/// The version of containerd.
pub const CONTAINERD_VERSION: &str = "v2.4.2";
/// The version of CoreDNS.
pub const COREDNS_VERSION: &str = "v1.14.2";
/// The version of CoreDNS beside the next Kubernetes.
pub const NEXT_COREDNS_VERSION: &str = "v1.14.6";
/// The version of flannel.
pub const FLANNEL_VERSION: &str = "v0.27.4";
/// The version of Helm.
pub const HELM_VERSION: &str = "v4.3.1";

/// A minor release of Kubernetes that there is a node image of.
///
/// Two are what an upgrade of a guest takes: Kubernetes supports no step of more than one minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The infrastructure's own.
    Current,
    /// The minor after it.
    Next,
}

impl Release {
    /// Its version, with its v.
    pub fn version(self) -> &'static str {
        match self {
            Self::Current => KUBERNETES_VERSION,
            Self::Next => NEXT_KUBERNETES_VERSION,
        }
    }

    /// The modules of a node's programs: those that go with Kubernetes' minor, and those that any minor runs on.
    pub(super) fn node_modules(self) -> [&'static Module; 7] {
        let [kubernetes, etcd, coredns] = match self {
            Self::Current => [&KUBERNETES, &ETCD, &COREDNS],
            Self::Next => [&NEXT_KUBERNETES, &NEXT_ETCD, &NEXT_COREDNS],
        };
        [
            kubernetes,
            etcd,
            &CONTAINERD,
            coredns,
            &FLANNEL,
            &CRI_TOOLS,
            &PAUSE,
        ]
    }
}

/// A Go module under `hack/tools`.
pub(super) struct Module {
    /// Its folder.
    pub(super) name: &'static str,
    /// Whether its programs have C code, which is then linked statically.
    pub(super) cgo: bool,
    /// What is built from it, in this order.
    pub(super) programs: &'static [Program],
    /// Which CustomResourceDefinitions it gives.
    pub(super) crds: Option<Definitions>,
}

impl Module {
    /// A module without C code and definitions.
    pub(super) const fn plain(name: &'static str, programs: &'static [Program]) -> Self {
        Self {
            name,
            cgo: false,
            programs,
            crds: None,
        }
    }
}

/// A program of a module.
pub(super) struct Program {
    /// The name it gets.
    pub(super) name: &'static str,
    /// The Go package of its main function.
    pub(super) package: &'static str,
    /// Go variables that are set when linking: without them the programs don't know their version, and kubeadm and
    /// kubectl refuse to work with a server whose version they can't read.
    pub(super) variables: Variables,
}

pub(super) type Variables = &'static [(&'static str, &'static str)];

pub(super) const fn program(name: &'static str, package: &'static str) -> Program {
    versioned(name, package, &[])
}

pub(super) const fn versioned(
    name: &'static str,
    package: &'static str,
    variables: Variables,
) -> Program {
    Program {
        name,
        package,
        variables,
    }
}

/// Kubernetes' programs, all of which a node runs.
const fn kubernetes(variables: Variables) -> [Program; 7] {
    [
        versioned(
            "kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-apiserver",
            variables,
        ),
        versioned(
            "kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            variables,
        ),
        versioned(
            "kube-scheduler",
            "k8s.io/kubernetes/cmd/kube-scheduler",
            variables,
        ),
        versioned("kubeadm", "k8s.io/kubernetes/cmd/kubeadm", variables),
        versioned("kubectl", "k8s.io/kubernetes/cmd/kubectl", variables),
        versioned("kubelet", "k8s.io/kubernetes/cmd/kubelet", variables),
        versioned("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy", variables),
    ]
}

/// etcd and its tools.
const fn etcd() -> [Program; 3] {
    [
        program("etcd", "go.etcd.io/etcd/server/v3"),
        program("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
        program("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
    ]
}

const KUBERNETES: Module = Module::plain(
    "kubernetes",
    &kubernetes(&[
        (
            "k8s.io/component-base/version.gitVersion",
            KUBERNETES_VERSION,
        ),
        ("k8s.io/component-base/version.gitMajor", "1"),
        ("k8s.io/component-base/version.gitMinor", "36"),
    ]),
);

const NEXT_KUBERNETES: Module = Module::plain(
    "kubernetes-next",
    &kubernetes(&[
        (
            "k8s.io/component-base/version.gitVersion",
            NEXT_KUBERNETES_VERSION,
        ),
        ("k8s.io/component-base/version.gitMajor", "1"),
        ("k8s.io/component-base/version.gitMinor", "37"),
    ]),
);

const ETCD: Module = Module::plain("etcd", &etcd());
const NEXT_ETCD: Module = Module::plain("etcd-next", &etcd());

const COREDNS: Module = Module::plain(
    "coredns",
    &[program("coredns", "github.com/coredns/coredns")],
);
const NEXT_COREDNS: Module = Module::plain(
    "coredns-next",
    &[program("coredns", "github.com/coredns/coredns")],
);

const KUBEVIRT: Module = Module::plain(
    "kubevirt",
    &[
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
);

const CONTAINERD_VARIABLES: Variables = &[(
    "github.com/containerd/containerd/v2/version.Version",
    CONTAINERD_VERSION,
)];

const CONTAINERD: Module = Module::plain(
    "containerd",
    &[
        versioned(
            "containerd",
            "github.com/containerd/containerd/v2/cmd/containerd",
            CONTAINERD_VARIABLES,
        ),
        versioned(
            "containerd-shim-runc-v2",
            "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            CONTAINERD_VARIABLES,
        ),
        versioned(
            "ctr",
            "github.com/containerd/containerd/v2/cmd/ctr",
            CONTAINERD_VARIABLES,
        ),
    ],
);

const FLANNEL: Module = Module {
    name: "flannel",
    cgo: true,
    programs: &[versioned(
        "flanneld",
        "github.com/flannel-io/flannel",
        &[(
            "github.com/flannel-io/flannel/pkg/version.Version",
            FLANNEL_VERSION,
        )],
    )],
    crds: None,
};

const CRI_TOOLS: Module = Module::plain(
    "cri-tools",
    &[versioned(
        "crictl",
        "sigs.k8s.io/cri-tools/cmd/crictl",
        &[("sigs.k8s.io/cri-tools/pkg/version.Version", "v1.36.0")],
    )],
);

const HELM: Module = Module::plain(
    "helm",
    &[versioned(
        "helm",
        "helm.sh/helm/v4/cmd/helm",
        &[("helm.sh/helm/v4/internal/version.version", HELM_VERSION)],
    )],
);

const CDI_CRDS: Module = Module {
    name: "cdi-crds",
    cgo: false,
    programs: &[program(
        "controller-gen",
        "sigs.k8s.io/controller-tools/cmd/controller-gen",
    )],
    crds: Some(Definitions::Generated(
        "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1",
    )),
};

const PAUSE: Module = Module::plain(
    "pause",
    &[program("pause", "guestcluster.dev/hack/tools/pause")],
);

/// The modules of the infrastructure. The order is that of the builds: what takes longest comes first, so that a build
/// that will fail for lack of space or memory fails early.
pub(super) const INFRASTRUCTURE: &[&Module] = &[
    &KUBERNETES,
    &KUBEVIRT,
    &ETCD,
    &CONTAINERD,
    &COREDNS,
    &FLANNEL,
    &CRI_TOOLS,
    &HELM,
    &CDI_CRDS,
    &definitions::CLUSTER_API,
    &definitions::CAPK,
    &PAUSE,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::build::module_folder;

    const RELEASES: [Release; 2] = [Release::Current, Release::Next];

    fn pins(module: &str) -> String {
        std::fs::read_to_string(module_folder(module).join("go.mod")).unwrap()
    }

    fn sets() -> Vec<Vec<&'static Module>> {
        let nodes = RELEASES.map(|release| release.node_modules().to_vec());
        [INFRASTRUCTURE.to_vec()].into_iter().chain(nodes).collect()
    }

    #[test]
    fn the_versions_named_here_are_those_that_the_modules_pin() {
        for (module, path, version) in [
            ("kubernetes", "k8s.io/kubernetes", KUBERNETES_VERSION),
            (
                "kubernetes-next",
                "k8s.io/kubernetes",
                NEXT_KUBERNETES_VERSION,
            ),
            ("kubevirt", "kubevirt.io/kubevirt", KUBEVIRT_VERSION),
            ("etcd", "go.etcd.io/etcd/server/v3", ETCD_VERSION),
            ("etcd-next", "go.etcd.io/etcd/server/v3", NEXT_ETCD_VERSION),
            (
                "containerd",
                "github.com/containerd/containerd/v2",
                CONTAINERD_VERSION,
            ),
            ("coredns", "github.com/coredns/coredns", COREDNS_VERSION),
            (
                "coredns-next",
                "github.com/coredns/coredns",
                NEXT_COREDNS_VERSION,
            ),
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
        for module in sets().concat() {
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
    fn no_two_programs_of_a_set_share_a_name() {
        for set in sets() {
            let mut names: Vec<&str> = set
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

    #[test]
    fn the_minor_that_programs_tell_is_that_of_their_version() {
        for release in RELEASES {
            let [kubernetes, ..] = release.node_modules();
            for program in kubernetes.programs {
                let (_, minor) = program.variables[2];
                assert!(release.version().starts_with(&format!("v1.{minor}.")));
            }
        }
    }
}
