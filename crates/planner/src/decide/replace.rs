//! Machines whose first boot ended without a join are given up; a successor with a new ordinal takes
//! their place. What is left of a machine without VM, whatever it left for, is taken away here.
//!
//! The MUSTs:
//! 1. A machine that ever joined is touched only after its departure (`depart.rs`), and nothing is
//!    while the guest is silent.
//! 2. Status has told of the failure before anything is taken away: what happens in between, the
//!    machine stays given up.
//! 3. A control-plane machine goes only when etcd was asked and does not count on it: a learner of
//!    its is removed first, since it would block every later join. A voter usually comes back by
//!    itself, as long as its token lives; after that it goes if the others are a quorum.
//! 4. Its Service and disks go last, when nothing of it runs any more and etcd was asked again: the
//!    address is what etcd knows it by.
//! 5. One machine at a time.

use guestcluster_api::Reason;
use guestcluster_api::labels::{self, Role};
use guestcluster_api::names;

use super::depart::{is_withdrawn, spares};
use super::{Context, Draft, Flow};
use crate::action::{Action, Kind, Victim};
use crate::machines::{MachineView, Phase};
use crate::observed::{EtcdMember, GuestNode, Meta};

pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    for machine in context.machines.values() {
        match machine.phase() {
            Phase::Leaving => sweep(context, draft, machine),
            Phase::Failed => give_up(context, draft, machine),
            Phase::Wanted
            | Phase::Creating
            | Phase::Booting
            | Phase::Joined
            | Phase::Ready
            | Phase::Unhealthy
            | Phase::Stopped => {}
        }
    }
    remove_orphans(context, draft);
    Flow::Next
}

fn give_up(context: &Context<'_>, draft: &mut Draft, machine: &MachineView<'_>) {
    let detail = machine.trouble();
    draft.hold(
        Reason::BootstrapFailed,
        format!(
            "the first boot of {} failed: {}",
            machine.name,
            detail.as_deref().unwrap_or("it was cut short")
        ),
    );
    let told = machine.is_given_up();
    if !told || draft.has_disruption() || !may_go(context, draft, machine) {
        return;
    }
    if let Some(vm) = machine.vm {
        let why = format!("the first boot of {} failed", machine.name);
        delete(draft, (Kind::VirtualMachine, &machine.name, &vm.meta), &why);
    }
}

/// Takes away what is left of a machine that was given up, once nothing of it runs.
fn sweep(context: &Context<'_>, draft: &mut Draft, machine: &MachineView<'_>) {
    if !machine.is_lost() || !may_go(context, draft, machine) {
        return;
    }
    if let Some(node) = machine.node {
        draft.act(Action::DeleteNode {
            node: machine.name.clone(),
            uid: node.uid.clone(),
        });
        return;
    }
    let why = format!("{} is gone", machine.name);
    for (kind, name, meta) in objects(context, machine) {
        delete(draft, (kind, &name, meta), &why);
    }
}

/// Whether the guest certainly does not need the machine; plans the removal of its etcd member.
fn may_go(context: &Context<'_>, draft: &mut Draft, machine: &MachineView<'_>) -> bool {
    if !context.initialised() {
        return true;
    }
    if !machine.asked {
        draft.hold(
            Reason::BootstrapFailed,
            format!(
                "{} is not removed before the guest and its etcd have said that it is no part of \
                 them",
                machine.name
            ),
        );
        return false;
    }
    if let (Role::ControlPlane, Some(member), Some(etcd)) =
        (machine.role, machine.member, context.seen.etcd.known())
    {
        if !machine.votes() {
            remove_member(draft, member, &machine.name);
        // Its successor is not counted: it comes as a learner, and only while all members are well. Of
        // two members the one whose machine cannot enter would otherwise stay for ever.
        } else if may_enter(context, machine) || !spares(etcd, member, false) {
            draft.hold(
                Reason::BootstrapFailed,
                format!(
                    "{} votes in etcd (member {:x}) though its join was cut short: it is left to \
                     come back by itself",
                    machine.name, member.id
                ),
            );
        } else if is_withdrawn(context, draft, machine) {
            remove_member(draft, member, &machine.name);
        }
        return false;
    }
    // Its kubelet could enter at the last moment: its token is taken back first.
    !may_enter(context, machine)
}

