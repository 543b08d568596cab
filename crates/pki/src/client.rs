//! Client certificates: who connects, and how the other side knows them.

use crate::{Certificate, PrivateKey};

/// Whom a client certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientProfile {
    /// The user's administrator, for the kubeconfig Secret. Its group is kubeadm's own
    /// `kubeadm:cluster-admins`, which is administrator by a ClusterRoleBinding that `kubeadm
    /// init` makes: if the kubeconfig leaks, deleting that binding takes its rights away.
    /// `system:masters`, which Cluster API uses here, cannot be taken away before the
    /// certificate ends.
    Admin,
    /// The operator at a guest's API server. `system:masters` on purpose: it must be able to
    /// work before the first binding exists and to repair a guest whose RBAC is broken. The
    /// certificate never leaves the operator's memory and lives for [`crate::OPERATOR_LIFETIME`].
    Operator,
    /// The operator at a guest's etcd; signed by the etcd authority. etcd asks for no name, only
    /// for a certificate of its authority that is meant for clients.
    Etcd,
}

impl ClientProfile {
    /// The user that the certificate names.
    pub const fn common_name(self) -> &'static str {
        match self {
            Self::Admin => "kubernetes-admin",
            Self::Operator => "guestcluster-operator",
            Self::Etcd => "guestcluster-operator-etcd",
        }
    }

    /// The group that the certificate names.
    pub const fn organization(self) -> Option<&'static str> {
        match self {
            Self::Admin => Some("kubeadm:cluster-admins"),
            Self::Operator => Some("system:masters"),
            Self::Etcd => None,
        }
    }
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct ClientCredentials {
    /// The certificate.
    pub certificate: Certificate,
    /// Its key.
    pub key: PrivateKey,
}
