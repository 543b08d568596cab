//! What is held on hosts, and what is left of them.

use std::collections::BTreeMap;

use crate::{Host, Requests};

/// What Pods hold on each host: the sums of their requests, which is what the scheduler compares
/// with a host's allocatable. What they really use plays no part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage(BTreeMap<String, Requests>);

/// What a machine holds on a host. It holds something on two while it migrates, and still does on
/// its old one until its launcher Pod has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The machine.
    pub machine: String,
    /// The host.
    pub host: String,
    /// What its launcher Pod requests.
    pub requests: Requests,
}

impl Usage {
    /// A Pod with these requests is on `host`.
    pub fn hold(&mut self, host: &str, requests: &Requests) {
        match self.0.get_mut(host) {
            Some(sum) => sum.add(requests),
            None => {
                self.0.insert(host.to_owned(), requests.clone());
            }
        }
    }

    /// What a machine holds is given back.
    pub fn release(&mut self, holding: &Holding) {
        let sum = self.0.entry(holding.host.clone()).or_default();
        sum.take(&holding.requests);
    }

    /// What is held on a host.
    pub fn of(&self, host: &str) -> Option<&Requests> {
        self.0.get(host)
    }

    /// What is left of a host: its allocatable without what is held there. Negative where a host
    /// has shrunk under its Pods, and for resources that it no longer offers.
    pub fn free(&self, host: &Host) -> Requests {
        let allocatable = host.allocatable.iter();
        let mut free: Requests = allocatable.map(|(name, amount)| (name, *amount)).collect();
        if let Some(held) = self.of(&host.name) {
            free.take(held);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quantity;

    fn cpus(number: u64) -> Requests {
        Requests::new().with("cpu", Quantity::units(number))
    }

    fn host() -> Host {
        Host {
            name: "host-1".into(),
            allocatable: [("cpu".to_owned(), Quantity::units(8))].into(),
            ..Host::default()
        }
    }

    #[test]
    fn free_is_what_nobody_on_that_host_holds() {
        let mut usage = Usage::default();
        usage.hold("host-1", &cpus(3));
        usage.hold("host-1", &cpus(1));
        usage.hold("host-2", &cpus(7));
        assert_eq!(usage.free(&host()), cpus(4));
    }

    #[test]
    fn a_host_without_pods_is_free_as_a_whole() {
        assert_eq!(Usage::default().free(&host()), cpus(8));
    }

    #[test]
    fn what_is_given_back_is_free_again() {
        let mut usage = Usage::default();
        usage.hold("host-1", &cpus(6));
        usage.release(&Holding {
            machine: "a-cp-1".into(),
            host: "host-1".into(),
            requests: cpus(4),
        });
        assert_eq!(usage.free(&host()), cpus(6));
    }

    #[test]
    fn a_host_that_shrank_under_its_pods_owes() {
        let mut usage = Usage::default();
        usage.hold(
            "host-1",
            &cpus(9).with("gone.example/device", Quantity::units(1)),
        );
        let free = usage.free(&host());
        assert_eq!(free.of("cpu").milli(), -1000);
        assert_eq!(free.of("gone.example/device").milli(), -1000);
    }
}
