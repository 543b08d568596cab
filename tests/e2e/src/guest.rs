//! Group `guest`: a guest cluster is born, serves, survives what happens to machines and hosts, and
//! goes without a trace.

mod birth;
mod cleanliness;
mod ending;
mod endpoints;
mod faults;
mod install;
mod refusals;
mod silence;

pub(crate) use endpoints::node_addresses;
pub(crate) use faults::{kill_operators, operator_arguments, set_operator_arguments};
pub use install::helm_installs_with_least_rights as install_operator;

use crate::scenario;
use crate::suite::Scenario;

/// Namespace of the cluster that most scenarios share.
pub(crate) const TENANT: &str = "tenant-a";
/// Its name: three control-plane machines and three workers.
pub(crate) const PROD: &str = "prod";

/// The scenarios, in order.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(install::helm_installs_with_least_rights, foundation),
        scenario!(refusals::wrong_specs_are_refused_with_a_sentence),
        scenario!(birth::three_and_three_become_ready, foundation),
        scenario!(birth::control_planes_stand_on_three_hosts),
        scenario!(birth::launcher_pods_are_guaranteed_with_whole_cpus),
        scenario!(birth::a_deployment_answers_through_a_service),
        scenario!(birth::secrets_hold_no_keys_after_join),
        scenario!(birth::a_tenant_reads_its_kubeconfig_and_nothing_else),
        scenario!(silence::a_newer_operator_writes_to_no_vm),
        scenario!(silence::kubectl_diff_is_empty),
        scenario!(refusals::what_only_the_cluster_can_tell_becomes_a_condition),
        scenario!(endpoints::endpoints_of_every_type_serve),
        scenario!(faults::a_join_cut_short_recovers, faults),
        scenario!(silence::an_idle_operator_writes_nothing, faults),
        scenario!(
            faults::every_member_restarts_in_turn_with_a_new_address,
            faults
        ),
        scenario!(faults::two_members_restart_at_once, faults),
        scenario!(faults::all_members_restart_at_once, faults),
        scenario!(faults::a_member_restarts_while_the_operator_is_down, faults),
        scenario!(faults::the_leaders_host_dies_and_the_api_answers, faults),
        scenario!(ending::a_protected_cluster_stays),
        scenario!(ending::a_deleted_cluster_leaves_nothing),
        scenario!(
            faults::an_operator_killed_at_random_makes_nothing_twice,
            faults
        ),
        scenario!(ending::a_dead_guest_is_deleted_and_its_disks_stay, faults),
        scenario!(
            cleanliness::the_infrastructure_leaves_nothing_behind,
            faults
        ),
    ]
}
