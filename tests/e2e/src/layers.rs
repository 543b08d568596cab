//! Group `layers`: hosts and guests seen together: what machines ask of hosts and offer as Nodes, what a
//! lost host would cost, machines that share one, hosts that are emptied, and what the infrastructure's
//! API server refuses.

mod admission;
mod alive;
mod chain;
mod co_location;
mod maintenance;
mod masquerade;
mod moves;
mod n_plus_one;
mod sizes;
mod storage;

use crate::life::the_operator_runs;
use crate::scenario;
use crate::stage::Stage;
use crate::suite::Scenario;

/// The scenarios, in order.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(the_operator_runs, foundation),
        scenario!(admission::machines_of_guests_are_held_to_the_rules),
        scenario!(admission::machines_from_before_the_rules_stay_usable),
        scenario!(sizes::launcher_pods_ask_for_what_is_counted),
        scenario!(sizes::guests_offer_what_is_counted),
        scenario!(n_plus_one::a_guest_without_room_for_a_lost_host_is_refused_or_told),
        scenario!(
            co_location::machines_on_one_host_are_found_and_moved_apart,
            faults
        ),
        scenario!(storage::etcd_disks_on_one_storage_host_are_found),
        scenario!(maintenance::a_host_is_emptied_without_a_lost_request),
        scenario!(maintenance::a_maintenance_can_be_called_off_and_waits_for_a_host),
        scenario!(alive::machines_leave_an_emptied_host_while_they_run, faults),
    ]
}

/// Group `moves`: machines that move to another host while they run, and guests that could.
pub fn moving() -> Vec<Scenario> {
    vec![
        scenario!(the_operator_runs, foundation),
        scenario!(moves::a_machine_moves_while_it_runs, faults),
        scenario!(moves::a_move_that_comes_to_nothing_changes_nothing, faults),
        scenario!(masquerade::a_guest_behind_masquerade_serves, faults),
    ]
}

/// Names of the hosts that carry machines, in order.
async fn hosts(stage: &Stage) -> anyhow::Result<Vec<String>> {
    let arguments = [
        "get",
        "nodes",
        "-l",
        "kubevirt.io/schedulable=true",
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ];
    let names = stage.kubectl(&arguments).await?;
    let mut names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
    names.sort();
    Ok(names)
}
