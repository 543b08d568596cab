//! Condition types and their reasons: closed lists, from which the reference page is generated.

/// Types of conditions on a GuestCluster; all are present from the first visit on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The guest serves as specified: the sum of the others.
    Ready,
    /// Work towards the specification is under way (kstatus: abnormal when True).
    Reconciling,
    /// Nothing will change without a person (kstatus: abnormal when True).
    Stalled,
    /// The specification can be carried out on this infrastructure cluster.
    Accepted,
    /// Were any host to die, every machine of this guest would find another one.
    CapacityAvailable,
    /// Machines stand on hosts as the specification demands.
    PlacementHealthy,
    /// Machines can move to another host while they run (False on the default network and disks).
    LiveMigratable,
    /// No one storage host or zone takes etcd's quorum with it (False does not keep a cluster from being Ready).
    StorageSpread,
    /// All authorities and the kubeconfig exist and are sound.
    CertificatesReady,
    /// The guest API has an address.
    EndpointReady,
    /// Enough API servers of the guest answer.
    ControlPlaneAvailable,
    /// Every etcd member is started and a leader is known.
    EtcdHealthy,
    /// All workers are Ready Nodes.
    WorkersAvailable,
    /// Every machine is made from the specification as it is now.
    UpToDate,
    /// A machine that failed is being replaced, or would be (abnormal when True).
    Remediating,
    /// `spec.paused` holds back all writes.
    Paused,
    /// The cluster is being deleted.
    Deleting,
}

impl ConditionType {
    /// All types, in the order in which status lists them.
    pub const ALL: [Self; 17] = [
        Self::Ready,
        Self::Reconciling,
        Self::Stalled,
        Self::Accepted,
        Self::CapacityAvailable,
        Self::PlacementHealthy,
        Self::LiveMigratable,
        Self::StorageSpread,
        Self::CertificatesReady,
        Self::EndpointReady,
        Self::ControlPlaneAvailable,
        Self::EtcdHealthy,
        Self::WorkersAvailable,
        Self::UpToDate,
        Self::Remediating,
        Self::Paused,
        Self::Deleting,
    ];

    /// The value of `type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::Accepted => "Accepted",
            Self::CapacityAvailable => "CapacityAvailable",
            Self::PlacementHealthy => "PlacementHealthy",
            Self::LiveMigratable => "LiveMigratable",
            Self::StorageSpread => "StorageSpread",
            Self::CertificatesReady => "CertificatesReady",
            Self::EndpointReady => "EndpointReady",
            Self::ControlPlaneAvailable => "ControlPlaneAvailable",
            Self::EtcdHealthy => "EtcdHealthy",
            Self::WorkersAvailable => "WorkersAvailable",
            Self::UpToDate => "UpToDate",
            Self::Remediating => "Remediating",
            Self::Paused => "Paused",
            Self::Deleting => "Deleting",
        }
    }

    /// One sentence for the reference page.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ready => "The guest serves as specified: the sum of the others.",
            Self::Reconciling => "Work towards the specification is under way.",
            Self::Stalled => "Nothing will change without a person.",
            Self::Accepted => {
                "The specification can be carried out on this infrastructure cluster."
            }
            Self::CapacityAvailable => {
                "Were any host to die, every machine of this guest would find another one."
            }
            Self::PlacementHealthy => "Machines stand on hosts as the specification demands.",
            Self::LiveMigratable => {
                "Machines can move to another host while they run; False is no trouble, and does not \
                 keep a cluster from being Ready."
            }
            Self::StorageSpread => {
                "No one storage host takes two of etcd's disks with it, and no zone etcd's quorum; \
                 Unknown where volumes do not tell where they lie. False does not keep a cluster from \
                 being Ready: the guest serves, and one loss may end that."
            }
            Self::CertificatesReady => "All authorities and the kubeconfig exist and are sound.",
            Self::EndpointReady => "The guest API has an address.",
            Self::ControlPlaneAvailable => "Enough API servers of the guest answer.",
            Self::EtcdHealthy => "Every etcd member is started and a leader is known.",
            Self::WorkersAvailable => "All workers are Ready Nodes.",
            Self::UpToDate => "Every machine is made from the specification as it is now.",
            Self::Remediating => "A machine that failed is being replaced, or would be.",
            Self::Paused => "spec.paused holds back all writes.",
            Self::Deleting => "The cluster is being deleted.",
        }
    }
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why a condition has its status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[doc = $doc])+ $name,)+ }

        impl Reason {
            /// All reasons, in the order of the reference page.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The value of `reason`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// Its explanation for the reference page.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+),)+ }
            }
        }
    };
}

