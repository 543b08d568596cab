//! Whether a machine finds a host.

use guestcluster_api::labels::Role;
use guestcluster_api::spec::Profile;
use guestcluster_capacity::Host;
use guestcluster_placement::{Replacement, Rollout, rollout};

use crate::observed::{Holding, Observed};
use crate::wanted::{Pool, Wanted};

/// Whether one more machine of the pool, which has these machines, finds one of these hosts, or at
/// least one in the place of the machine that leaves.
pub fn room(
    wanted: &Wanted,
    seen: &Observed,
    (pool, machines): (&Pool, &[&str]),
    (hosts, leaving): (&[Host], &str),
) -> Rollout {
    let infra = &seen.infra;
    let of_pool = |holding: &&Holding| machines.contains(&holding.machine.as_str());
    let held: Vec<Holding> = infra.holdings.iter().filter(of_pool).cloned().collect();
    let waits = |name: &&&str| held.iter().all(|holding| holding.machine != **name);
    let waiting: Vec<String> = machines
        .iter()
        .filter(waits)
        .map(|name| (*name).to_owned())
        .collect();
    rollout(&Replacement {
        hosts,
        usage: &infra.usage,
        requirements: &pool.requirements,
        requests: &pool.requests(),
        held: &held,
        apart: pool.role == Role::ControlPlane && wanted.profile == Profile::Production,
        waiting: &waiting,
        leaving,
    })
}
