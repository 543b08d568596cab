//! Emptying a guest Node before its machine goes off.

use guestcluster_api::Reason;
use k8s_openapi::jiff::SignedDuration;

use super::steps::Wait;
use crate::action::Action;
use crate::decide::{Context, Draft};
use crate::departure::Departure;
use crate::machines::MachineView;
use crate::observed::GuestPod;

/// How long Pods have to leave a machine that fails.
const FAREWELL: SignedDuration = SignedDuration::from_secs(5);

/// Cordons the Node and evicts its Pods; done when none is left or the pool's time limit is over.
pub(super) fn step(
    context: &Context<'_>,
    draft: &mut Draft,
    (machine, why): (&MachineView<'_>, Departure),
) -> Result<(), Wait> {
    let Some(guest) = context.seen.guest.known() else {
        return Err(Wait::For("the guest does not answer".to_owned()));
    };
    // A kubelet that is silent or gone ends no Pod, and the guest moves them by itself.
    let Some(node) = machine.node.filter(|node| node.ready && !machine.is_lost()) else {
        return Ok(());
    };
    let Some(since) = node.drained_since.filter(|_| node.unschedulable) else {
        draft.act(Action::SetDrain {
            node: machine.name.clone(),
            uid: node.uid.clone(),
            since: Some(context.now),
        });
        return Err(Wait::Acting);
    };
    let Some(pods) = guest.pods.get(&machine.name) else {
        return Err(Wait::For("its Pods are not known yet".to_owned()));
    };
    let limit = limit(context, machine, why);
    let over = limit.is_some_and(|limit| context.now >= since + limit);
    if pods.is_empty() || over {
        return Ok(());
    }
    let due = |pod: &&GuestPod| !pod.deleting && pod.due;
    let due: Vec<_> = pods.iter().filter(due).cloned().collect();
    if !due.is_empty() {
        draft.act(Action::Evict {
            node: machine.name.clone(),
            pods: due,
        });
    }
    if let Some(limit) = limit {
        draft.look_again(since + limit, "the drain's time limit");
    }
    Err(Wait::For(say(draft, machine, pods)))
}

/// How long the drain may take. A machine that fails may have a kubelet that ends no Pod any more, and
/// a guest that is short of a machine is worse off than one that is short of a polite goodbye.
fn limit(
    context: &Context<'_>,
    machine: &MachineView<'_>,
    why: Departure,
) -> Option<SignedDuration> {
    if matches!(why, Departure::Unhealthy | Departure::Lost) {
        return Some(FAREWELL);
    }
    let pool = context.wanted.pool(&machine.pool);
    pool.and_then(|pool| pool.drain_timeout)
}

/// How many Pods are left, and what holds the first of them.
fn say(draft: &mut Draft, machine: &MachineView<'_>, pods: &[GuestPod]) -> String {
    let held = |pod: &GuestPod| {
        let why = pod.refused.as_ref()?;
        Some(format!("{}/{}: {why}", pod.namespace, pod.name))
    };
    let held: Vec<String> = pods.iter().filter_map(held).take(3).collect();
    if held.is_empty() {
        return format!("{} Pods of its Node are being evicted", pods.len());
    }
    let message = held.join("; ");
    draft.hold(
        Reason::DrainBlocked,
        format!("the drain of {} is held up: {message}", machine.name),
    );
    format!("its drain is held up: {message}")
}
