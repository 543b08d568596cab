//! What the manifests cannot say, with the reason and what to do instead.

use std::collections::BTreeMap;
use std::fmt;

use guestcluster_api::spec::{Binding, EndpointType, Profile, Topology};
use guestcluster_planner::Wanted;

use crate::leaves::{self, Kept, Path};

/// Something of a GuestCluster that Cluster API and CAPK have no place for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmapped {
    /// Where it stands, such as `spec.deletion.disks`.
    pub field: String,
    /// Why it is not exported.
    pub why: String,
    /// What to do instead.
    pub instead: String,
    /// What became of it.
    pub fate: Fate,
}

/// What became of something that is not exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Kept only as annotation, for a later import; Cluster API does not act on it.
    Annotation,
    /// Machines made from the manifests behave otherwise.
    Otherwise,
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; instead: {}", self.field, self.why, self.instead)?;
        match self.fate {
            Fate::Annotation => {
                f.write_str(" (kept only as annotation; Cluster API does not act on it)")
            }
            Fate::Otherwise => Ok(()),
        }
    }
}

/// The whole list. `mints_anew`: the guest has authorities, and they were not asked for.
pub(super) fn list(
    wanted: &Wanted,
    kept: &BTreeMap<Path, Kept>,
    mints_anew: bool,
) -> Vec<Unmapped> {
    let mut list: Vec<_> = kept
        .iter()
        .map(|(path, kept)| of_field(path, kept))
        .collect();
    let mut say = |applies: bool, (field, why, instead): (&str, &str, &str)| {
        if applies {
            list.push(Unmapped {
                field: field.to_owned(),
                why: why.to_owned(),
                instead: instead.to_owned(),
                fate: Fate::Otherwise,
            });
        }
    };
    for remark in ALWAYS {
        say(true, *remark);
    }
    say(mints_anew, NEW_AUTHORITIES);
    let endpoint = wanted.endpoint();
    let is_balanced = endpoint.type_ == EndpointType::LoadBalancer;
    say(is_balanced && endpoint.host.is_none(), LOAD_BALANCER);
    say(endpoint.type_ == EndpointType::External, EXTERNAL);
    say(wanted.is_masqueraded(), MASQUERADE);
    say(wanted.network.machine.binding == Binding::Bridge, BRIDGE);
    say(wanted.image.pvc.is_none(), IMAGE);
    say(wanted.topology == Topology::Converged, CONVERGED);
    say(wanted.profile == Profile::Lab, LAB);
    list
}