reasons! {
    /// Everything that the specification asks for is there and answers.
    Available,
    /// Machines are being made or are booting.
    Provisioning,
    /// Nothing is left to do.
    Settled,
    /// The specification says something that cannot be: the message says what to write.
    InvalidSpec,
    /// The namespace does not carry the label that gives it to guest clusters.
    NamespaceNotForGuests,
    /// A range of the guest overlaps one of the infrastructure cluster.
    RangeOverlap,
    /// Ranges of the infrastructure cluster are not known: set them in the chart's values.
    InfraRangesUnknown,
    /// A named StorageClass does not exist.
    StorageClassNotFound,
    /// KubeVirt is missing or not of a supported release.
    KubeVirtUnsupported,
    /// Fewer hosts may take control-plane machines than are asked for.
    TooFewHosts,
    /// An object of the name that a machine needs belongs to somebody else.
    NameTaken,
    /// A machine has no host yet.
    Unschedulable,
    /// Control-plane machines share a host.
    HostShared,
    /// A host carries more machines of the tenant than `maxPerHost` allows.
    TenantCapExceeded,
    /// Whichever host dies, the guest's machines find another one.
    SurvivesHostLoss,
    /// A host's death would leave machines without a host: the message names them and the cure.
    HostLossNotSurvived,
    /// The loss of a zone would leave machines of the guest without a host.
    ZoneLossNotSurvived,
    /// Whether the loss of a host is survived has not been worked out, or no answer was found.
    CapacityUnknown,
    /// `spec.capacityPolicy` says that nobody wants to know.
    CapacityIgnored,
    /// Machines stand on hosts as specified.
    Spread,
    /// Machines stand on hosts as specified, and by its profile the guest does not survive the loss of the host of its control plane.
    LabProfile,
    /// Every machine that KubeVirt has judged can move to another host while it runs.
    Migratable,
    /// A machine cannot move to another host while it runs: where its host is emptied it is shut down, and starts elsewhere on its disk.
    NotMigratable,
    /// The disks of etcd are spread as far as hosts and zones allow.
    DisksSpread,
    /// Several disks of etcd can be reached from one host alone, and are lost with it: the message names disks, volumes, host and cure.
    StorageHostShared,
    /// One zone takes etcd's quorum with it, although hosts lie in more zones: the message names disks, volumes, zone and cure.
    StorageZoneShared,
    /// Volumes do not tell from which hosts they can be reached, so that nobody knows what is lost together.
    StorageUnknown,
    /// A Secret of the cluster is damaged or was replaced by something else.
    CertificateDamaged,
    /// Certificates are being made.
    CertificatesPending,
    /// The endpoint Service has no address yet.
    EndpointPending,
    /// The guest serves, but nobody gets through to it at its endpoint.
    EndpointUnreachable,
    /// No disk image yet, or its import failed.
    ImagePending,
    /// No machine has initialised the control plane yet.
    NotInitialised,
    /// The guest's API does not answer.
    GuestUnreachable,
    /// Fewer machines are ready than asked for.
    Degraded,
    /// A machine's first boot failed: the message carries its last console lines.
    BootstrapFailed,
    /// etcd has no leader or a member is missing.
    EtcdUnhealthy,
    /// There are more machines than asked for: they leave one by one.
    Surplus,
    /// Machines were made from an earlier specification: they are replaced one by one.
    Outdated,
    /// A machine leaves its host, which is being drained.
    Evicted,
    /// A machine has been leaving a host that is being drained for more than ten minutes: the message says what holds it and how to call the drain off.
    EvictionStuck,
    /// A machine stays on a host that is being emptied, because no other takes it: the message says why.
    NoOtherHost,
    /// A machine leaves the host that it shares with another control-plane machine.
    MovedApart,
    /// A machine that serves no more is being replaced.
    Unhealthy,
    /// A machine whose VM somebody deleted is being replaced.
    Lost,
    /// A Pod in the guest may not be evicted now: the message names it and what holds it.
    DrainBlocked,
    /// A host is dead, and what ran on it may still run: the message says what is awaited.
    AwaitingFence,
    /// Too few members of etcd answer: nothing is changed until a quorum is back.
    QuorumLost,
    /// Machines fail one after another: the next one is not replaced without a person.
    RepairLimit,
    /// A person has taken a machine out of the operator's hands.
    HandedOver,
    /// The version asked for cannot follow the one that runs.
    VersionSkew,
    /// A person stopped a machine; it stays stopped.
    StoppedByUser,
    /// Writes are paused by the specification.
    PausedByUser,
    /// Not paused.
    NotPaused,
    /// Deletion waits: `spec.deletion.protected` is set.
    Protected,
    /// Objects of the cluster are being deleted.
    DeletingObjects,
    /// Not being deleted.
    NotDeleting,
    /// Not known yet.
    Pending,
}
