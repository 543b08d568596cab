//! Group `life`: what happens to a guest after its birth: it grows and shrinks, its hosts are drained,
//! it is upgraded, and its machines fail.

mod certificates;
mod drain;
mod endpoint;
mod faults;
mod hands_off;
mod host_loss;
mod operator;
mod repair;
mod scale;
mod topology;
mod upgrade;
mod workload;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::guest::install_operator;
use crate::scenario;
use crate::stage::{RELEASE, SYSTEM, Stage};
use crate::suite::Scenario;
use crate::wait::until;

/// Namespace of the cluster that the group lives with.
pub(crate) const LIFE: &str = "life";

/// The longest that one change of a guest may take.
const CHANGE: Duration = Duration::from_secs(420);

/// The scenarios, in order.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(the_operator_runs, foundation),
        scenario!(scale::a_control_plane_grows, foundation),
        scenario!(drain::a_drained_host_loses_no_request, faults),
        scenario!(drain::workers_move_when_their_budgets_allow, faults),
        scenario!(faults::a_cut_link_replaces_nobody, faults),
        scenario!(
            faults::a_guest_serves_without_the_infrastructures_api,
            faults
        ),
        scenario!(faults::members_without_a_machine_are_taken_out, faults),
        scenario!(repair::a_frozen_member_is_replaced, faults),
        scenario!(repair::a_member_with_a_full_disk_is_replaced, faults, long),
        scenario!(repair::vms_deleted_by_hand_are_replaced),
        scenario!(repair::a_lost_quorum_freezes_everything, faults),
        scenario!(faults::a_dead_load_balancer_costs_no_machine, faults),
        scenario!(hands_off::a_paused_cluster_is_left_alone, faults),
        scenario!(
            hands_off::a_machine_in_a_persons_hands_is_left_alone,
            faults,
            long
        ),
        scenario!(host_loss::a_host_dies_amid_an_upgrade, faults, long),
        scenario!(scale::a_control_plane_and_a_pool_shrink),
        scenario!(certificates::certificates_are_renewed_in_time, long),
        scenario!(endpoint::an_endpoint_moves_without_a_lost_request, long),
        scenario!(topology::converged_and_lab_guests_run, long),
        scenario!(upgrade::an_upgrade_loses_no_request),
        scenario!(upgrade::a_changed_template_rolls_and_a_null_change_does_not),
    ]
}

/// The operator is there, installed by this group or by one before it.
pub async fn the_operator_runs(stage: &Stage) -> anyhow::Result<()> {
    let deployment = format!("deployment/{RELEASE}");
    match stage.kubectl(&["-n", SYSTEM, "get", &deployment]).await {
        Ok(_) => Ok(()),
        Err(_) => install_operator(stage).await,
    }
}

impl Cluster<'_> {
    /// Changes the specification as a person does.
    pub(crate) async fn edit(&self, spec: &Value) -> anyhow::Result<()> {
        let patch = json!({ "spec": spec }).to_string();
        let arguments = [
            "-n",
            self.namespace,
            "patch",
            "gc",
            self.name,
            "--type=merge",
            "-p",
            &patch,
        ];
        self.stage.kubectl(&arguments).await.map(drop)
    }

    /// Waits until the guest has these many machines of each role, every member of etcd is one of
    /// them, every Node is one of them, and nothing is left to do.
    pub(crate) async fn is_whole_with(
        &self,
        control_plane: usize,
        workers: usize,
    ) -> anyhow::Result<()> {
        let what = format!("{control_plane} + {workers} and nothing left to do");
        until(&what, CHANGE, || async {
            self.has_settled().await?;
            let machines: BTreeSet<String> = self.vms().await?.into_keys().collect();
            let all = self.control_plane().await?.len();
            anyhow::ensure!(
                all == control_plane && machines.len() == control_plane + workers,
                "there are {machines:?}"
            );
            let nodes: BTreeSet<String> = self.nodes().await?.into_keys().collect();
            anyhow::ensure!(
                nodes == machines,
                "Nodes are {nodes:?}, machines {machines:?}"
            );
            self.etcd_is_whole().await?;
            Ok(Some(()))
        })
        .await
    }
}