/// Field, reason, and what to do instead.
type Remark = (&'static str, &'static str, &'static str);

const ALWAYS: &[Remark] = &[
    (
        "the running guest",
        "the manifests make new machines with an empty etcd; nothing of the machines that run is moved",
        "restore a backup of what the guest holds into the new one, and delete the GuestCluster after that",
    ),
    (
        "metadata.namespace",
        "a namespace labelled guestcluster.dev/guests admits machines of GuestClusters alone",
        "export into another namespace, with claims and Secrets that the manifests name",
    ),
    (
        "spec.controlPlane.machine.rootDisk",
        "CAPK's disks are dataVolumeTemplates, which go with their VirtualMachine, etcd's data included",
        "back etcd up, and let no one delete VirtualMachines by hand",
    ),
    (
        "spec.controlPlane.placement",
        "CAPK reports no failure domains, so that Cluster API spreads nothing over zones",
        "rely on the template's topologySpreadConstraints, which prefer zones apart",
    ),
    (
        "bootstrap check",
        "checkStrategy is none, since the image need not run an SSH server for CAPK to log in to",
        "write checkStrategy: ssh in the KubevirtMachineTemplates if it does and CAPK's Pod reaches port 22 of machines",
    ),
    (
        "first boot",
        "CAPK adds a user capk with its own SSH key and sudo rights to each machine, and appends its own cloud-init volume",
        "nothing; it cannot be switched off",
    ),
    (
        "spec.maintenance, spec.repair, spec.capacityPolicy",
        "Cluster API knows neither room for the loss of a host nor moves apart, and CAPK drains two control-plane machines at once if two hosts are drained at once",
        "drain one host of the infrastructure at a time",
    ),
];

const NEW_AUTHORITIES: Remark = (
    "authorities",
    "KubeadmControlPlane mints new authorities: kubeconfigs, service-account tokens and certificates of the guest that runs are worth nothing to the new one",
    "export with --with-pki, and keep the output as safe as the keys that are in it",
);
const LOAD_BALANCER: Remark = (
    "spec.controlPlane.endpoint.host",
    "CAPK takes the address of a load balancer, never its host name",
    "where load balancers have names alone, write endpoint.host, a name that leads to it on port 6443",
);
const EXTERNAL: Remark = (
    "spec.controlPlane.endpoint.type",
    "CAPK's Service for the endpoint is <cluster>-lb on port 6443, and not <cluster>-api",
    "let host and port forward to <cluster>-lb",
);
const BRIDGE: Remark = (
    "spec.network.machine.binding",
    "control-plane machines have no Service address of their own, nor etcd's peer-skip-client-san-verification: a machine that restarts comes back under another address, and its etcd member does not",
    "attach machines to a secondary network on which DHCP gives an address for life, and name it in networks and interfaces of the KubevirtMachineTemplates",
);
const MASQUERADE: Remark = (
    "spec.network.machine.binding",
    "every machine sees itself as 10.0.2.2, and the Service addresses that told our machines apart have no counterpart: etcd members, and the API server's way to kubelets, fail with more than one machine",
    "use binding Bridge, or attach machines to a secondary network on which DHCP gives an address for life, and name it in networks and interfaces of the KubevirtMachineTemplates",
);
const IMAGE: Remark = (
    "spec.image",
    "each machine imports the image for itself, instead of a clone of one import",
    "import it once into a claim and write image.pvc",
);
const CONVERGED: Remark = (
    "spec.topology",
    "kubeadm labels control-plane Nodes so that load balancers leave them out, and KubeadmControlPlane needs that step",
    "take the label node.kubernetes.io/exclude-from-external-load-balancers off the Nodes",
);
const LAB: Remark = (
    "spec.profile",
    "KubeadmControlPlane never replaces its only machine",
    "three replicas on hosts of their own where the guest must survive the loss of one",
);

fn of_field(path: &str, kept: &Kept) -> Unmapped {
    let (why, instead) = REASONS
        .iter()
        .find(|(pattern, ..)| matches(pattern, path))
        .map_or(
            ("Cluster API has no field for it", "nothing"),
            |(_, why, instead)| (why, instead),
        );
    let value = if kept.is.is_null() {
        "not set".to_owned()
    } else {
        kept.is.to_string()
    };
    Unmapped {
        field: leaves::shown(path),
        why: format!("{value} has no counterpart: {why}"),
        instead: instead.to_owned(),
        fate: Fate::Annotation,
    }
}

/// `*` stands for one step, and a pattern for all that lies below it.
fn matches(pattern: &str, path: &str) -> bool {
    let mut steps = path.split('/');
    pattern.split('/').all(|wanted| {
        steps
            .next()
            .is_some_and(|step| wanted == "*" || wanted == step)
    })
}

/// By path, the first that matches.
const REASONS: &[Remark] = &[
    (
        "/image/registry",
        "a registry refuses tag and digest in one reference, so the digest alone is written",
        "nothing; the digest says which image it is",
    ),
    (
        "/image/http/checksum",
        "CAPK v0.11 knows no checksum of a file served over HTTP, and would prune it",
        "use image.registry with a digest, or import it once into a claim and write image.pvc",
    ),
    (
        "/controlPlane/endpoint/type",
        "CAPK takes its Service's own address or a host and port of yours; from a Service of type NodePort it takes an address that nobody reaches",
        "make a Service of your own with that nodePort for port 6443, which selects cluster.x-k8s.io/role: control-plane and cluster.x-k8s.io/cluster-name",
    ),
    (
        "/controlPlane/endpoint/port",
        "CAPK's Service listens on port 6443 alone, and CAPK takes a host and port together or neither",
        "use port 6443, or an endpoint of type External that forwards to <cluster>-lb",
    ),
    (
        "/controlPlane/endpoint/host",
        "CAPK takes host and port together, and the port is not known yet",
        "write controlPlaneEndpoint with both in the KubevirtCluster",
    ),
    (
        "/controlPlane/endpoint",
        "of a Service CAPK lets its type, labels and annotations be chosen, and no more",
        "use annotations of your load balancer, or an endpoint of type External",
    ),
    (
        "/controlPlane/certificateValidityPeriod",
        "Cluster API counts whole days, from 1 to 1095",
        "write whole days in hours, such as 8760h",
    ),
    (
        "/workers/*/maxPerHost",
        "the scheduler knows no such limit, and nobody else counts",
        "a quota of the namespace, or hosts of the pool's own",
    ),
    (
        "/workers/*/labels",
        "a kubelet may not set it, and Cluster API passes labels on to Nodes only under node-role.kubernetes.io and node-restriction.kubernetes.io",
        "label the Nodes once they are there, or use a key of your own",
    ),
    (
        "/workers/*/devices",
        "GPUs and other devices are two lists in a VirtualMachine, so their order among each other is lost",
        "nothing; machines hold the same devices",
    ),
    (
        "/addons/cni",
        "Cluster API installs no pod network",
        "apply one into the guest once its API answers, such as flannel with the guest's podCIDR, or by a ClusterResourceSet",
    ),
    (
        "/deletion/protected",
        "a Cluster can be deleted by whoever may",
        "an admission policy of your own against the deletion of Clusters",
    ),
    (
        "/deletion/disks",
        "CAPK's disks go with their VirtualMachine",
        "take snapshots of the claims before you delete the Cluster",
    ),
    (
        "/capacityPolicy",
        "Cluster API does not look ahead to the loss of a host",
        "keep the room of one host free yourself",
    ),
    (
        "/capacityScope",
        "Cluster API does not look ahead to the loss of a zone",
        "keep the room of one zone free yourself",
    ),
    (
        "/repair",
        "Cluster API does not know that machines share a host; the template's anti-affinity keeps them apart when they are scheduled",
        "watch the hosts of control-plane machines yourself",
    ),
    (
        "/maintenance",
        "CAPK makes no MigrationPolicy",
        "a MigrationPolicy of your own, which selects the label cluster.x-k8s.io/cluster-name",
    ),
];
