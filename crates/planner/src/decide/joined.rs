//! What follows a join, and what keeps a machine that is still joining able to do so.

use std::collections::BTreeMap;

use guestcluster_api::labels::{self, Role};
use guestcluster_api::spec::Topology;
use k8s_openapi::jiff::SignedDuration;

use super::{Context, Draft, Flow};
use crate::action::{Action, Kind, Victim};
use crate::machines::{MachineView, Phase};
use crate::observed::{Guest, GuestNode};
use crate::wanted::Pool;

const CONTROL_PLANE_ROLE: &str = "node-role.kubernetes.io/control-plane";
const WORKER_ROLE: &str = "node-role.kubernetes.io/worker";

/// A token that lapses within this time while its machine is on its way is extended.
const EXTEND_BEFORE: SignedDuration = SignedDuration::from_mins(5);

pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let Some(guest) = context.seen.guest.known().filter(|_| context.initialised()) else {
        return Flow::Next;
    };
    for machine in context.machines.values() {
        if machine.has_joined() {
            welcome(context, draft, (machine, guest));
        } else {
            keep_token(context, draft, (machine, guest));
        }
    }
    Flow::Next
}

fn welcome(context: &Context<'_>, draft: &mut Draft, (machine, guest): (&MachineView<'_>, &Guest)) {
    if let (Some(pool), Some(node)) = (context.wanted.pool(&machine.pool), machine.node)
        && !machine.is_leaving()
    {
        let topology = context.wanted.topology;
        let zone = zone(context, machine);
        let labels = label_changes(machine, pool, (node, topology, zone));
        // kubeadm's last steps label and taint a control-plane Node; a join that was cut short
        // after its etcd member voted lacks them. A converged Node is left unmarked on purpose.
        let taint_control_plane = machine.role == Role::ControlPlane
            && topology == Topology::Dedicated
            && !node.labels.contains_key(CONTROL_PLANE_ROLE)
            && !node.taints.contains(CONTROL_PLANE_ROLE);
        if !labels.is_empty() {
            let node = machine.name.clone();
            draft.act(Action::LabelNode {
                node,
                labels,
                taint_control_plane,
            });
        }
    }
    // The machine's own API server must have answered: only then can it start without kubeadm.
    let can_restart = machine.role == Role::Worker || machine.vm.is_some_and(|vm| vm.ready);
    if let (Some(secret), false, true) = (machine.user_data, machine.is_settled(), can_restart) {
        if let Some(token) = secret
            .token_id
            .clone()
            .filter(|id| guest.tokens.contains_key(id))
        {
            draft.act(Action::DeleteToken { token });
        }
        let secret = Victim {
            kind: Kind::Secret,
            name: guestcluster_api::names::user_data_secret(&machine.name),
            uid: secret.meta.uid.clone(),
            resource_version: secret.meta.resource_version.clone(),
        };
        let (machine, role) = (machine.name.clone(), machine.role);
        draft.act(Action::ScrubUserData {
            machine,
            role,
            secret,
        });
    }
}

/// The zone of the host that a machine runs on.
fn zone<'a>(context: &Context<'a>, machine: &MachineView<'_>) -> Option<&'a str> {
    let host = machine.host()?;
    let mut hosts = context.seen.infra.hosts.iter();
    let labels = &hosts.find(|known| known.name == host)?.labels;
    labels.get(labels::ZONE).map(String::as_str)
}

/// What is to change of a Node's labels. Those that say where its machine runs are taken off as soon
/// as that is not true: a machine that is off runs nowhere.
fn label_changes(
    machine: &MachineView<'_>,
    pool: &Pool,
    (node, topology, zone): (&GuestNode, Topology, Option<&str>),
) -> BTreeMap<String, Option<String>> {
    let roles: &[&str] = match (machine.role, topology) {
        (Role::ControlPlane, Topology::Dedicated) => &[CONTROL_PLANE_ROLE],
        (Role::ControlPlane, Topology::Converged) => &[CONTROL_PLANE_ROLE, WORKER_ROLE],
        (Role::Worker, _) => &[WORKER_ROLE],
    };
    let mut wanted = BTreeMap::new();
    // What a specification or somebody else says of the Node's zone goes before the host's.
    let told = node.labels.get(labels::ZONE);
    if told.is_none_or(|told| node.labels.get(labels::NODE_ZONE) == Some(told)) {
        wanted.insert(labels::ZONE, zone);
    }
    let own = pool.node_labels.iter();
    wanted.extend(own.map(|(key, value)| (&**key, Some(&**value))));
    wanted.extend(roles.iter().map(|role| (*role, Some(""))));
    wanted.insert(labels::NODE_POOL, Some(&pool.name));
    wanted.insert(labels::NODE_HOST, machine.host());
    wanted.insert(labels::NODE_ZONE, zone);
    wanted.insert(labels::NODE_VM, machine.vm.map(|_| &*machine.name));
    wanted.retain(|key, value| node.labels.get(*key).map(String::as_str) != *value);
    wanted
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.map(str::to_owned)))
        .collect()
}

fn keep_token(
    context: &Context<'_>,
    draft: &mut Draft,
    (machine, guest): (&MachineView<'_>, &Guest),
) {
    let id = machine
        .user_data
        .and_then(|secret| secret.token_id.as_ref());
    let Some((id, Some(expiry))) = id.and_then(|id| guest.tokens.get_key_value(id)) else {
        return;
    };
    let token = id.clone();
    let extend_at = *expiry - EXTEND_BEFORE;
    match machine.phase() {
        // Its kubelet may still enter by itself, as long as the token lives.
        Phase::Failed if machine.votes() => {}
        Phase::Failed | Phase::Leaving => draft.act(Action::DeleteToken { token }),
        Phase::Creating | Phase::Booting if context.now >= extend_at => {
            draft.act(Action::ExtendToken { token });
        }
        Phase::Creating | Phase::Booting => draft.look_again(extend_at, "bootstrap token"),
        Phase::Wanted | Phase::Joined | Phase::Ready | Phase::Unhealthy | Phase::Stopped => {}
    }
}
