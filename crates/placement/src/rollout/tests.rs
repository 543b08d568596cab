use guestcluster_capacity::{Launcher, Quantity};

use super::*;

/// Hosts `host-1`… with so many CPUs, and machines of four CPUs on them.
struct World {
    hosts: Vec<Host>,
    usage: Usage,
    held: Vec<Holding>,
    apart: bool,
    waiting: Vec<String>,
}

fn requests() -> Requests {
    Launcher::new(4, Quantity::units(8 << 30)).requests()
}

fn host(number: usize, cpus: u64) -> Host {
    let label = |key: &str| (key.to_owned(), "true".to_owned());
    let amount = |name: &str, units| (name.to_owned(), Quantity::units(units));
    Host {
        name: format!("host-{number}"),
        labels: [label("kubevirt.io/schedulable"), label("cpumanager")].into(),
        ready: true,
        allocatable: [
            amount("cpu", cpus),
            amount("memory", 256 << 30),
            amount("ephemeral-storage", 100 << 30),
            amount("pods", 110),
        ]
        .into(),
        ..Host::default()
    }
}

/// A control plane on the first hosts.
fn control_plane(cpus: &[u64], machines: &[&str]) -> World {
    let mut world = World {
        hosts: (1..).zip(cpus).map(|(n, cpus)| host(n, *cpus)).collect(),
        usage: Usage::default(),
        held: Vec::new(),
        apart: true,
        waiting: Vec::new(),
    };
    for (number, machine) in (1..).zip(machines) {
        world.place(machine, number);
    }
    world
}

impl World {
    fn place(&mut self, machine: &str, host: usize) {
        let holding = Holding {
            machine: machine.to_owned(),
            host: format!("host-{host}"),
            requests: requests(),
        };
        self.usage.hold(&holding.host, &holding.requests);
        self.held.push(holding);
    }

    /// Pods of others hold so many CPUs.
    fn busy(mut self, host: usize, cpus: u64) -> Self {
        let pods = Requests::new().with("cpu", Quantity::units(cpus));
        self.usage.hold(&format!("host-{host}"), &pods);
        self
    }

    fn waiting(mut self, machine: &str) -> Self {
        self.waiting.push(machine.to_owned());
        self
    }

    fn replacing(&self, leaving: &str) -> Rollout {
        rollout(&Replacement {
            hosts: &self.hosts,
            usage: &self.usage,
            requirements: &Requirements::default(),
            requests: &requests(),
            held: &self.held,
            apart: self.apart,
            waiting: &self.waiting,
            leaving,
        })
    }
}

const CP: [&str; 3] = ["prod-cp-1", "prod-cp-2", "prod-cp-3"];

#[test]
fn a_spare_host_makes_surge_possible() {
    let world = control_plane(&[8, 8, 8, 8], &CP);
    let host = "host-4".to_owned();
    assert_eq!(world.replacing("prod-cp-1"), Rollout::Surge { host });
}

#[test]
fn three_hosts_for_three_machines_mean_delete_first() {
    let answer = control_plane(&[32, 32, 32], &CP).replacing("prod-cp-2");
    assert!(matches!(&answer, Rollout::DeleteFirst { host, .. } if host == "host-2"));
    assert_eq!(
        answer.to_string(),
        "surge does not fit: host-1 already carries prod-cp-1; host-2 already carries prod-cp-2; \
         host-3 already carries prod-cp-3"
    );
}

#[test]
fn a_full_spare_host_is_named_with_what_it_lacks() {
    let world = control_plane(&[8, 8, 8, 8], &CP).busy(4, 6);
    assert_eq!(
        world.replacing("prod-cp-1").to_string(),
        "surge does not fit: host-1 already carries prod-cp-1; host-2 already carries prod-cp-2; \
         host-3 already carries prod-cp-3; host-4 has 2 cpu free, the machine needs 4.015"
    );
}

#[test]
fn a_successor_gets_back_what_its_predecessor_held() {
    let world = control_plane(&[5, 5, 5], &CP);
    assert!(matches!(
        world.replacing("prod-cp-3"),
        Rollout::DeleteFirst { host, .. } if host == "host-3"
    ));
}

#[test]
fn a_machine_stays_if_its_successor_would_fit_nowhere() {
    let mut world = control_plane(&[8, 8, 8], &CP);
    world.hosts[0].unschedulable = true;
    let answer = world.replacing("prod-cp-1");
    assert_eq!(
        answer.to_string(),
        "a successor does not fit even with its predecessor gone: host-1 is cordoned (kubectl \
         uncordon); host-2 already carries prod-cp-2; host-3 already carries prod-cp-3"
    );
    assert!(matches!(answer, Rollout::Neither { .. }));
}

#[test]
fn two_on_one_host_still_keep_a_third_away_when_one_of_them_goes() {
    let mut world = control_plane(&[32], &["prod-cp-1"]);
    world.place("prod-cp-2", 1);
    assert!(matches!(
        world.replacing("prod-cp-1"),
        Rollout::Neither { why } if why[0].1 == Refusal::Carries("prod-cp-2".into())
    ));
}

#[test]
fn room_is_kept_for_a_machine_that_is_on_no_host() {
    let world = control_plane(&[8, 8, 8], &CP[..2]).waiting("prod-cp-3");
    assert_eq!(
        world.replacing("prod-cp-1").to_string(),
        "surge does not fit: host-1 already carries prod-cp-1; host-2 already carries prod-cp-2; \
         host-3 has room only for prod-cp-3, which is on no host now"
    );
    assert!(
        matches!(world.replacing("prod-cp-3"), Rollout::DeleteFirst { host, .. } if host == "host-3"),
        "its own room is its successor's"
    );
}

#[test]
fn a_migrating_machine_gives_back_both_hosts() {
    let mut world = control_plane(&[5, 5], &["prod-cp-1"]);
    world.place("prod-cp-1", 2);
    assert!(matches!(
        world.replacing("prod-cp-1"),
        Rollout::DeleteFirst { host, .. } if host == "host-1"
    ));
}

#[test]
fn workers_share_hosts() {
    let mut world = control_plane(&[9], &["prod-w-1"]);
    world.apart = false;
    let host = "host-1".to_owned();
    assert_eq!(world.replacing("prod-w-1"), Rollout::Surge { host });
    let world = world.busy(1, 2);
    assert_eq!(
        world.replacing("prod-w-1").to_string(),
        "surge does not fit: host-1 has 2.985 cpu free, the machine needs 4.015"
    );
}

#[test]
fn without_hosts_there_is_nothing_to_name() {
    assert_eq!(
        control_plane(&[], &[]).replacing("prod-cp-1").to_string(),
        "a successor does not fit even with its predecessor gone: there are no hosts"
    );
}
