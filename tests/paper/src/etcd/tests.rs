use std::collections::BTreeSet;

use super::*;

struct On(BTreeSet<&'static str>, Instant);

impl Power for On {
    fn since(&self, machine: &str) -> Option<Instant> {
        self.0.contains(machine).then_some(self.1)
    }
}

const TEMPO: Tempo = Tempo {
    election: Duration::from_secs(1),
    health: Duration::from_secs(5),
    sync: Duration::from_secs(1),
};

fn member(id: u64, learner: bool, began: Instant) -> Member {
    Member {
        id,
        machine: format!("m{id}"),
        peer_url: format!("https://10.0.0.{id}:2380"),
        learner,
        started: Some(began),
    }
}

fn three(began: Instant) -> Etcd {
    let mut etcd = Etcd::begin(7, member(1, false, began));
    etcd.members.push(member(2, false, began));
    etcd.members.push(member(3, false, began));
    etcd
}

fn scene(power: &On, after: u64) -> Scene<'_> {
    Scene {
        power,
        tempo: TEMPO,
        now: power.1 + Duration::from_secs(after),
    }
}

#[test]
fn without_a_quorum_nobody_leads_and_nothing_changes() {
    let began = Instant::now();
    let one = On(["m1"].into(), began);
    let mut etcd = three(began);
    etcd.elect(&one, (TEMPO, began));
    assert_eq!(etcd.leader, None);
    assert_eq!(etcd.remove(3, (1, scene(&one, 9))), Err(TIMED_OUT));
}

#[test]
fn another_member_leads_when_the_leader_is_gone_for_an_election() {
    let began = Instant::now();
    let two = On(["m2", "m3"].into(), began);
    let mut etcd = three(began);
    etcd.elect(&two, (TEMPO, began));
    assert_eq!(etcd.leader, None);
    etcd.elect(&two, (TEMPO, began + TEMPO.election));
    assert_eq!((etcd.leader, etcd.term), (Some(2), 3));
}

#[test]
fn there_is_one_learner_at_a_time_and_it_votes_once_in_sync() {
    let began = Instant::now();
    let all = On(["m1", "m2", "m3", "m4"].into(), began);
    let mut etcd = three(began);
    let fourth = member(4, true, began);
    let early = (1, scene(&all, 1));
    assert_eq!(etcd.add(fourth.clone(), early), Err(UNHEALTHY));
    let via = (1, scene(&all, 6));
    assert_eq!(etcd.add(fourth.clone(), via), Ok(()));
    assert_eq!(etcd.add(fourth, via), Err(EXISTS));
    let fifth = member(5, true, began);
    assert_eq!(etcd.add(fifth, via), Err(TOO_MANY_LEARNERS));
    assert_eq!(etcd.promote(4, scene(&all, 0)), Err(NOT_READY));
    assert_eq!(etcd.promote(4, scene(&all, 1)), Ok(()));
    assert_eq!(etcd.promote(4, scene(&all, 1)), Err(NOT_A_LEARNER));
}

#[test]
fn a_removal_that_would_endanger_the_quorum_is_refused() {
    let began = Instant::now();
    let two = On(["m1", "m2"].into(), began);
    let mut etcd = three(began);
    assert_eq!(etcd.remove(2, (1, scene(&two, 9))), Err(UNHEALTHY));
    assert_eq!(etcd.remove(3, (1, scene(&two, 9))), Ok(()), "it is down");
    assert_eq!(etcd.remove(3, (1, scene(&two, 9))), Err(NO_SUCH_MEMBER));
}

#[test]
fn a_single_member_takes_a_learner_at_once() {
    let began = Instant::now();
    let one = On(["m1"].into(), began);
    let mut etcd = Etcd::begin(7, member(1, false, began));
    assert_eq!(
        etcd.add(member(2, true, began), (1, scene(&one, 0))),
        Ok(())
    );
}

#[test]
fn peers_that_have_just_connected_do_not_count_as_healthy() {
    let began = Instant::now();
    let all = On(["m1", "m2", "m3"].into(), began);
    let mut etcd = three(began);
    assert_eq!(
        etcd.remove(3, (1, scene(&all, 1))),
        Err(UNHEALTHY),
        "too soon"
    );
    assert_eq!(etcd.remove(3, (1, scene(&all, 6))), Ok(()));
}

#[test]
fn the_only_member_stays() {
    let began = Instant::now();
    let one = On(["m1"].into(), began);
    let mut etcd = Etcd::begin(7, member(1, false, began));
    assert_eq!(etcd.remove(1, (1, scene(&one, 9))), Err(NOT_STARTED));
}

#[test]
fn leadership_is_handed_over_by_who_has_it_to_who_votes() {
    let began = Instant::now();
    let all = On(["m1", "m2", "m3"].into(), began);
    let mut etcd = three(began);
    assert_eq!(etcd.transfer(2, 3, scene(&all, 0)), Err(NOT_LEADER));
    assert_eq!(etcd.transfer(1, 9, scene(&all, 0)), Err(BAD_HEIR));
    assert_eq!(etcd.transfer(1, 3, scene(&all, 0)), Ok(()));
    assert_eq!(etcd.leader, Some(3));
}
