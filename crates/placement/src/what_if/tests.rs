use guestcluster_capacity::{Quantity, Requests, Taint};

use super::Outcome;
use crate::Toleration;
use rack::{Guest, Rack, guest, rack, words};

mod rack;

const ZONE: &str = "topology.kubernetes.io/zone";

#[test]
fn a_machine_moves_to_a_host_that_has_room() {
    let rack = rack(&[8, 8]).with(guest("a", &["host-1"], 4));
    assert_eq!(rack.without(&["host-1"]), "fits: a to host-2");
    assert_eq!(rack.without(&["host-2"]), "fits: ");
}

#[test]
fn who_is_left_over_is_named_with_reasons_and_cure() {
    let rack = rack(&[16, 9, 5])
        .with(guest("a", &["host-1"], 8))
        .with(guest("b", &["host-1"], 4))
        .with(guest("c", &["host-2"], 4));
    assert_eq!(
        rack.without(&["host-1"]),
        "a: host-2 has 4.985 cpu free, the machine needs 8.015; host-3 has 5 cpu in all, the \
         machine needs 8.015 => one more host with 8.015 cpu, 16.47Gi memory free for a"
    );
}

#[test]
fn room_that_another_displaced_machine_takes_is_kept_for_it() {
    let rack = rack(&[10, 5])
        .with(guest("a", &["host-1"], 4))
        .with(guest("b", &["host-1"], 4));
    assert_eq!(
        rack.without(&["host-1"]),
        "b: host-2 has room only for a, which is on no host now => one more host with 4.015 cpu, \
         8.43Gi memory free for b"
    );
}

#[test]
fn a_migrating_machine_stays_on_the_side_that_lives() {
    let rack = rack(&[8, 8, 5]).with(guest("a", &["host-1", "host-2"], 4));
    assert_eq!(rack.without(&["host-1"]), "fits: ");
    assert_eq!(rack.without(&["host-2"]), "fits: ");
    assert_eq!(rack.without(&["host-1", "host-2"]), "fits: a to host-3");
}

#[test]
fn the_side_that_lives_goes_on_holding_what_it_holds() {
    let rack = rack(&[10, 6])
        .with(guest("a", &["host-1", "host-2"], 4))
        .with(guest("b", &["host-1"], 4));
    let answer = rack.without(&["host-1"]);
    assert!(
        answer.starts_with("b: host-2 has 1.985 cpu free"),
        "{answer}"
    );
}

#[test]
fn the_side_that_lives_keeps_its_group_away() {
    let rack = rack(&[32, 32, 5])
        .with(guest("cp-1", &["host-1", "host-2"], 4).apart("cp"))
        .with(guest("cp-2", &["host-1"], 4).apart("cp"));
    assert_eq!(rack.without(&["host-1"]), "fits: cp-2 to host-3");
    assert_eq!(
        rack.without(&["host-1", "host-3"]),
        "cp-2: host-2 already carries cp-1 => one more host with 4.015 cpu, 8.43Gi memory free \
         for cp-2"
    );
}

#[test]
fn machines_of_one_group_need_a_new_host_each() {
    let rack = rack(&[32, 32])
        .with(guest("cp-1", &["host-1"], 4).apart("cp"))
        .with(guest("cp-2", &["host-1"], 4).apart("cp"))
        .with(guest("cp-3", &["host-2"], 4).apart("cp"))
        .with(guest("w-1", &["host-1"], 2));
    let answer = rack.without(&["host-1"]);
    assert!(
        answer.ends_with(
            "=> one more host with 4.015 cpu, 8.43Gi memory free for cp-1; one more host with \
             4.015 cpu, 8.43Gi memory free for cp-2"
        ),
        "{answer}"
    );
}

/// The hardest first puts 5 and 4 together, and then the threes, which leaves a place of one on
/// each host for the two. Only 5+3+2 and 4+3+3 use both hosts up.
fn puzzle() -> Rack {
    let sizes = [("a", 5), ("b", 4), ("c", 3), ("d", 3), ("e", 3), ("f", 2)];
    let mut rack = rack(&[64, 10, 10]);
    for (name, cpus) in sizes {
        rack.guests.push(Guest {
            requests: Requests::new().with("cpu", Quantity::units(cpus)),
            ..guest(name, &["host-1"], 0)
        });
    }
    rack
}

#[test]
fn the_search_finds_what_greed_misses() {
    assert_eq!(
        puzzle().without(&["host-1"]),
        "fits: a to host-2, b to host-3, c to host-2, d to host-3, e to host-3, f to host-2"
    );
}

#[test]
fn selectors_and_taints_bind_those_who_move() {
    let only = Taint {
        key: "gpu".into(),
        value: "yes".into(),
        effect: "NoSchedule".into(),
    };
    let mut tolerant = guest("t", &["host-1"], 4);
    tolerant.requirements.tolerations.push(Toleration {
        exists: true,
        ..Toleration::default()
    });
    let rack = rack(&[32, 32])
        .host(2, |host| host.taints.push(only))
        .with(tolerant)
        .with(guest("n", &["host-1"], 4).only_on("disk", "fast"));
    assert_eq!(
        rack.without(&["host-1"]),
        "n: host-2 lacks the label disk=fast => one more host with 4.015 cpu, 8.43Gi memory free \
         and the labels disk=fast for n"
    );
    let rack = rack.label(2, "disk", "fast");
    let answer = rack.without(&["host-1"]);
    assert!(
        answer.contains("n: host-2 has the taint gpu=yes:NoSchedule"),
        "{answer}"
    );
}

