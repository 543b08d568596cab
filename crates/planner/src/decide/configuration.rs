//! What kubeadm keeps in the guest: its configuration, which every control-plane join reads, and the
//! add-ons that it installed at init.

use guestcluster_api::names;

use super::{Context, Draft, Flow, endpoint, rollout};
use crate::action::Action;
use crate::machines::{MachineView, Phase};
use crate::render;

/// Writes the configuration that a control-plane machine is about to join with; `true` if it is the
/// one wanted already. A machine joins when no other one does, so that none reads half of a change.
pub(super) fn is_written(context: &Context<'_>, draft: &mut Draft) -> bool {
    let (Some(guest), Some(endpoint)) = (context.seen.guest.known(), context.endpoint()) else {
        return false;
    };
    let names = endpoint::names(context, &endpoint);
    let digest = render::configuration_digest(context.wanted, &endpoint, &names);
    if guest.configuration.as_ref() == Some(&digest) {
        return true;
    }
    let action = Action::WriteConfiguration {
        digest,
        endpoint,
        names,
    };
    if !draft.plan.actions.contains(&action) {
        draft.act(action);
    }
    false
}

/// kube-proxy and CoreDNS follow once the whole control plane runs the version: neither may be newer
/// than an API server.
pub(super) fn addons(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let wanted = context.wanted;
    let Some(guest) = context.seen.guest.known().filter(|_| context.initialised()) else {
        return Flow::Next;
    };
    let is_new = |m: &&&MachineView<'_>| {
        let version = m.node.map(|node| &node.kubelet_version);
        m.phase() == Phase::Ready && version == Some(&wanted.version)
    };
    let machines = rollout::counted(context, names::CONTROL_PLANE_POOL);
    let new = machines.iter().filter(is_new).count();
    let whole = u32::try_from(new).is_ok_and(|new| new == wanted.control_plane_size());
    if whole && new == machines.len() && guest.addons.as_ref() != Some(&wanted.version) {
        draft.act(Action::UpgradeAddons {
            version: wanted.version.clone(),
        });
    }
    Flow::Next
}
