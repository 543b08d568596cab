//! The table, looked at as a whole.

use guestcluster_foreign::core::HostNode;
use guestcluster_planner::chain::{Link, State};
use serde_json::json;

use super::super::rows::rows;
use super::*;

fn link(guest: &str, pool: &str, ordinal: u32, host: Option<&str>) -> Link {
    let machine = format!("{guest}-{pool}-{ordinal}");
    let role = if pool == "cp" {
        "control-plane"
    } else {
        "worker"
    };
    Link {
        tenant: "acme".to_owned(),
        namespace: "tenant-a".to_owned(),
        cluster: guest.to_owned(),
        role: role.to_owned(),
        pool: pool.to_owned(),
        vm: Some(machine.clone()),
        instance: Some("Running".to_owned()),
        pod: Some(format!("virt-launcher-{machine}-x7k2p")),
        host: host.map(str::to_owned),
        state: State::Runs,
        machine,
    }
}

/// Two guests of one tenant: the second has two machines of its control plane on one host, and
/// workers in each state.
fn links() -> Vec<Link> {
    let mut links = vec![
        link("prod", "general", 10, Some("host-3")),
        link("prod", "general", 9, Some("host-1")),
        link("prod", "cp", 1, Some("host-1")),
        link("prod", "cp", 2, Some("host-2")),
        link("dev", "cp", 1, Some("host-2")),
        link("dev", "cp", 3, Some("host-2")),
        link("dev", "w", 1, Some("host-1")),
        link("dev", "w", 2, None),
        link("dev", "w", 3, None),
        link("dev", "w", 4, Some("host-9")),
    ];
    links[6].state = State::MovesTo("host-3".to_owned());
    links[7].state = State::Waits;
    links[7].instance = Some("Scheduling".to_owned());
    links[8].state = State::Off;
    (links[8].instance, links[8].pod) = (None, None);
    links[9].vm = None;
    links
}

fn host(name: &str, zone: Option<&str>, cordoned: bool, ready: &str) -> HostNode {
    let labels = zone.map(|zone| json!({ "topology.kubernetes.io/zone": zone }));
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "unschedulable": cordoned },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    }))
    .unwrap()
}

fn hosts() -> Vec<HostNode> {
    vec![
        host("host-1", Some("zone-a"), false, "True"),
        host("host-2", Some("zone-b"), true, "True"),
        host("host-3", None, false, "Unknown"),
    ]
}

fn text(links: &[Link], shape: Shape) -> String {
    table(&rows(links, Some(&hosts()), shape.by), shape)
}

const BY_GUEST: Shape = Shape {
    by: By::Guest,
    wide: false,
    namespaces: false,
};

#[test]
fn by_guest_the_control_plane_comes_first_and_ordinals_count_up() {
    insta::assert_snapshot!(text(&links(), BY_GUEST));
}

#[test]
fn by_host_machines_without_one_come_last() {
    let shape = Shape {
        by: By::Host,
        ..BY_GUEST
    };
    insta::assert_snapshot!(text(&links(), shape));
}

#[test]
fn wide_and_of_all_namespaces_it_shows_all_there_is() {
    let shape = Shape {
        wide: true,
        namespaces: true,
        ..BY_GUEST
    };
    insta::assert_snapshot!(text(&links(), shape));
}

#[test]
fn without_the_right_to_list_hosts_zones_are_not_known() {
    let rows = rows(&links(), None, By::Guest);
    insta::assert_snapshot!(table(&rows, BY_GUEST));
}

#[test]
fn json_tells_none_from_not_known() {
    let two = || {
        vec![
            link("prod", "cp", 1, Some("host-3")),
            link("prod", "cp", 2, None),
        ]
    };
    let known = serde_json::to_value(rows(&two(), Some(&hosts()), By::Guest)).unwrap();
    let unknown = serde_json::to_value(rows(&two(), None, By::Guest)).unwrap();
    assert_eq!(
        (&known[0]["zone"], &known[0]["zoneKnown"]),
        (&json!(null), &json!(true))
    );
    assert_eq!(unknown[0]["zoneKnown"], json!(false));
    assert_eq!(known[1]["host"], json!(null));
}

#[test]
fn the_order_in_which_objects_are_listed_does_not_matter() {
    let backwards: Vec<_> = links().into_iter().rev().collect();
    assert_eq!(text(&links(), BY_GUEST), text(&backwards, BY_GUEST));
}

#[test]
fn nothing_is_printed_of_no_machines() {
    assert_eq!(text(&[], BY_GUEST), "");
}
