use super::*;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Hosts `host-1`, `host-2` and so on, in these zones; a host in no zone has an empty one.
fn hosts(zones: &[&str]) -> Vec<Host> {
    let host = |(at, zone): (usize, &&str)| {
        let name = format!("host-{}", at + 1);
        let mut labels = BTreeMap::from([(HOSTNAME.to_owned(), name.clone())]);
        if !zone.is_empty() {
            labels.insert(ZONE.to_owned(), (*zone).to_owned());
        }
        Host {
            name,
            labels,
            ..Host::default()
        }
    };
    zones.iter().enumerate().map(host).collect()
}

fn demand(key: &str, test: Test) -> Demand {
    let of = Property::Label(key.to_owned());
    Demand { of, test }
}

/// A volume that hosts with this value reach; one that says nothing has an empty one.
fn only(key: &str, value: &str) -> Option<Reach> {
    let demand = || demand(key, Test::In(vec![value.to_owned()]));
    (!value.is_empty()).then(|| Reach {
        terms: vec![vec![demand()]],
    })
}

fn on(host: &str) -> Option<Reach> {
    only(HOSTNAME, host)
}

/// In short: `host-1: a b` for each domain, `apart` or `unknown`.
fn told(zones: &[&str], members: usize, reaches: &[Option<Reach>]) -> String {
    let hosts = hosts(zones);
    let names = ["a", "b", "c", "d", "e"];
    let disks: Vec<_> = reaches
        .iter()
        .zip(names)
        .map(|(reach, claim)| EtcdDisk {
            claim,
            volume: "pv",
            reach: reach.as_ref(),
        })
        .collect();
    let open = zones
        .iter()
        .copied()
        .filter(|zone| !zone.is_empty())
        .collect();
    match spread(&disks, (members, &open), (&hosts, ZONE)) {
        Spread::Apart => "apart".to_owned(),
        Spread::Unknown => "unknown".to_owned(),
        Spread::Shared(found) => {
            let one = |together: &Together<'_>| {
                let (Domain::Host(name) | Domain::Zone(name)) = together.domain;
                let disks: Vec<_> = together.disks.iter().map(|disk| disk.claim).collect();
                format!("{name}: {}", disks.join(" "))
            };
            found.iter().map(one).collect::<Vec<_>>().join(", ")
        }
    }
}

#[test]
fn two_disks_that_one_host_alone_reaches_are_lost_with_it() {
    let zones = ["", "", ""];
    let apart = [on("host-1"), on("host-2"), on("host-3")];
    assert_eq!(told(&zones, 3, &apart), "apart");
    let pair = [on("host-1"), on("host-2"), on("host-1")];
    assert_eq!(told(&zones, 3, &pair), "host-1: a c");
    let pairs = [
        on("host-2"),
        on("host-2"),
        on("host-1"),
        on("host-1"),
        on("host-1"),
    ];
    assert_eq!(told(&zones, 5, &pairs), "host-1: c d e, host-2: a b");
}

#[test]
fn a_volume_that_restricts_no_hosts_says_nothing() {
    let zones = ["", ""];
    assert_eq!(told(&zones, 3, &[on(""), on(""), on("")]), "unknown");
    assert_eq!(
        told(&zones, 3, &[on("host-1"), on("host-2"), on("")]),
        "unknown"
    );
    let gone = [on("host-1"), on("host-2"), on("host-9")];
    assert_eq!(told(&zones, 3, &gone), "unknown");
    let known = [on("host-1"), on("host-1"), on("")];
    assert_eq!(told(&zones, 3, &known), "host-1: a b");
}

#[test]
fn a_volume_with_copies_on_several_hosts_is_not_lost_with_one() {
    let copies = || {
        let on = |host: &str| {
            vec![demand(
                "linbit.com/hostname",
                Test::In(vec![host.to_owned()]),
            )]
        };
        Some(Reach {
            terms: vec![on("host-1"), on("host-2")],
        })
    };
    let mut hosts = hosts(&["", "", ""]);
    for host in &mut hosts {
        let name = host.name.clone();
        host.labels.insert("linbit.com/hostname".to_owned(), name);
    }
    let reaches = [copies(), copies(), copies()];
    let disks = reaches.each_ref().map(|reach| EtcdDisk {
        claim: "a",
        volume: "pv",
        reach: reach.as_ref(),
    });
    let zones = BTreeSet::new();
    assert_eq!(spread(&disks, (3, &zones), (&hosts, ZONE)), Spread::Apart);
}

