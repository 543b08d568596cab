//! Deletion of a guest cluster: everything that was made goes, in an order that holds whatever
//! happens in between, and an unreachable guest cannot block it.

use guestcluster_api::Reason;
use guestcluster_api::spec::DiskPolicy;

use super::replace::delete;
use super::{Context, Draft, Flow, addresses};
use crate::action::{Action, Kind, Victim};
use crate::observed::{Disk, Meta, Observed};
use crate::render;
use crate::wanted::Wanted;

pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    if !context.wanted.identity.deleting {
        return Flow::Next;
    }
    if !context.wanted.identity.finalizer {
        return Flow::Stop;
    }
    if context.wanted.protected {
        draft.hold_for_person(
            Reason::Protected,
            "deletion waits: spec.deletion.protected is true; set it to false to go on",
        );
        // The guest serves on, and its members must find each other after a restart.
        addresses::step(context, draft);
        return Flow::Stop;
    }
    remove(context, draft);
    Flow::Stop
}

/// Machines first; what they use goes once they are gone, so that a shutdown is a clean one.
fn remove(context: &Context<'_>, draft: &mut Draft) {
    let seen = context.seen;
    let why = format!(
        "GuestCluster {} is being deleted",
        context.wanted.identity.name
    );
    for (name, vm) in &seen.vms {
        delete(draft, (Kind::VirtualMachine, name, &vm.meta), &why);
    }
    if !seen.vms.is_empty() || !seen.instances.is_empty() {
        draft.look_again(context.in_seconds(10), "machines are stopping");
        return;
    }
    let left = remove_disks(context, draft, &why)
        + each(
            draft,
            Kind::EndpointSlice,
            seen.slices.iter().map(|(n, s)| (n, &s.meta)),
            &why,
        )
        + each(
            draft,
            Kind::Service,
            seen.services.iter().map(|(n, s)| (n, &s.meta)),
            &why,
        )
        + each(
            draft,
            Kind::Secret,
            seen.secrets.iter().map(|(n, s)| (n, &s.meta)),
            &why,
        )
        + each(
            draft,
            Kind::MigrationPolicy,
            seen.migration_policies
                .iter()
                .flatten()
                .map(|(n, p)| (n, &p.meta)),
            &why,
        );
    if left == 0 {
        draft.act(Action::RemoveFinalizer);
    } else {
        draft.look_again(context.in_seconds(10), "objects are going");
    }
}

fn each<'a>(
    draft: &mut Draft,
    kind: Kind,
    objects: impl Iterator<Item = (&'a String, &'a Meta)>,
    why: &str,
) -> usize {
    objects
        .map(|(name, meta)| delete(draft, (kind, name, meta), why))
        .count()
}

/// Deletes or keeps the disks; says how many still stand in the way.
fn remove_disks(context: &Context<'_>, draft: &mut Draft, why: &str) -> usize {
    let (wanted, seen) = (context.wanted, context.seen);
    let golden = render::golden_name(wanted);
    let keeps = wanted.disks == DiskPolicy::Retain;
    let mut left = 0;
    for (name, disk) in &seen.disks {
        if !is_ours(wanted, seen, name) {
            continue;
        }
        left += 1;
        if keeps && *name != golden {
            retain(context, draft, (name, disk));
        } else {
            delete(draft, (Kind::DataVolume, name, &disk.meta), why);
        }
    }
    if !keeps {
        left += seen.claims.len();
    }
    left
}

/// The operator's view holds only what this cluster owns: a disk that was let go is not in it.
fn retain(context: &Context<'_>, draft: &mut Draft, (name, disk): (&String, &Disk)) {
    let object = Victim {
        kind: Kind::DataVolume,
        name: name.clone(),
        uid: disk.meta.uid.clone(),
        resource_version: disk.meta.resource_version.clone(),
    };
    let labels = render::retained_labels(context.wanted);
    draft.act(Action::RetainDisk { object, labels });
}

/// Names of everything that stands in the way of a deletion, for the condition.
pub(crate) fn remaining(wanted: &Wanted, seen: &Observed) -> Vec<String> {
    let vms = seen.vms.keys().map(|name| format!("VirtualMachine {name}"));
    let instances = seen
        .instances
        .keys()
        .filter(|name| !seen.vms.contains_key(*name))
        .map(|name| format!("VirtualMachineInstance {name}"));
    let disks = seen
        .disks
        .keys()
        .filter(|name| is_ours(wanted, seen, name))
        .map(|name| format!("DataVolume {name}"));
    let claims = seen
        .claims
        .keys()
        .filter(|name| !seen.disks.contains_key(*name))
        .map(|name| format!("PersistentVolumeClaim {name}"));
    let policies = seen.migration_policies.iter().flatten();
    let policies = policies.map(|(name, _)| format!("MigrationPolicy {name}"));
    vms.chain(instances)
        .chain(disks)
        .chain(claims)
        .chain(policies)
        .collect()
}

/// Whether a disk goes with the cluster. An image that another cluster's machines are cloned from
/// stays, and a user's own claim is never ours.
fn is_ours(wanted: &Wanted, seen: &Observed, disk: &str) -> bool {
    let is_image = *disk == render::golden_name(wanted);
    !is_image || (!seen.image_shared && wanted.image.pvc.is_none())
}
