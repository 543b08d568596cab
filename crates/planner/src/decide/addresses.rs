//! Where each machine's own Service leads: to its instance's present address.

use super::{Context, Draft, Flow};
use crate::action::Action;
use crate::machines::MachineView;
use crate::render;

/// Writes the EndpointSlice of every machine with a Service of its own whose instance has another
/// address than the slice says: after a restart, or at the hand-over of a live migration. A machine that
/// is off leads nowhere, so that callers are refused at once instead of waiting for a peer that is gone.
pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let served = |m: &&MachineView<'_>| {
        let is_swept = m.is_leaving() && m.vm.is_none() && m.instance.is_none();
        let has_service = m.service.is_some_and(|service| !service.meta.deleting);
        has_service && !is_swept
    };
    for machine in context.machines.values().filter(served) {
        let wants = address(machine);
        let has = context.seen.slices.get(&machine.name);
        let same = match (has, wants) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some(slice), wants) => slice.addresses.iter().map(String::as_str).eq(wants),
        };
        if let (false, Some(pool)) = (same, context.wanted.pool(&machine.pool)) {
            let slice = render::address_slice(context.wanted, pool, &machine.name, wants);
            draft.act(Action::Apply(slice));
        }
    }
    Flow::Next
}

fn address<'a>(machine: &MachineView<'a>) -> Option<&'a str> {
    let instance = machine
        .instance
        .filter(|instance| instance.phase == "Running")?;
    instance.address.as_deref()
}