#[test]
fn a_zone_that_takes_the_quorum_is_found_where_more_zones_are() {
    let zones = ["a", "a", "b", "b", "c", "c"];
    let z = |zone| only(ZONE, zone);
    assert_eq!(told(&zones, 3, &[z("a"), z("a"), z("c")]), "a: a b");
    assert_eq!(told(&zones, 3, &[z("a"), z("b"), z("c")]), "apart");
    let five = [z("a"), z("a"), z("b"), z("b"), z("c")];
    assert_eq!(told(&zones, 5, &five), "apart");
}

#[test]
fn what_no_spread_over_the_zones_avoids_is_no_finding() {
    let z = |zone| only(ZONE, zone);
    let two = ["a", "a", "b", "b"];
    assert_eq!(told(&two, 3, &[z("a"), z("a"), z("b")]), "apart");
    assert_eq!(told(&two, 3, &[z("a"), z("a"), z("a")]), "a: a b c");
    let one = ["a", "a", "a"];
    assert_eq!(told(&one, 3, &[z("a"), z("a"), z("a")]), "apart");
}

/// While machines boot, fewer disks are there than members are wanted.
#[test]
fn disks_that_are_still_to_come_count_as_members() {
    let z = |zone| only(ZONE, zone);
    assert_eq!(told(&["a", "a", "b", "b"], 3, &[z("a"), z("a")]), "apart");
}

#[test]
fn the_zone_of_a_volume_is_that_of_the_hosts_that_reach_it() {
    let zones = ["a", "b", "a", "b", "c", "c"];
    let either = |one: &str, other: &str| {
        let names = vec![one.to_owned(), other.to_owned()];
        Some(Reach {
            terms: vec![vec![demand(HOSTNAME, Test::In(names))]],
        })
    };
    let reaches = [on("host-1"), on("host-3"), on("host-2")];
    assert_eq!(told(&zones, 3, &reaches), "a: a b");
    let reaches = [
        either("host-1", "host-3"),
        either("host-1", "host-2"),
        on("host-5"),
    ];
    assert_eq!(told(&zones, 3, &reaches), "apart");
    assert_eq!(
        told(
            &["", "", ""],
            3,
            &[on("host-1"), on("host-2"), on("host-3")]
        ),
        "apart"
    );
}

#[test]
fn a_term_holds_as_in_a_node_selector() {
    let host = &hosts(&["a"])[0];
    let holds = |term: Vec<Demand>| Reach { terms: vec![term] }.has(host);
    let text = |value: &str| vec![value.to_owned()];
    let named = |test| Demand {
        of: Property::Name,
        test,
    };
    assert!(!holds(vec![]), "an empty term holds for no host");
    assert!(holds(vec![named(Test::In(text("host-1")))]));
    assert!(holds(vec![demand(ZONE, Test::NotIn(text("b")))]));
    assert!(holds(vec![demand("none", Test::NotIn(text("b")))]));
    assert!(holds(vec![
        demand(ZONE, Test::Exists),
        demand("none", Test::DoesNotExist)
    ]));
    assert!(!holds(vec![
        demand(ZONE, Test::Exists),
        demand("none", Test::Exists)
    ]));
    assert!(
        !holds(vec![demand(ZONE, Test::Above(1))]),
        "a zone is no number"
    );
    let mut numbered = host.clone();
    numbered.labels.insert("rack".to_owned(), "7".to_owned());
    let within = vec![
        demand("rack", Test::Above(6)),
        demand("rack", Test::Below(8)),
    ];
    assert!(
        Reach {
            terms: vec![within]
        }
        .has(&numbered)
    );
}
