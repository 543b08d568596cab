//! Which machines carry workloads, and how their Nodes are marked.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use guestcluster_api::spec::Topology;
use guestcluster_planner::observed::Probe;
use guestcluster_planner::wanted::Settings;
use guestcluster_planner::{Action, Wanted, plan};
use guestcluster_testkit::{World, cluster};

/// The role labels that a control-plane Node gets which kubeadm has not marked, and whether it is
/// tainted.
fn marks(topology: Topology) -> (Vec<String>, bool) {
    let cluster = cluster("prod")
        .control_plane(3)
        .with(|spec| spec.topology = topology);
    let mut world = World::new(7, cluster.build());
    assert!(world.run_until_calm(1000), "{}", world.log());
    let mut seen = world.observe();
    if let Probe::Known(guest) = &mut seen.guest {
        let node = guest.nodes.get_mut("prod-cp-2").unwrap();
        node.labels.clear();
        node.taints.clear();
    }
    let wanted = Wanted::parse(world.cluster().unwrap(), &Settings::default()).unwrap();
    let plan = plan(&wanted, &seen, &world.status(), world.now());
    let labelled = plan.actions.iter().find_map(|action| match action {
        Action::LabelNode {
            labels,
            taint_control_plane,
            ..
        } => Some((labels, *taint_control_plane)),
        _ => None,
    });
    let (labels, tainted) = labelled.unwrap();
    let roles = labels.keys().filter(|key| key.starts_with("node-role"));
    (roles.cloned().collect(), tainted)
}

#[test]
fn a_converged_node_has_both_roles_and_is_never_tainted() {
    let roles = [
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/worker",
    ];
    let both = roles.map(str::to_owned).to_vec();
    assert_eq!(marks(Topology::Converged), (both, false));
}

#[test]
fn a_dedicated_control_plane_node_gets_the_taint_that_it_lacks() {
    let role = vec!["node-role.kubernetes.io/control-plane".to_owned()];
    assert_eq!(marks(Topology::Dedicated), (role, true));
}
