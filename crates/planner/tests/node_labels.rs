//! Labels that tell a guest where its Nodes run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use guestcluster_api::labels;
use guestcluster_planner::observed::{GuestNode, Observed, Probe};
use guestcluster_planner::wanted::Settings;
use guestcluster_planner::{Action, Wanted, plan};
use guestcluster_testkit::{World, cluster};

const NODE: &str = "prod-cp-2";

type Changes = BTreeMap<String, Option<String>>;

/// What is changed of a Node's labels once `happens` has happened to a guest that was calm.
fn changes(happens: impl FnOnce(&mut Observed)) -> Changes {
    let mut world = World::new(7, cluster("prod").control_plane(3).build());
    assert!(world.run_until_calm(1000), "{}", world.log());
    let mut seen = world.observe();
    happens(&mut seen);
    let wanted = Wanted::parse(world.cluster().unwrap(), &Settings::default()).unwrap();
    let plan = plan(&wanted, &seen, &world.status(), world.now());
    let labelled = plan.actions.into_iter().find_map(|action| match action {
        Action::LabelNode { node, labels, .. } if node == NODE => Some(labels),
        _ => None,
    });
    labelled.unwrap_or_default()
}

fn node(seen: &mut Observed) -> &mut GuestNode {
    let Probe::Known(guest) = &mut seen.guest else {
        unreachable!("a calm guest answers");
    };
    guest.nodes.get_mut(NODE).unwrap()
}

/// Its machine runs on that host, in that zone.
fn runs_on(seen: &mut Observed, host: &str, zone: Option<&str>) {
    seen.instances.get_mut(NODE).unwrap().host = Some(host.to_owned());
    let known = seen.infra.hosts.iter_mut().find(|known| known.name == host);
    let labels = &mut known.unwrap().labels;
    labels.remove(labels::ZONE);
    labels.extend(zone.map(|zone| (labels::ZONE.to_owned(), zone.to_owned())));
}

fn expected<const N: usize>(labels: [(&str, Option<&str>); N]) -> Changes {
    labels
        .map(|(key, value)| (key.to_owned(), value.map(str::to_owned)))
        .into()
}

#[test]
fn a_node_names_host_zone_and_vm_of_its_machine() {
    let changed = changes(|seen| {
        runs_on(seen, "host-4", Some("west"));
        node(seen).labels.clear();
    });
    for (key, value) in [
        (labels::NODE_HOST, "host-4"),
        (labels::NODE_ZONE, "west"),
        (labels::ZONE, "west"),
        (labels::NODE_VM, NODE),
    ] {
        assert_eq!(changed[key].as_deref(), Some(value), "{key}");
    }
}

#[test]
fn a_node_whose_machine_stays_is_not_written_to() {
    assert_eq!(changes(|_| {}), Changes::new());
}

#[test]
fn a_node_follows_its_machine_to_another_host() {
    let changed = changes(|seen| runs_on(seen, "host-4", Some("west")));
    let moved = expected([
        (labels::NODE_HOST, Some("host-4")),
        (labels::NODE_ZONE, Some("west")),
        (labels::ZONE, Some("west")),
    ]);
    assert_eq!(changed, moved);
}

#[test]
fn a_zone_that_is_true_no_longer_is_taken_off() {
    let changed = changes(|seen| runs_on(seen, "host-4", None));
    let moved = expected([
        (labels::NODE_HOST, Some("host-4")),
        (labels::NODE_ZONE, None),
        (labels::ZONE, None),
    ]);
    assert_eq!(changed, moved);
}

#[test]
fn a_machine_that_is_off_runs_on_no_host() {
    let changed = changes(|seen| seen.instances.get_mut(NODE).unwrap().host = None);
    let off = [labels::NODE_HOST, labels::NODE_ZONE, labels::ZONE].map(|key| (key, None));
    assert_eq!(changed, expected(off));
}

#[test]
fn a_zone_that_somebody_else_gave_a_node_stays() {
    let changed = changes(|seen| {
        runs_on(seen, "host-4", Some("west"));
        let theirs = (labels::ZONE.to_owned(), "theirs".to_owned());
        node(seen).labels.extend([theirs]);
    });
    let moved = expected([
        (labels::NODE_HOST, Some("host-4")),
        (labels::NODE_ZONE, Some("west")),
    ]);
    assert_eq!(changed, moved);
}
