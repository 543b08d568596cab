//! Labels, annotations, finalizers and field managers: every key that we write on an object.

/// The API group of our kinds, and the prefix of every key below.
pub const GROUP: &str = "guestcluster.dev";

/// Name of the GuestCluster that an object belongs to.
pub const CLUSTER: &str = "guestcluster.dev/cluster";
/// UID of that GuestCluster, so that two clusters of one name never meet.
pub const CLUSTER_UID: &str = "guestcluster.dev/cluster-uid";
/// Namespace of that GuestCluster, on objects of ours that are in none.
pub const NAMESPACE: &str = "guestcluster.dev/namespace";
/// Tenant of the cluster: `spec.tenant`, or the namespace.
pub const TENANT: &str = "guestcluster.dev/tenant";
/// `control-plane` or `worker`.
pub const ROLE: &str = "guestcluster.dev/role";
/// Name of the pool: `cp` for the control plane.
pub const POOL: &str = "guestcluster.dev/pool";
/// Name of the machine: VM, Service, Secrets, disks, guest Node and etcd member share it.
pub const MACHINE: &str = "guestcluster.dev/machine";
/// Digest of the rendered machine; a VM whose value differs from today's render is outdated.
pub const TEMPLATE_HASH: &str = "guestcluster.dev/template-hash";
/// Annotation on a VM: `true` takes its machine out of the operator's hands until it is removed.
/// Nothing of the machine is written, replaced or counted as trouble meanwhile.
pub const UNMANAGED: &str = "guestcluster.dev/unmanaged";
/// `serving` on control-plane launcher Pods that the endpoint Service may select. Taking the label
/// off a Pod takes its machine out of the endpoint without touching the machine.
pub const ENDPOINT: &str = "guestcluster.dev/endpoint";
/// Value of [`ENDPOINT`].
pub const ENDPOINT_SERVING: &str = "serving";
/// Annotation on a launcher Pod: when its machine was taken out of the endpoint (RFC 3339).
pub const LEFT_ENDPOINT: &str = "guestcluster.dev/left-endpoint";
/// Annotation on a launcher Pod: its machine is not moved out of it while it runs, since that took
/// too long.
pub const MIGRATION_RULED_OUT: &str = "guestcluster.dev/migration-ruled-out";
/// On a namespace: it holds guest clusters and nothing else.
pub const GUESTS_NAMESPACE: &str = "guestcluster.dev/guests";
/// `service` on VMs whose address inside the guest is that of their Service (masquerade binding).
pub const STABLE_ADDRESS: &str = "guestcluster.dev/stable-address";
/// Value of [`STABLE_ADDRESS`].
pub const STABLE_ADDRESS_SERVICE: &str = "service";
/// `lab` on control-plane machines that may share a host with anything ([`Profile::Lab`]).
///
/// [`Profile::Lab`]: crate::spec::Profile::Lab
pub const PROFILE: &str = "guestcluster.dev/profile";
/// Value of [`PROFILE`].
pub const PROFILE_LAB: &str = "lab";
/// Digest of the source that a golden disk image was imported from.
pub const IMAGE: &str = "guestcluster.dev/image";
/// `root` or `etcd` on a machine's disks; `golden` on an imported image.
pub const DISK: &str = "guestcluster.dev/disk";
/// On a claim that outlived its cluster because of `deletion.disks: Retain`.
pub const RETAINED: &str = "guestcluster.dev/retained";
/// What a Secret of ours holds: see [`secret_purpose`].
pub const SECRET: &str = "guestcluster.dev/secret";
/// Values of [`SECRET`].
pub mod secret_purpose {
    /// A certificate authority or the service-account key pair.
    pub const AUTHORITY: &str = "authority";
    /// The administrator's kubeconfig.
    pub const KUBECONFIG: &str = "kubeconfig";
    /// First-boot document of one machine.
    pub const USER_DATA: &str = "user-data";
}
/// Annotation on a user-data Secret: id of the bootstrap token that it carries.
pub const TOKEN_ID: &str = "guestcluster.dev/token-id";
/// Annotation on a kubeconfig's and on a user-data Secret: `host:port` of the guest's API under which
/// its reader looks for it.
pub const SERVER: &str = "guestcluster.dev/server";
/// Annotation on a kubeconfig's Secret: when it is to be made anew (RFC 3339).
pub const RENEW_AT: &str = "guestcluster.dev/renew-at";
/// Annotation on a user-data Secret: `true` once keys and tokens have been taken out of it.
pub const SCRUBBED: &str = "guestcluster.dev/scrubbed";

/// Who manages an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`].
pub const OPERATOR: &str = "guestcluster-operator";
/// Cluster API's cluster label, which KubeVirt's cloud provider and CSI driver look for.
pub const CAPI_CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
/// Cluster API's role label.
pub const CAPI_ROLE: &str = "cluster.x-k8s.io/role";

/// In the guest: the host on which a Node's machine runs.
pub const NODE_HOST: &str = "guestcluster.dev/host";
/// In the guest: the zone of that host, if it is in one.
pub const NODE_ZONE: &str = "guestcluster.dev/zone";
/// In the guest: the VirtualMachine of a Node, in the namespace of its GuestCluster.
pub const NODE_VM: &str = "guestcluster.dev/vm";
/// In the guest: the pool of a Node's machine.
pub const NODE_POOL: &str = "guestcluster.dev/pool";

/// Kubernetes' own label for the zone of a Node, on hosts and in guests.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// In the guest, an annotation on kubeadm's configuration: the version that the add-ons were brought to.
pub const ADDONS: &str = "guestcluster.dev/addons";
/// In the guest, an annotation on a Node that we cordoned: when its drain began (RFC 3339).
pub const NODE_DRAIN: &str = "guestcluster.dev/drain-began";

/// Annotation on a Node of the infrastructure cluster: the HostMaintenance that cordoned it, and that
/// uncordons it at its end.
pub const CORDONED_BY: &str = "guestcluster.dev/cordoned-by";

/// Our finalizer on a GuestCluster and on a HostMaintenance.
pub const FINALIZER: &str = "guestcluster.dev/cleanup";

/// Field managers, one per place that writes.
pub mod managers {
    /// Objects in the infrastructure cluster.
    pub const OPERATOR: &str = "guestcluster-operator";
    /// Status of our own kinds.
    pub const STATUS: &str = "guestcluster-operator/status";
    /// Objects inside a guest.
    pub const GUEST: &str = "guestcluster-operator/guest";
    /// Objects of Clusters of Cluster API.
    pub const PROVIDER: &str = "guestcluster-operator/capk-provider";
    /// Status of the kinds of Cluster API's provider.
    pub const PROVIDER_STATUS: &str = "guestcluster-operator/capk-provider-status";
    /// Notes on the add-ons inside a guest.
    pub const GUEST_ADDONS: &str = "guestcluster-operator/addons";
}

/// Role of a machine in its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs the guest's API server and an etcd member.
    ControlPlane,
    /// Runs the tenant's workload.
    Worker,
}

impl Role {
    /// The value of the label [`ROLE`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Worker => "worker",
        }
    }
}
