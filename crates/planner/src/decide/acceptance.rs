//! Whether the specification can be carried out on this infrastructure cluster, judged before
//! anything is made.

use guestcluster_api::labels;
use guestcluster_api::{GuestClusterStatus, Reason};
use guestcluster_placement::{Refusal, refusal};

use super::{Context, Draft, Flow};
use crate::cidr::Cidr;
use crate::observed::Observed;
use crate::wanted::{Pool, Wanted};

/// Why the specification cannot be carried out here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// For the condition.
    pub reason: Reason,
    /// For people: what to do about it.
    pub message: String,
}

/// KubeVirt releases that the project is tested with.
const KUBEVIRT: [&str; 2] = ["v1.8.", "v1.9."];

pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    match objection(context.wanted, context.seen, context.previous) {
        None => Flow::Next,
        Some(objection) => {
            draft.hold_for_person(objection.reason, objection.message);
            draft.look_again(context.in_seconds(60), "acceptance");
            Flow::Stop
        }
    }
}

/// The first thing that stands against the specification, if any.
pub fn objection(
    wanted: &Wanted,
    seen: &Observed,
    status: &GuestClusterStatus,
) -> Option<Objection> {
    namespace(wanted, seen)
        .or_else(|| kubevirt(seen))
        .or_else(|| version_skew(wanted, status))
        .or_else(|| ranges(wanted, seen))
        .or_else(|| storage_classes(wanted, seen))
}

fn namespace(wanted: &Wanted, seen: &Observed) -> Option<Objection> {
    if seen.infra.namespace_for_guests {
        return None;
    }
    let namespace = &wanted.identity.namespace;
    Some(Objection {
        reason: Reason::NamespaceNotForGuests,
        message: format!(
            "namespace {namespace} is not marked for guest clusters, which need one to themselves: \
             run `kubectl label namespace {namespace} {}=true`",
            labels::GUESTS_NAMESPACE
        ),
    })
}

/// Kubernetes' rules: an API server never goes back, and goes up one minor at a time.
fn version_skew(wanted: &Wanted, status: &GuestClusterStatus) -> Option<Objection> {
    let machines = status.control_plane.machines.iter();
    let versions = machines.filter_map(|m| m.version.as_deref());
    let numbered = versions.filter_map(|text| Some((parts(text)?, text)));
    let (highest, lowest) = (numbered.clone().max()?, numbered.min()?);
    let target = parts(&wanted.version)?;
    let message = if target < highest.0 {
        format!(
            "spec.version {} is older than {}, which a control-plane machine runs: Kubernetes has \
             no downgrade; write at least {}",
            wanted.version, highest.1, highest.1
        )
    } else if target.1 > lowest.0.1 + 1 {
        format!(
            "spec.version {} is more than one minor after {}, which the control plane runs: write a \
             v{}.{} first",
            wanted.version,
            lowest.1,
            lowest.0.0,
            lowest.0.1 + 1
        )
    } else {
        return None;
    };
    Some(Objection {
        reason: Reason::VersionSkew,
        message,
    })
}

/// Major, minor and patch of a version such as `v1.36.3`.
pub(crate) fn parts(version: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = version.strip_prefix('v')?.splitn(3, '.').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some((next()?, next()?, next()?))
}

fn kubevirt(seen: &Observed) -> Option<Objection> {
    let message = match seen.infra.kubevirt.as_deref() {
        None => "no KubeVirt installation was found: install KubeVirt v1.8 or v1.9".to_owned(),
        Some(release) if KUBEVIRT.iter().any(|prefix| release.starts_with(prefix)) => return None,
        Some(release) => format!("KubeVirt {release} is not supported: install v1.8 or v1.9"),
    };
    Some(Objection {
        reason: Reason::KubeVirtUnsupported,
        message,
    })
}

/// A guest's own traffic to a range that the infrastructure uses as well never leaves its Node the
/// right way: answers are lost or go to strangers.
fn ranges(wanted: &Wanted, seen: &Observed) -> Option<Objection> {
    let settings = &wanted.settings;
    let pods = seen
        .infra
        .pod_ranges
        .iter()
        .chain(&settings.infra_pod_ranges);
    let services = seen
        .infra
        .service_ranges
        .iter()
        .chain(&settings.infra_service_ranges);
    let infra = pods
        .map(|range| ("pods", *range))
        .chain(services.map(|range| ("Services", *range)))
        .collect::<Vec<_>>();
    let guest = [
        ("podCIDR", wanted.pod_range),
        ("serviceCIDR", wanted.service_range),
    ];
    let clash = |(path, range): (&str, Cidr)| {
        let (what, other) = infra.iter().find(|(_, other)| range.overlaps(*other))?;
        Some(Objection {
            reason: Reason::RangeOverlap,
            message: format!(
                "spec.network.{path} {range} overlaps the infrastructure cluster's {what} range \
                 {other}: choose another range and create the cluster anew"
            ),
        })
    };
    guest.into_iter().find_map(clash)
}

fn storage_classes(wanted: &Wanted, seen: &Observed) -> Option<Objection> {
    let infra = &seen.infra;
    let known = || match infra
        .storage_classes
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
    {
        names if names.is_empty() => "there is none".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    };
    let missing =
        |pool: &Pool| {
            let disks = [
                Some(&pool.machine.root_disk),
                pool.machine.etcd_disk.as_ref(),
            ];
            disks.into_iter().flatten().find_map(|disk| match &disk.storage_class_name {
            Some(class) if !infra.storage_classes.contains(class) => Some(format!(
                "StorageClass {class} of pool {} does not exist; {}",
                pool.name,
                known()
            )),
            None if infra.default_storage_class.is_none() => Some(format!(
                "pool {} names no StorageClass and the cluster has no default one; {}: write \
                 machine.rootDisk.storageClassName",
                pool.name,
                known()
            )),
            _ => None,
        })
        };
    let message = wanted.pools.iter().find_map(missing)?;
    Some(Objection {
        reason: Reason::StorageClassNotFound,
        message,
    })
}

/// Hosts that cannot take a machine of `pool`, with the reason of each.
pub fn host_refusals<'a>(pool: &Pool, seen: &'a Observed) -> Vec<(&'a str, Refusal)> {
    let refused = |host: &'a guestcluster_capacity::Host| {
        Some((host.name.as_str(), refusal(host, &pool.requirements)?))
    };
    seen.infra.hosts.iter().filter_map(refused).collect()
}