/// Its kubelet may still enter the guest by itself: kubeadm left it a token that is good.
fn may_enter(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    let token = machine.user_data.and_then(|data| data.token_id.as_ref());
    let guest = context.seen.guest.known();
    let is_good =
        matches!((token, guest), (Some(id), Some(guest)) if guest.tokens.contains_key(id));
    machine.vm.is_some() && is_good
}

/// A member or Node that belongs to no machine of ours: a person deleted all that was left of its
/// machine, or added the member by hand. A learner would block every later join and has no vote to
/// lose; a voter goes if the others are a quorum. One that has not started has no name, and none of our
/// machines will ever start it: its address is none of theirs. A voter that runs under a name of its
/// own is somebody's wish.
fn remove_orphans(context: &Context<'_>, draft: &mut Draft) {
    let Some(etcd) = context.seen.etcd.known().filter(|_| context.initialised()) else {
        return;
    };
    let ours = |member: &EtcdMember| {
        let mut members = context
            .machines
            .values()
            .filter_map(|machine| machine.member);
        members.any(|own| own.id == member.id)
    };
    let is_lost = |member: &&EtcdMember| {
        let named = names::ordinal(
            &context.wanted.identity.name,
            names::CONTROL_PLANE_POOL,
            &member.name,
        );
        let is_nobodys = named.is_some() || member.name.is_empty();
        let goes = member.learner || (is_nobodys && spares(etcd, member, true));
        goes && !ours(member)
    };
    if let Some(member) = etcd.members.iter().find(is_lost) {
        // Events of one series differ in whom they are about alone.
        let whose = if member.name.is_empty() {
            format!("no machine of ours ({})", member.peer_urls.join(", "))
        } else {
            member.name.clone()
        };
        remove_member(draft, member, &whose);
        return;
    }
    let Some(guest) = context.seen.guest.known() else {
        return;
    };
    let is_orphan = |(name, node): &(&String, &GuestNode)| {
        let pool = node.labels.get(labels::NODE_POOL);
        let named = pool
            .and_then(|pool| names::ordinal(&context.wanted.identity.name, pool, name))
            .is_some();
        let votes = etcd.members.iter().any(|member| member.name == **name);
        named && !votes && !context.machines.contains_key(*name)
    };
    if let Some((name, node)) = guest.nodes.iter().find(is_orphan) {
        draft.act(Action::DeleteNode {
            node: name.clone(),
            uid: node.uid.clone(),
        });
    }
}

fn remove_member(draft: &mut Draft, member: &EtcdMember, machine: &str) {
    if !draft.has_disruption() {
        draft.act(Action::RemoveEtcdMember {
            id: member.id,
            machine: machine.to_owned(),
        });
    }
}

/// All that is left of a machine without VM: disks, documents, and at last its address.
fn objects<'a>(context: &Context<'a>, machine: &MachineView<'a>) -> Vec<(Kind, String, &'a Meta)> {
    let seen = context.seen;
    let of_machine = |meta: &Meta| meta.machine.as_ref() == Some(&machine.name);
    let disks = seen
        .disks
        .iter()
        .map(|(name, disk)| (Kind::DataVolume, name, &disk.meta));
    let secrets = seen
        .secrets
        .iter()
        .map(|(name, secret)| (Kind::Secret, name, &secret.meta));
    let slices = seen
        .slices
        .iter()
        .map(|(name, slice)| (Kind::EndpointSlice, name, &slice.meta));
    let services = seen
        .services
        .iter()
        .map(|(name, service)| (Kind::Service, name, &service.meta));
    disks
        .chain(secrets)
        .chain(slices)
        .chain(services)
        .filter(|(_, _, meta)| of_machine(meta))
        .map(|(kind, name, meta)| (kind, name.clone(), meta))
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
