//! Machines whose first boot ended without a join are given up and replaced under a new ordinal.
//!
//! The MUSTs:
//! 1. A machine that ever joined is never touched here.
//! 2. A control-plane machine goes only when etcd was asked and does not count it as a voter; a
//!    learner of its is removed first, since it would block the next join.
//! 3. The ordinal of its successor is recorded before its first object goes, so that no name is
//!    used twice.
//! 4. One machine at a time.

use std::collections::BTreeMap;

use guestcluster_api::Reason;
use guestcluster_api::labels::Role;

use super::{Context, Draft, Flow};
use crate::action::{Action, Kind, Victim};
use crate::machines::{MachineView, Phase, last_ordinal};
use crate::observed::Meta;

pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    for machine in context.machines.values() {
        match machine.phase() {
            Phase::Leaving => sweep(context, draft, machine),
            Phase::Failed if !draft.has_disruption() => give_up(context, draft, machine),
            _ => {}
        }
    }
    Flow::Next
}

fn give_up(context: &Context<'_>, draft: &mut Draft, machine: &MachineView<'_>) {
    let last_lines = machine.console.join("\n");
    let detail = if last_lines.is_empty() {
        "it was restarted midway".to_owned()
    } else {
        last_lines
    };
    draft.hold(
        Reason::BootstrapFailed,
        format!(
            "the first boot of {} failed and it is replaced: {detail}",
            machine.name
        ),
    );
    if machine.role == Role::ControlPlane && !may_leave_etcd(context, draft, machine) {
        return;
    }
    let last = last_ordinal(
        context.wanted,
        context.seen,
        context.previous,
        &machine.pool,
    );
    if last <= machine.ordinal {
        draft.act(Action::RecordOrdinals(BTreeMap::from([(
            machine.pool.clone(),
            last + 1,
        )])));
        return;
    }
    remove(context, draft, machine);
}

/// Whether etcd certainly does not need the machine; plans the removal of its learner.
fn may_leave_etcd(context: &Context<'_>, draft: &mut Draft, machine: &MachineView<'_>) -> bool {
    if !context.initialised() {
        return true;
    }
    if context.seen.etcd.known().is_none() {
        draft.hold(
            Reason::BootstrapFailed,
            format!(
                "{} is not removed before etcd has said that it is no member",
                machine.name
            ),
        );
        return false;
    }
    match machine.member {
        None => true,
        Some(member) if member.learner || member.name.is_empty() => {
            let machine = machine.name.clone();
            draft.act(Action::RemoveEtcdMember {
                id: member.id,
                machine,
            });
            false
        }
        Some(member) => {
            draft.hold(
                Reason::BootstrapFailed,
                format!(
                    "{} votes in etcd (member {:x}) though its join was cut short: it is left to \
                     come back by itself",
                    machine.name, member.id
                ),
            );
            false
        }
    }
}

/// Disks and Secret go with the VM: from then on the machine counts as leaving, whatever happens
/// in between. Its Service goes last, since its address is what etcd knew it by.
fn remove(context: &Context<'_>, draft: &mut Draft, machine: &MachineView<'_>) {
    let why = format!("the first boot of {} failed", machine.name);
    for (kind, name, meta) in dirty_objects(context, machine) {
        delete(draft, (kind, &name, meta), &why);
    }
    if let Some(vm) = machine.vm {
        delete(draft, (Kind::VirtualMachine, &machine.name, &vm.meta), &why);
    }
}

/// Ends a removal that was begun.
fn sweep(context: &Context<'_>, draft: &mut Draft, machine: &MachineView<'_>) {
    if machine.vm.is_some() || machine.instance.is_some() {
        if !draft.has_disruption() {
            remove(context, draft, machine);
        }
        return;
    }
    let why = format!("{} is gone", machine.name);
    for (kind, name, meta) in dirty_objects(context, machine) {
        delete(draft, (kind, &name, meta), &why);
    }
    if let Some(slice) = context.seen.slices.get(&machine.name) {
        delete(
            draft,
            (Kind::EndpointSlice, &machine.name, &slice.meta),
            &why,
        );
    }
    if let Some(service) = machine.service {
        delete(draft, (Kind::Service, &machine.name, &service.meta), &why);
    }
}

fn dirty_objects<'a>(
    context: &Context<'a>,
    machine: &MachineView<'a>,
) -> Vec<(Kind, String, &'a Meta)> {
    let of_machine = |meta: &Meta| meta.machine.as_ref() == Some(&machine.name);
    let disks = context
        .seen
        .disks
        .iter()
        .filter(|(_, disk)| of_machine(&disk.meta));
    let secrets = context
        .seen
        .secrets
        .iter()
        .filter(|(_, secret)| of_machine(&secret.meta));
    disks
        .map(|(name, disk)| (Kind::DataVolume, name.clone(), &disk.meta))
        .chain(secrets.map(|(name, secret)| (Kind::Secret, name.clone(), &secret.meta)))
        .collect()
}

/// Plans the deletion of exactly the object that was seen, once.
pub(super) fn delete(draft: &mut Draft, (kind, name, meta): (Kind, &str, &Meta), why: &str) {
    if meta.deleting {
        return;
    }
    let object = Victim {
        kind,
        name: name.to_owned(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
    };
    draft.act(Action::Delete {
        object,
        why: why.to_owned(),
    });
}
