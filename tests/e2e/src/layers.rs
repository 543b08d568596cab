//! Group `layers`: hosts and guests seen together: what a lost host would cost, machines that share
//! one, hosts that are emptied, and what the infrastructure's API server refuses.

mod maintenance;
mod chain;

use crate::life::the_operator_runs;
use crate::scenario;
use crate::suite::Scenario;

/// The scenarios, in order.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(the_operator_runs, foundation),
        scenario!(maintenance::a_host_is_emptied_without_a_lost_request),
        scenario!(maintenance::a_maintenance_can_be_called_off_and_waits_for_a_host),
        scenario!(chain::a_moved_machine_is_shown_where_it_runs),
    ]
}
