//! Why a document cannot be rendered.

/// What is wrong with the inputs, and what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a release that is supported.
    #[error("`{0}` is no supported Kubernetes version: give v1.34.x to v1.37.x, such as v1.36.3")]
    UnsupportedVersion(String),
    /// A name that cannot be a host name and a Node name.
    #[error(
        "{what} `{name}` must be 1 to 63 lower-case letters, digits or `-`, starting and ending with a letter or digit"
    )]
    BadName {
        /// Which name.
        what: &'static str,
        /// As given.
        name: String,
    },
    /// A value that has another form.
    #[error("{what} `{value}` is not {expected}")]
    BadValue {
        /// Which value.
        what: &'static str,
        /// As given.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A control-plane machine, or any machine with masquerade, without a stable address.
    #[error(
        "machine `{0}` needs the address of its Service: its own address changes at each restart"
    )]
    MissingServiceAddress(String),
    /// A stable address where none is used.
    #[error("machine `{0}` is a worker with bridge binding: it takes no Service address")]
    NeedlessServiceAddress(String),
    /// A worker that is said to carry workloads beside a control plane.
    #[error("machine `{0}` is a worker: only a control-plane machine can be converged")]
    ConvergedWorker(String),
    /// Pods and services of the guest share addresses.
    #[error("the pod range {pods} and the service range {services} overlap")]
    OverlappingRanges {
        /// Pods.
        pods: String,
        /// Services.
        services: String,
    },
    /// A label that the API server forbids kubelets to set on their own Node.
    #[error("a kubelet may not give its own Node the label `{0}`: set it once the Node exists")]
    ForbiddenLabel(String),
    /// An extra argument that would undo what the rendering relies on.
    #[error("the argument `{argument}` of {component} is set by the operator and cannot be given")]
    ReservedArgument {
        /// Which program.
        component: &'static str,
        /// Which argument.
        argument: String,
    },
    /// A worker's secrets for a control-plane machine, or the other way round.
    #[error("the secrets given do not belong to the role of machine `{0}`")]
    WrongSecrets(String),
    /// The document cannot be written as JSON.
    #[error("the document cannot be written: {0}")]
    Unwritable(String),
}
