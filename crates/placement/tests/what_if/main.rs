//! What if hosts died, against an oracle that tries every way to place the machines.

use guestcluster_placement::{Outcome, Refusal, Shortfall, WhatIf};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseResult};
use world::{Metal, World, ZONES, number, sizes, with, worlds};

mod world;

/// The moves are allowed one after the other, and with the homeless they are all displaced.
fn check_moves(world: &World, moves: &[(&str, &str)], homeless: &[&str]) -> TestCaseResult {
    let mut there = Vec::new();
    for (machine, to) in moves {
        let (machine, to) = (number(machine), number(to));
        prop_assert!(!world.dead[to]);
        prop_assert_eq!(world.keeps_away(&world.guests[machine], to, &there), None);
        there.push((machine, to));
    }
    let all = moves.iter().map(|(machine, _)| machine).chain(homeless);
    let mut all = all.map(|machine| number(machine)).collect::<Vec<_>>();
    all.sort_unstable();
    prop_assert_eq!(all, world.displaced());
    Ok(())
}

/// Each host that lives refuses, for a reason of the kind that holds.
fn check_why(world: &World, what_if: &WhatIf<'_>, short: &Shortfall<'_>) -> TestCaseResult {
    let moves = short
        .moves
        .iter()
        .map(|(machine, to)| (number(machine), number(to)));
    let moves = moves.collect::<Vec<_>>();
    for machine in &short.homeless {
        let why = what_if.why(short, machine);
        let hosts = why.iter().map(|(host, _)| number(host)).collect::<Vec<_>>();
        let alive = (0..world.hosts.len()).filter(|at| !world.dead[*at]);
        prop_assert_eq!(&hosts, &alive.collect::<Vec<_>>());
        let guest = &world.guests[number(machine)];
        for (host, refusal) in &why {
            let at = number(host);
            prop_assert!(world.keeps_away(guest, at, &moves).is_some());
            let before = world.keeps_away(guest, at, &[]);
            match (refusal, before) {
                (Refusal::KeptFor(other), None) => {
                    prop_assert!(moves.contains(&(number(other), at)));
                }
                (Refusal::TooSmall { .. }, Some(Refusal::Full { .. })) => {}
                (this, Some(that)) => {
                    let kind = std::mem::discriminant;
                    prop_assert_eq!(kind(this), kind(&that));
                }
                (this, None) => prop_assert!(false, "{host} {this}"),
            }
        }
    }
    Ok(())
}

/// The cure cures, and less of anything does not.
fn check_cure(world: &World, what_if: &WhatIf<'_>, short: &Shortfall<'_>) -> TestCaseResult {
    let cure = what_if.cure(short);
    let taken = cure.hosts.iter().flat_map(|host| &host.takes);
    let over = taken.chain(&cure.capped).copied().collect::<Vec<_>>();
    check_moves(world, &cure.moves, &over)?;
    let mut cured = world.clone();
    let first = world.hosts.len();
    cured.dead.truncate(first);
    for host in &cure.hosts {
        let zone = host.labels.get("zone");
        cured.hosts.push(Metal {
            size: sizes(&host.free),
            others: [0; 3],
            zone: zone.and_then(|zone| ZONES.iter().position(|z| z == zone)),
            cordoned: false,
            tainted: false,
        });
        cured.dead.push(false);
    }
    prop_assert_eq!(cured.oracle(), cure.capped.len(), "{}", &cure);
    prop_assert!(cure.least);
    for host in first..cured.hosts.len() {
        for resource in 0..3 {
            let mut less = cured.clone();
            if less.hosts[host].size[resource] > 0 {
                less.hosts[host].size[resource] -= 1;
                prop_assert!(less.oracle() > cure.capped.len(), "less than {}", &cure);
            }
        }
    }
    Ok(())
}

