//! What the operator may do in the infrastructure cluster: the source of its ClusterRole.
//!
//! Kept beside the actions that need it; the end-to-end tests run the operator with exactly these
//! rights and read in the audit log that each was used.

/// One rule of the operator's ClusterRole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API group; empty for core.
    pub group: &'static str,
    /// Resources, with subresources as `a/b`.
    pub resources: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// What needs it.
    pub why: &'static str,
}

const fn rule(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Rule {
    Rule {
        group,
        resources,
        verbs,
        why,
    }
}

const WATCH: &[&str] = &["get", "list", "watch"];

/// Rules over all namespaces.
pub const RULES: &[Rule] = &[
    rule(
        "guestcluster.dev",
        &["guestclusters"],
        &["get", "list", "watch", "patch"],
        "read specifications, set the finalizer",
    ),
    rule(
        "guestcluster.dev",
        &["guestclusters/status"],
        &["patch"],
        "report",
    ),
    rule(
        "guestcluster.dev",
        &["guestclusters/finalizers"],
        &["update"],
        "own objects that block the owner's deletion",
    ),
    rule(
        "guestcluster.dev",
        &["hostmaintenances"],
        &["get", "list", "watch", "patch"],
        "read which hosts are to be emptied, set the finalizer",
    ),
    rule(
        "guestcluster.dev",
        &["hostmaintenances/status"],
        &["patch"],
        "report",
    ),
    rule(
        "kubevirt.io",
        &["virtualmachines"],
        &["get", "list", "watch", "create", "delete"],
        "machines",
    ),
    rule(
        "kubevirt.io",
        &["virtualmachineinstances"],
        &["get", "list", "watch", "delete"],
        "where machines run and their addresses; let one start elsewhere",
    ),
    rule(
        "kubevirt.io",
        &["virtualmachineinstancemigrations"],
        &["get", "list", "watch", "create", "delete"],
        "move machines to other hosts while they run",
    ),
    rule(
        "migrations.kubevirt.io",
        &["migrationpolicies"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "limits of the migrations of a cluster's machines",
    ),
    rule(
        "kubevirt.io",
        &["kubevirts"],
        WATCH,
        "the installed release",
    ),
    rule(
        "cdi.kubevirt.io",
        &["datavolumes"],
        &["get", "list", "watch", "create", "delete"],
        "disks",
    ),
    rule(
        "cdi.kubevirt.io",
        &["datavolumes/source"],
        &["create"],
        "clone disks from the golden image",
    ),
    rule(
        "",
        &["persistentvolumeclaims"],
        &["get", "list", "watch", "patch"],
        "volumes of disks; wait until claims are gone, label retained ones",
    ),
    rule(
        "",
        &["persistentvolumes"],
        WATCH,
        "whether one storage host or zone takes several of etcd's disks",
    ),
    rule(
        "",
        &["secrets"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "authorities, kubeconfigs and first-boot documents",
    ),
    rule(
        "rbac.authorization.k8s.io",
        &["roles"],
        &["get", "create"],
        "for each cluster, a Role that lets its tenant read its kubeconfig",
    ),
    rule(
        "",
        &["services"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "endpoint and machine addresses",
    ),
    rule(
        "discovery.k8s.io",
        &["endpointslices"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "where a machine's address leads",
    ),
    rule(
        "discovery.k8s.io",
        &["endpointslices/restricted"],
        &["create"],
        "OpenShift asks for it",
    ),
    rule(
        "",
        &["pods"],
        &["get", "list", "watch", "patch"],
        "why a machine has no host, what Pods hold on hosts; take a machine out of the endpoint",
    ),
    rule(
        "",
        &["pods/log"],
        &["get"],
        "last console lines of a failed boot",
    ),
    rule(
        "",
        &["nodes"],
        &["get", "list", "watch", "patch"],
        "hosts; cordon one that is to be emptied",
    ),
    rule("", &["namespaces"], WATCH, "namespaces given to guests"),
    rule(
        "storage.k8s.io",
        &["storageclasses"],
        WATCH,
        "refuse a class that does not exist",
    ),
    rule(
        "networking.k8s.io",
        &["servicecidrs"],
        WATCH,
        "refuse overlapping ranges",
    ),
    rule(
        "events.k8s.io",
        &["events"],
        &["create", "patch"],
        "tell what was done",
    ),
];

/// Rules over all namespaces where the operator serves Cluster API, beside [`RULES`].
pub const PROVIDER_RULES: &[Rule] = &[
    rule(
        "cluster.x-k8s.io",
        &["clusters", "machines"],
        WATCH,
        "which machines belong to which Cluster, and their first-boot documents",
    ),
    rule(
        "infrastructure.cluster.x-k8s.io",
        &["kubevirtclusters", "kubevirtmachines"],
        &["get", "list", "watch", "patch"],
        "what is asked for; set the finalizer, the endpoint and the provider id",
    ),
    rule(
        "infrastructure.cluster.x-k8s.io",
        &["kubevirtmachinetemplates"],
        WATCH,
        "what a machine would offer",
    ),
    rule(
        "infrastructure.cluster.x-k8s.io",
        &[
            "kubevirtclusters/status",
            "kubevirtmachines/status",
            "kubevirtmachinetemplates/status",
        ],
        &["patch"],
        "report",
    ),
    rule(
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["get"],
        "which of its two schemas the provider's kinds have",
    ),
    rule(
        "coordination.k8s.io",
        &["leases"],
        &["list"],
        "whether CAPK's own controller manager runs",
    ),
];

/// Rules in the operator's own namespace.
pub const LEASE_RULES: &[Rule] = &[rule(
    "coordination.k8s.io",
    &["leases"],
    &["get", "create", "update"],
    "elect one leader",
)];
