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
    if let (Some(pool), Some(node)) = (context.wanted.pool(&machine.pool), machine.node) {
        let topology = context.wanted.topology;
        let labels = missing_labels(machine, pool, (node, topology));
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

fn missing_labels(
    machine: &MachineView<'_>,
    pool: &Pool,
    (node, topology): (&GuestNode, Topology),
) -> BTreeMap<String, String> {
    let mut labels = pool.node_labels.clone();
    let roles: &[&str] = match (machine.role, topology) {
        (Role::ControlPlane, Topology::Dedicated) => &[CONTROL_PLANE_ROLE],
        (Role::ControlPlane, Topology::Converged) => &[CONTROL_PLANE_ROLE, WORKER_ROLE],
        (Role::Worker, _) => &[WORKER_ROLE],
    };
    labels.extend(roles.iter().map(|role| ((*role).to_owned(), String::new())));
    labels.insert(labels::NODE_POOL.to_owned(), pool.name.clone());
    if let Some(host) = machine.host() {
        labels.insert(labels::NODE_HOST.to_owned(), host.to_owned());
    }
    labels.retain(|key, value| node.labels.get(key) != Some(value));
    labels
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