#[test]
fn labels_that_exclude_each_other_need_two_hosts() {
    let rack = rack(&[32])
        .with(guest("a", &["host-1"], 4).only_on("disk", "fast"))
        .with(guest("b", &["host-1"], 4).only_on("disk", "large"));
    let answer = rack.without(&["host-1"]);
    assert!(answer.starts_with("a: there are no hosts"), "{answer}");
    assert_eq!(answer.matches("one more host").count(), 2, "{answer}");
}

#[test]
fn a_tenants_cap_counts_who_stays_and_who_moves() {
    let mut rack = rack(&[32, 32])
        .with(guest("a", &["host-1"], 2).of("acme"))
        .with(guest("b", &["host-1"], 2).of("acme"))
        .with(guest("c", &["host-2"], 2).of("acme"));
    assert_eq!(rack.without(&["host-1"]), "fits: a to host-2, b to host-2");
    rack.caps.insert("acme".into(), 2);
    let answer = rack.without(&["host-1"]);
    assert!(
        answer.starts_with("b: host-2 has room only for a"),
        "{answer}"
    );
    rack.caps.insert("acme".into(), 1);
    assert_eq!(
        rack.without(&["host-1"]),
        "a: host-2 already carries 1 of acme, as many as one host may | b: host-2 already carries \
         1 of acme, as many as one host may => one more host with 2.015 cpu, 4.4Gi memory free \
         for a; one more host with 2.015 cpu, 4.4Gi memory free for b"
    );
    rack.caps.insert("acme".into(), 0);
    let answer = rack.without(&["host-1"]);
    assert!(answer.ends_with("=> a higher cap for a, b"), "{answer}");
}

#[test]
fn a_zone_dies_as_a_whole() {
    let rack = rack(&[8, 8, 8, 20])
        .label(1, ZONE, "east")
        .label(2, ZONE, "east")
        .label(3, ZONE, "west")
        .with(guest("a", &["host-1"], 4))
        .with(guest("b", &["host-2", "host-1"], 4))
        .with(guest("c", &["host-3"], 7));
    let zones = rack.ask(|what_if| {
        let zones = what_if.each_zone(ZONE);
        zones
            .map(|(zone, outcome)| (zone.to_owned(), words(what_if, &outcome)))
            .collect::<Vec<_>>()
    });
    let zone = |zone: &str, answer: &str| (zone.to_owned(), answer.to_owned());
    assert_eq!(
        zones,
        [
            zone("east", "fits: a to host-4, b to host-4"),
            zone("west", "fits: c to host-4"),
        ],
        "host-4 is in none"
    );
}

#[test]
fn each_host_is_asked_by_name() {
    let rack = rack(&[8, 3]).with(guest("a", &["host-1"], 4));
    let answers = rack.ask(|what_if| {
        let each = what_if.each_host();
        let fits =
            each.map(|(host, answer)| (host.to_owned(), matches!(answer, Outcome::Fits { .. })));
        fits.collect::<Vec<_>>()
    });
    assert_eq!(
        answers,
        [("host-1".to_owned(), false), ("host-2".to_owned(), true)]
    );
}

#[test]
fn a_host_that_is_not_there_is_an_error_and_not_a_comfort() {
    let rack = rack(&[8]).with(guest("a", &["lost"], 4));
    assert_eq!(rack.without(&["host-7"]), "there is no host host-7");
    assert_eq!(rack.without(&[]), "fits: ", "what is on it may live");
    assert_eq!(rack.without(&["lost"]), "fits: a to host-1");
}

#[test]
fn machines_that_wait_want_a_home_too() {
    let rack = rack(&[5, 5])
        .with(guest("a", &["host-1"], 4))
        .with(guest("b", &[], 4));
    assert_eq!(rack.without(&[]), "fits: b to host-2");
    let answer = rack.without(&["host-1"]);
    assert!(
        answer.starts_with("b: host-2 has room only for a"),
        "{answer}"
    );
}

#[test]
fn huge_pages_and_devices_run_out_like_anything_else() {
    let rack = rack(&[32, 32, 32])
        .offering(2, "hugepages-1Gi", 8 << 30)
        .offering(3, "gpu.example/card", 1)
        .with(guest("h", &["host-1"], 4).asking("hugepages-1Gi", 8 << 30))
        .with(guest("g", &["host-1"], 4).asking("gpu.example/card", 1));
    assert_eq!(rack.without(&["host-1"]), "fits: g to host-3, h to host-2");
    let rack = rack
        .with(guest("g-2", &["host-1"], 4).asking("gpu.example/card", 1))
        .with(guest("h-2", &["host-3"], 4).asking("hugepages-1Gi", 4 << 30));
    assert_eq!(
        rack.without(&["host-1"]),
        "g-2: host-2 has 0 gpu.example/card in all, the machine needs 1; host-3 has room only for \
         g, which is on no host now => one more host with 4.015 cpu, 1 gpu.example/card, 8.43Gi \
         memory free for g-2"
    );
}

#[test]
fn what_is_not_requested_may_be_owed() {
    let mut rack = rack(&[8, 8]).with(guest("a", &["host-1"], 4));
    rack.guests
        .push(guest("odd", &["host-2"], 1).asking("gone.example/card", 1));
    assert_eq!(rack.without(&["host-1"]), "fits: a to host-2");
}

#[test]
fn without_effort_what_is_open_is_not_known() {
    puzzle().ask(|what_if| {
        let hasty = what_if.clone().with_effort(0);
        let Ok(Outcome::NotKnown(short)) = hasty.without(&["host-1"]) else {
            panic!("greed suffices");
        };
        assert_eq!((&*short.homeless, short.at_least), (&["f"][..], 0));
        assert_eq!(
            hasty.cure(&short).to_string(),
            "one more host with 2 cpu free for f (enough; perhaps less would be)"
        );
        assert_eq!(what_if.cure(&short).to_string(), "nothing is missing");
    });
}
