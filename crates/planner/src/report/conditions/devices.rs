//! What the devices that machines hold mean for them.

use guestcluster_api::Reason;
use guestcluster_capacity::Quantity;

use super::{Facts, Truth, Verdict, no};
use crate::machines::MachineView;
use crate::wanted::Pool;

/// The verdict on the other machines' moves, after what devices cost: machines that hold any are shut
/// down where others move.
pub(super) fn cost(facts: &Facts<'_>, others: Verdict) -> Verdict {
    let holds = |pool: &&Pool| pool.has_devices() && pool.replicas > 0;
    let all = facts.wanted.pools.iter().filter(holds);
    let pools = all.map(named).collect::<Vec<_>>();
    if pools.is_empty() {
        return others;
    }
    let rest = match others.0 {
        Truth::True => ". Other machines can move".to_owned(),
        Truth::False => format!(". {}", others.2),
        Truth::Unknown => String::new(),
    };
    let word = if pools.len() == 1 { "pool" } else { "pools" };
    no(
        Reason::NotMigratable,
        format!(
            "machines of {word} {} hold devices of their hosts and never move while they run: where a \
             host is emptied, they are shut down and start on another one that has such devices \
             free{rest}",
            pools.join(", ")
        ),
    )
}

/// `gpu (nvidia.com/GA102GL_A10)`.
fn named(pool: &Pool) -> String {
    let devices = pool.devices.iter().map(|device| &*device.device_name);
    let devices = devices.collect::<Vec<_>>();
    format!("{} ({})", pool.name, devices.join(", "))
}

/// What a machine without host is told if its devices are on no host at all.
pub(super) fn offered_nowhere(facts: &Facts<'_>, machine: &MachineView<'_>) -> Option<String> {
    let pool = facts.wanted.pool(&machine.pool)?;
    let hosts = &facts.seen.infra.hosts;
    let offers = |name: &String| {
        let offered = hosts.iter().filter_map(|host| host.allocatable.get(name));
        offered
            .max()
            .is_some_and(|most| *most > Quantity::default())
    };
    let mut names = pool.devices.iter().map(|device| &device.device_name);
    let name = names.find(|name| !offers(name))?;
    Some(format!(
        "no host offers {name}: list it in permittedHostDevices of the KubeVirt object, or add a host \
         that has it"
    ))
}
