//! Whether a Cluster can be adopted: what stands against it, and what its owner should know.
//!
//! Every rule looks at one reading. What was not read counts as something against it, never as
//! something that is not there.

mod calm;
mod endpoint;
mod etcd;
mod keys;
mod machines;
mod shape;
mod specification;

use std::fmt;

use serde::Serialize;

use super::guest::Made;
use super::inventory::Member;
use super::seen::Seen;

/// Why a Cluster is not adopted, or what to know before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Reason {
    /// A kind was asked for and not answered.
    NotRead,
    /// A ClusterClass would change back what changes.
    ClusterClass,
    /// Its control plane is not made by kubeadm's provider.
    ControlPlaneProvider,
    /// Its machines are not booted by kubeadm's provider.
    BootstrapProvider,
    /// Its machines do not boot from cloud-init.
    BootFormat,
    /// Its machines are not CAPK's.
    InfrastructureProvider,
    /// Its etcd is not on its machines.
    ExternalEtcd,
    /// Its VMs run in another cluster than its objects.
    OtherInfrastructure,
    /// Another than CAPK takes care of its endpoint.
    ManagedElsewhere,
    /// Its VMs or its Service are in another namespace.
    OtherNamespace,
    /// It has MachinePools.
    MachinePool,
    /// A Machine of no pool.
    StandsAlone,
    /// Its controllers are paused, so what they say may be old.
    Paused,
    /// Something of it is being deleted.
    Deleting,
    /// Machines come or go, or are replaced.
    Rollout,
    /// A machine is being replaced because it failed.
    Remediation,
    /// A Machine that is no running Node.
    NotRunning,
    /// A Machine without CAPK's machine or VM, or with somebody else's.
    NoMachine,
    /// An instance that does not run or is not ready.
    NotReady,
    /// An instance that leaves its host.
    Leaving,
    /// A person has given a machine up.
    GivenUp,
    /// A VM or a KubevirtMachine without a Machine.
    StrayMachine,
    /// A Node that is not what its Machine says, or has another name than its VM.
    NodeDiffers,
    /// A Node without a Machine.
    StrayNode,
    /// The guest was not read.
    GuestUnknown,
    /// Members of etcd are not healthy, or are not known.
    EtcdUnhealthy,
    /// Members of etcd are not the control-plane machines.
    EtcdMembers,
    /// An authority is missing, or its key.
    KeysMissing,
    /// What a machine boots from at its next start is missing.
    UserDataMissing,
    /// No GuestCluster can say what it is.
    NoGuestCluster,
    /// Its name or a pool's is none of ours.
    Name,
    /// Its Kubernetes is not supported.
    Version,
    /// Its parts are of different versions.
    VersionsDiffer,
    /// Its ranges are not expressible, or not what the guest uses.
    Ranges,
    /// Its endpoint cannot be kept.
    Endpoint,
    /// A name that we need is taken.
    NameTaken,
    /// An autoscaler counts a pool.
    Autoscaler,
    /// A Node takes no Pods.
    Cordoned,
    /// A VM was edited, and its next start is another.
    RestartPending,
    /// Control-plane machines are on one host.
    SharesHost,
    /// Other Clusters are in its namespace.
    SharesNamespace,
    /// Control-plane machines lose their address when they restart.
    AddressOfPod,
    /// Its endpoint is somebody else's.
    ForeignEndpoint,
}

impl Reason {
    /// Whether it stands against the adoption; otherwise it is a warning.
    pub const fn blocks(self) -> bool {
        !matches!(
            self,
            Self::Autoscaler
                | Self::Cordoned
                | Self::RestartPending
                | Self::SharesHost
                | Self::SharesNamespace
                | Self::AddressOfPod
                | Self::ForeignEndpoint
        )
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub reason: Reason,
    /// The object that it is about, as people name it.
    pub object: String,
    /// What is so.
    pub what: String,
    /// What to do about it.
    pub cure: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.object, self.what, self.cure)
    }
}

/// What was found, in the order of the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What stands against the adoption. None: it can be.
    pub reasons: Vec<Finding>,
    /// What does not stand against it.
    pub warnings: Vec<Finding>,
}

impl Verdict {
    /// Nothing stands against it.
    pub fn is_accepted(&self) -> bool {
        self.reasons.is_empty()
    }

    fn say(
        &mut self,
        reason: Reason,
        object: impl Into<String>,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) {
        let finding = Finding {
            reason,
            object: object.into(),
            what: what.into(),
            cure: cure.into(),
        };
        if reason.blocks() {
            self.reasons.push(finding);
        } else {
            self.warnings.push(finding);
        }
    }
}

/// Rules, in the order in which a person wants to hear of them: what can never be first, what may
/// pass last.
const RULES: [fn(&Case<'_>, &mut Verdict); 8] = [
    shape::read,
    shape::providers,
    specification::check,
    endpoint::check,
    keys::check,
    calm::check,
    machines::check,
    etcd::check,
];

/// What the rules look at.
pub(super) struct Case<'a> {
    pub(super) seen: &'a Seen,
    pub(super) members: &'a [Member],
    pub(super) made: &'a Made,
}

/// Judges one reading.
pub(super) fn judge(case: &Case<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    for rule in RULES {
        rule(case, &mut verdict);
    }
    verdict
}
