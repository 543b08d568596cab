//! Whether a GuestCluster can say what the Cluster is. Its own rules have the last word, at the API
//! server; what is checked here is what cannot be changed later.

use guestcluster_api::names;
use guestcluster_bootstrap::Version;
use guestcluster_planner::cidr::Cidr;
use serde_json::Value;

use super::{Case, Reason, Verdict};
use crate::adopt::seen::{Kind, title};
use crate::import::value::{list, text};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let Some(cluster) = case.seen.cluster() else {
        return;
    };
    let cannot = "leave it with Cluster API; it cannot be changed in a cluster that runs";
    if let Err(why) = &case.made.wanted {
        verdict.say(Reason::NoGuestCluster, title(cluster), why, cannot);
    }
    own_names(case, cluster, verdict);
    versions(case, verdict);
    ranges(case, cluster, verdict);
    taken(case, verdict);
}

/// Whether a text can be part of host names, as the definition of GuestCluster asks.
fn is_name(text: &str, longest: usize) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= longest
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(allowed)
}

fn own_names(case: &Case<'_>, cluster: &Value, verdict: &mut Verdict) {
    if !is_name(&case.seen.name, names::MAX_CLUSTER) {
        verdict.say(
            Reason::Name,
            title(cluster),
            format!(
                "a GuestCluster's name has at most {} lower-case letters, digits and '-', and starts \
                 with a letter",
                names::MAX_CLUSTER
            ),
            "leave it with Cluster API; a Cluster cannot be renamed",
        );
    }
    let pools = case.made.cluster.iter().flat_map(|made| &made.spec.workers);
    for pool in pools {
        if !is_name(&pool.name, names::MAX_POOL) || pool.name == names::CONTROL_PLANE_POOL {
            verdict.say(
                Reason::Name,
                format!("MachineDeployment of pool {}", pool.name),
                format!(
                    "a pool's name has at most {} lower-case letters, digits and '-', starts with a \
                     letter and is not {:?}",
                    names::MAX_POOL,
                    names::CONTROL_PLANE_POOL
                ),
                "move its machines to a MachineDeployment with such a name",
            );
        }
    }
}

/// One version, and one that is supported.
fn versions(case: &Case<'_>, verdict: &mut Verdict) {
    let Some(kubeadm) = case.seen.control_plane() else {
        return;
    };
    let version = text(kubeadm, "/spec/version").unwrap_or_default();
    if version.parse::<Version>().is_err() {
        let minors = Version::SUPPORTED_MINORS;
        verdict.say(
            Reason::Version,
            title(kubeadm),
            format!(
                "Kubernetes {version} is not supported; v1.{} to v1.{} are",
                minors.start(),
                minors.end()
            ),
            "bring it to a supported version with Cluster API first",
        );
    }
    let mut differs = |about: String, other: &str| {
        verdict.say(
            Reason::VersionsDiffer,
            about,
            format!("it is of {other} and the control plane of {version}; a GuestCluster has one version"),
            "bring all to one version first",
        );
    };
    for pool in case.seen.own(Kind::MachineDeployment) {
        let own = text(pool, "/spec/template/spec/version").unwrap_or_default();
        if own != version {
            differs(title(pool), &own);
        }
    }
    let nodes = case
        .seen
        .guest
        .known()
        .into_iter()
        .flat_map(|guest| &guest.nodes);
    for (node, found) in nodes.filter(|(_, found)| found.kubelet != version) {
        differs(format!("Node {node}"), &found.kubelet);
    }
}

/// One IPv4 range each, of a size that a GuestCluster takes, and as the guest has it.
fn ranges(case: &Case<'_>, cluster: &Value, verdict: &mut Verdict) {
    let mut wrong = |what: String| {
        let cure = "leave it with Cluster API; ranges cannot be changed in a cluster that runs";
        verdict.say(Reason::Ranges, title(cluster), what, cure);
    };
    let Some(made) = &case.made.cluster else {
        return;
    };
    let network = &made.spec.network;
    for (of, range, sizes) in [
        ("pods", &network.pod_cidr, 8..=20),
        ("services", &network.service_cidr, 12..=24),
    ] {
        let blocks = list(cluster, &format!("/spec/clusterNetwork/{of}/cidrBlocks"));
        if blocks.len() > 1 {
            wrong(format!("it has more than one range for {of}"));
        }
        if let Some(first) = blocks.first().filter(|first| **first != **range) {
            wrong(format!(
                "it says {first} for {of}, and kubeadm-config of the guest says {range:?}"
            ));
        }
        let prefix = range
            .rsplit_once('/')
            .and_then(|(_, prefix)| prefix.parse::<u8>().ok());
        let is_canonical = range
            .parse::<Cidr>()
            .is_ok_and(|parsed| parsed.to_string() == **range);
        if !is_canonical || !prefix.is_some_and(|prefix| sizes.contains(&prefix)) {
            wrong(format!(
                "a GuestCluster's range for {of} is IPv4, from /{} to /{}, and starts at its first \
                 address; the guest has {range:?}",
                sizes.start(),
                sizes.end()
            ));
        }
    }
    let both = (
        network.pod_cidr.parse::<Cidr>(),
        network.service_cidr.parse::<Cidr>(),
    );
    if let (Ok(pods), Ok(services)) = both
        && pods.overlaps(services)
    {
        wrong(format!(
            "its ranges {} and {} overlap",
            network.pod_cidr, network.service_cidr
        ));
    }
}

/// Names that the operator would need and that somebody has.
fn taken(case: &Case<'_>, verdict: &mut Verdict) {
    let cluster = &case.seen.name;
    let service = names::endpoint_service(cluster);
    let found = [
        case.seen.named(Kind::GuestCluster, cluster),
        case.seen.named(Kind::Service, &service),
    ];
    for object in found.into_iter().flatten() {
        verdict.say(
            Reason::NameTaken,
            title(object),
            format!("the GuestCluster {cluster} needs this name"),
            "delete it if nobody needs it",
        );
    }
}
