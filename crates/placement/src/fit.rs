//! Whether a host has room for a machine now.

use guestcluster_capacity::{Holding, Host, Quantity, Requests};

use crate::eligible::unsuitable;
use crate::{Refusal, Requirements};

/// What a machine needs of the host that is to take it.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'a> {
    /// What the host must be.
    pub requirements: &'a Requirements,
    /// What the machine will hold there: its launcher Pod's requests. They stand for its size, which is
    /// not looked at: a machine in huge pages needs little of a host's ordinary memory.
    pub requests: &'a Requests,
    /// Machines with which it may not share a host, where they are.
    pub apart_from: &'a [Holding],
}

/// Whether `host`, which has so much free, takes a machine now; else the reason. Of several reasons
/// the one that is the longest to remedy: the host itself, then who is there, then room.
///
/// Room is compared as the scheduler does (`NodeResourcesFit`): a resource that the host does not
/// name is one of which it has none, and one that is not requested does not matter.
pub fn fit(host: &Host, needs: &Needs<'_>, free: &Requests) -> Result<(), Refusal> {
    if let Some(refusal) = unsuitable(host, needs.requirements) {
        return Err(refusal);
    }
    let mut apart_from = needs.apart_from.iter();
    if let Some(other) = apart_from.find(|other| other.host == host.name) {
        return Err(Refusal::Carries(other.machine.clone()));
    }
    let nothing = Quantity::default();
    let requested = needs.requests.iter().filter(|(_, needs)| *needs > nothing);
    for (name, needs) in requested {
        let resource = name.to_owned();
        let has = host.allocatable.get(name).copied().unwrap_or_default();
        let free = free.of(name).max(nothing);
        if has < needs {
            return Err(Refusal::TooSmall {
                resource,
                has,
                needs,
            });
        }
        if free < needs {
            return Err(Refusal::Full {
                resource,
                free,
                needs,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use guestcluster_capacity::Launcher;

    use super::*;

    fn host() -> Host {
        let label = |key: &str| (key.to_owned(), "true".to_owned());
        let amount = |name: &str, units| (name.to_owned(), Quantity::units(units));
        Host {
            name: "host-1".into(),
            labels: [label("kubevirt.io/schedulable"), label("cpumanager")].into(),
            ready: true,
            allocatable: [
                amount("cpu", 8),
                amount("memory", 16 << 30),
                amount("ephemeral-storage", 100 << 30),
                amount("pods", 110),
            ]
            .into(),
            ..Host::default()
        }
    }

    /// What is left once Pods hold so much.
    fn free(held: &[(&str, u64)]) -> Requests {
        let host = host();
        let mut free: Requests = host.allocatable.iter().map(|(n, q)| (n, *q)).collect();
        free.take(
            &held
                .iter()
                .map(|(n, units)| (n, Quantity::units(*units)))
                .collect(),
        );
        free
    }

    fn launcher() -> Launcher {
        Launcher::new(4, Quantity::units(8 << 30))
    }

    fn answer(launcher: &Launcher, free: &Requests) -> String {
        let needs = Needs {
            requirements: &Requirements::default(),
            requests: &launcher.requests(),
            apart_from: &[],
        };
        fit(&host(), &needs, free).map_or_else(|why| why.to_string(), |()| "fits".into())
    }

    #[test]
    fn an_empty_host_takes_a_machine() {
        assert_eq!(answer(&launcher(), &free(&[])), "fits");
    }

    #[test]
    fn a_machine_needs_more_than_its_own_cpus() {
        let held = free(&[("cpu", 4)]);
        assert_eq!(
            answer(&launcher(), &held),
            "has 4 cpu free, the machine needs 4.015"
        );
        let without_log = Launcher {
            console_log: false,
            ..launcher()
        };
        assert_eq!(answer(&without_log, &held), "fits");
    }

    #[test]
    fn a_machine_needs_more_than_its_own_memory() {
        assert_eq!(
            answer(&launcher(), &free(&[("memory", 8 << 30)])),
            "has 8Gi memory free, the machine needs 8.43Gi"
        );
    }

    #[test]
    fn what_others_hold_beyond_all_is_no_debt_of_the_reader() {
        assert_eq!(
            answer(&launcher(), &free(&[("cpu", 9)])),
            "has 0 cpu free, the machine needs 4.015"
        );
    }

    #[test]
    fn places_for_pods_run_out_too() {
        assert_eq!(
            answer(&launcher(), &free(&[("pods", 110)])),
            "has 0 pods free, the machine needs 1"
        );
    }

    #[test]
    fn a_host_without_huge_pages_never_had_any() {
        let huge = Launcher {
            hugepages: Some("1Gi".into()),
            ..launcher()
        };
        assert_eq!(
            answer(&huge, &free(&[])),
            "has 0 hugepages-1Gi in all, the machine needs 8Gi"
        );
    }

    #[test]
    fn a_machine_in_huge_pages_needs_little_ordinary_memory() {
        let mut host = host();
        host.allocatable
            .insert("hugepages-1Gi".into(), Quantity::units(32 << 30));
        let huge = Launcher {
            hugepages: Some("1Gi".into()),
            ..Launcher::new(4, Quantity::units(32 << 30))
        };
        let needs = Needs {
            requirements: &Requirements {
                memory: huge.memory,
                ..Requirements::default()
            },
            requests: &huge.requests(),
            apart_from: &[],
        };
        let free = host.allocatable.iter().map(|(n, q)| (n, *q)).collect();
        assert_eq!(fit(&host, &needs, &free), Ok(()));
    }

    #[test]
    fn who_is_there_comes_before_room_and_after_the_host_itself() {
        let other = Holding {
            machine: "prod-cp-2".into(),
            host: "host-1".into(),
            requests: Requests::new(),
        };
        let needs = Needs {
            requirements: &Requirements::default(),
            requests: &launcher().requests(),
            apart_from: &[other],
        };
        let answer = |host: &Host| fit(host, &needs, &Requests::new()).unwrap_err().to_string();
        assert_eq!(answer(&host()), "already carries prod-cp-2");
        let cordoned = Host {
            unschedulable: true,
            ..host()
        };
        assert_eq!(answer(&cordoned), "is cordoned (kubectl uncordon)");
    }
}
