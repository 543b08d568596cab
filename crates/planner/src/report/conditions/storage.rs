//! Whether one storage host or zone takes several of etcd's disks with it.

use std::collections::BTreeSet;

use guestcluster_api::{GuestClusterStatus, Reason, labels, names};
use guestcluster_capacity::Host;
use guestcluster_placement::{Domain, EtcdDisk, Spread, Together, spread as spread_of};

use super::{Facts, Truth, Verdict, no, yes};
use crate::observed::{Meta, Observed};
use crate::wanted::Wanted;

/// The label that hosts have on which KubeVirt ever ran VMs. It turns to `false` while a host is
/// troubled, and the host is still one over which a guest can be spread.
const RUNS_VMS: &str = "kubevirt.io/schedulable";

pub(super) fn spread(facts: &Facts<'_>) -> Verdict {
    let (wanted, seen) = (facts.wanted, facts.seen);
    let disks = disks(seen);
    let unknown = |reason: Reason, message: &str| (Truth::Unknown, reason, message.to_owned());
    if seen.volumes.is_none() {
        let message = "the volumes of etcd's disks have not been listed: whether one storage host or \
                       zone takes several of them is not known";
        return unknown(Reason::StorageUnknown, message);
    }
    match (disks.len(), members(wanted, &disks)) {
        (0, _) => return unknown(Reason::Pending, "etcd has no disk yet"),
        (1, 1) => {
            let message = "etcd has one disk alone: there is nothing to spread";
            return yes(Reason::DisksSpread, message);
        }
        _ => {}
    }
    match of(wanted, seen, &disks) {
        Spread::Apart => yes(
            Reason::DisksSpread,
            "etcd's disks are spread as far as hosts and zones allow",
        ),
        Spread::Unknown => unknown(
            Reason::StorageUnknown,
            "not every volume of etcd's disks tells from which hosts it can be reached: whether one \
             storage host or zone takes several of them is not known",
        ),
        Spread::Shared(found) => {
            let host = found.iter().any(|f| matches!(f.domain, Domain::Host(_)));
            let reason = if host {
                Reason::StorageHostShared
            } else {
                Reason::StorageZoneShared
            };
            no(reason, sentence(&found))
        }
    }
}

/// How many disks are lost together; as before while volumes have not been listed.
pub(in crate::report) fn sharing(
    wanted: &Wanted,
    seen: &Observed,
    previous: &GuestClusterStatus,
) -> Option<i32> {
    if seen.volumes.is_none() {
        return previous.control_plane.disks_sharing_storage;
    }
    let disks = disks(seen);
    let count = match of(wanted, seen, &disks) {
        Spread::Unknown => return None,
        Spread::Apart => 0,
        Spread::Shared(found) => found.iter().map(|together| together.disks.len()).sum(),
    };
    (!disks.is_empty()).then(|| i32::try_from(count).unwrap_or(i32::MAX))
}

fn of<'a>(wanted: &Wanted, seen: &'a Observed, disks: &[EtcdDisk<'a>]) -> Spread<'a> {
    let hosts = &*seen.infra.hosts;
    let pool = wanted.pool(names::CONTROL_PLANE_POOL);
    let may_run = |host: &&Host| {
        let mut asked = pool.iter().flat_map(|p| &p.requirements.node_selector);
        host.labels.contains_key(RUNS_VMS) && asked.all(|(k, v)| host.labels.get(k) == Some(v))
    };
    let open = hosts.iter().filter(may_run);
    let zones: BTreeSet<&str> = open
        .filter_map(|host| Some(host.labels.get(labels::ZONE)?.as_str()))
        .collect();
    let members = members(wanted, disks);
    spread_of(disks, (members, &zones), (hosts, labels::ZONE))
}

/// How many members etcd has once all are there.
fn members(wanted: &Wanted, disks: &[EtcdDisk<'_>]) -> usize {
    let size = usize::try_from(wanted.control_plane_size()).unwrap_or(usize::MAX);
    size.max(disks.len())
}

/// The disks on which control-plane machines keep etcd, as far as they have volumes.
fn disks(seen: &Observed) -> Vec<EtcdDisk<'_>> {
    let holds_etcd = |name: &str, meta: &Meta| {
        let of_control_plane = meta.pool.as_deref() == Some(names::CONTROL_PLANE_POOL);
        let machine = meta.machine.as_deref().filter(|_| of_control_plane);
        machine.is_some_and(|machine| name == etcd_claim(seen, machine))
    };
    // Of the claim itself nothing is asked: whoever makes it for a disk gives it the disk's name, and
    // need not give it our labels.
    let disks = seen.disks.iter();
    let disks = disks.filter(|(name, disk)| !disk.meta.deleting && holds_etcd(name, &disk.meta));
    disks
        .filter_map(|(claim, _)| {
            let volume = seen.volumes.as_ref()?.get(claim)?;
            Some(EtcdDisk {
                claim,
                volume: &volume.name,
                reach: volume.reach.as_ref(),
            })
        })
        .collect()
}

/// The etcd disk of a machine if it was made with one, else its root disk.
fn etcd_claim(seen: &Observed, machine: &str) -> String {
    let own = names::etcd_disk(machine);
    if seen.disks.contains_key(&own) || seen.claims.contains_key(&own) {
        own
    } else {
        names::root_disk(machine)
    }
}

/// Which disks are lost with what, and what a person can do.
fn sentence(found: &[Together<'_>]) -> String {
    let told = found.iter().map(|together| {
        let disks = together.disks.iter();
        let disks = disks.map(|disk| format!("{} (volume {})", disk.claim, disk.volume));
        let (domain, loss) = match together.domain {
            Domain::Host(host) => (format!("host {host}"), "them all"),
            Domain::Zone(zone) => (format!("hosts of zone {zone}"), "etcd's quorum"),
        };
        format!(
            "{} can be reached from {domain} alone: its loss would take {loss}",
            disks.collect::<Vec<_>>().join(" and ")
        )
    });
    format!(
        "{}. Name a StorageClass in spec.controlPlane.machine.etcdDisk.storageClassName that puts \
         volumes on different hosts and zones, or lets several reach each: machines are then replaced \
         one by one. Delete no disk by hand",
        told.collect::<Vec<_>>().join("; ")
    )
}