/// So many times the usual number of worlds, which is 256 unless PROPTEST_CASES says otherwise. What was
/// found becomes a named test instead of a line in a file of seeds.
fn config(times: u32) -> ProptestConfig {
    let usual = ProptestConfig::default();
    // The same worlds for everybody; another PROPTEST_RNG_SEED, and more PROPTEST_CASES, ask others.
    let rng_seed = match usual.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        fixed @ RngSeed::Fixed(_) => fixed,
    };
    ProptestConfig {
        cases: usual.cases * times,
        rng_seed,
        failure_persistence: None,
        ..usual
    }
}

proptest! {
    // More than 5,000 worlds: few of them are tight.
    #![proptest_config(config(20))]

    #[test]
    fn the_answer_is_that_of_brute_force(world in worlds()) {
        with(&world, false, |what_if, dead| {
            let fewest = world.oracle();
            match what_if.without(dead).unwrap() {
                Outcome::Fits { moves } => {
                    prop_assert_eq!(fewest, 0);
                    check_moves(&world, &moves, &[])?;
                }
                Outcome::Short(short) => {
                    prop_assert_eq!(fewest, short.homeless.len());
                    prop_assert_eq!(fewest, short.at_least);
                    check_moves(&world, &short.moves, &short.homeless)?;
                    check_why(&world, what_if, &short)?;
                }
                Outcome::NotKnown(_) => prop_assert!(false, "gave up"),
            }
            Ok(())
        })?;
    }

}

proptest! {
    #![proptest_config(config(2))]

    #[test]
    fn a_cure_is_enough_and_no_more(world in worlds()) {
        with(&world, false, |what_if, dead| {
            match what_if.without(dead).unwrap() {
                Outcome::Short(short) => check_cure(&world, what_if, &short),
                Outcome::Fits { .. } | Outcome::NotKnown(_) => Ok(()),
            }
        })?;
    }

    #[test]
    fn what_is_claimed_with_little_effort_is_true(world in worlds(), effort in 0..60_u64) {
        with(&world, false, |what_if, dead| {
            let exact = what_if.without(dead).unwrap();
            let fewest = world.oracle();
            let hasty = what_if.clone().with_effort(effort);
            match hasty.without(dead).unwrap() {
                Outcome::Fits { .. } => prop_assert_eq!(fewest, 0),
                Outcome::Short(short) | Outcome::NotKnown(short) => {
                    prop_assert!(short.at_least <= fewest && fewest <= short.homeless.len());
                    check_moves(&world, &short.moves, &short.homeless)?;
                }
            }
            prop_assert_eq!(matches!(exact, Outcome::Fits { .. }), fewest == 0);
            Ok(())
        })?;
    }

    #[test]
    fn the_order_of_hosts_and_machines_does_not_matter(world in worlds()) {
        let ask = |what_if: &WhatIf<'_>, dead: &[&str]| {
            let outcome = what_if.without(dead).unwrap();
            let cure = match &outcome {
                Outcome::Short(short) => what_if.cure(short).to_string(),
                Outcome::Fits { .. } | Outcome::NotKnown(_) => String::new(),
            };
            format!("{outcome:?} {cure}")
        };
        prop_assert_eq!(with(&world, false, ask), with(&world, true, ask));
    }
}

#[test]
fn the_worlds_are_of_all_kinds() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut fits, mut short, mut searched) = (0, 0, 0);
    for _ in 0..1000 {
        let Ok(world) = worlds().new_tree(&mut runner).map(|tree| tree.current()) else {
            continue;
        };
        with(&world, false, |what_if, dead| {
            let exact = what_if.without(dead).unwrap();
            match &exact {
                Outcome::Fits { moves } => fits += usize::from(moves.len() > 1),
                Outcome::Short(_) => short += 1,
                Outcome::NotKnown(_) => {}
            }
            let hasty = what_if.clone().with_effort(0).without(dead).unwrap();
            searched += usize::from(hasty != exact);
        });
    }
    println!("fits {fits}, short {short}, by search alone {searched}");
    assert!(
        fits > 200 && short > 200 && searched > 3,
        "{fits} {short} {searched}"
    );
}
