//! Hosts and machines for the tests, and answers in words.

use std::collections::BTreeMap;

use guestcluster_capacity::{Host, Launcher, Quantity, Requests, Usage};

use crate::what_if::{Fleet, Machine, Outcome, WhatIf};
use crate::{Requirements, reasons};

/// Hosts `host-1`… and machines on them, in words.
#[derive(Default)]
pub(super) struct Rack {
    pub(super) hosts: Vec<Host>,
    pub(super) guests: Vec<Guest>,
    pub(super) caps: BTreeMap<String, usize>,
}

#[derive(Clone, Default)]
pub(super) struct Guest {
    pub(super) name: &'static str,
    pub(super) hosts: Vec<&'static str>,
    pub(super) requests: Requests,
    pub(super) requirements: Requirements,
    pub(super) apart: Option<&'static str>,
    pub(super) tenant: Option<&'static str>,
}

/// A machine with so many CPUs.
pub(super) fn guest(name: &'static str, hosts: &[&'static str], cpus: u64) -> Guest {
    Guest {
        name,
        hosts: hosts.to_vec(),
        requests: Launcher::new(cpus, Quantity::units(cpus << 31)).requests(),
        ..Guest::default()
    }
}

impl Guest {
    pub(super) fn apart(self, group: &'static str) -> Self {
        let apart = Some(group);
        Self { apart, ..self }
    }

    pub(super) fn of(self, tenant: &'static str) -> Self {
        let tenant = Some(tenant);
        Self { tenant, ..self }
    }

    pub(super) fn asking(mut self, resource: &str, amount: u64) -> Self {
        self.requests = self.requests.with(resource, Quantity::units(amount));
        self
    }

    pub(super) fn only_on(mut self, key: &str, value: &str) -> Self {
        let selector = &mut self.requirements.node_selector;
        selector.insert(key.to_owned(), value.to_owned());
        self
    }
}

/// Hosts with so many CPUs.
pub(super) fn rack(cpus: &[u64]) -> Rack {
    let label = |key: &str| (key.to_owned(), "true".to_owned());
    let amount = |name: &str, units| (name.to_owned(), Quantity::units(units));
    let host = |(number, cpus): (usize, &u64)| Host {
        name: format!("host-{number}"),
        labels: [label("kubevirt.io/schedulable"), label("cpumanager")].into(),
        ready: true,
        allocatable: [
            amount("cpu", *cpus),
            amount("memory", 256 << 30),
            amount("ephemeral-storage", 100 << 30),
            amount("pods", 110),
        ]
        .into(),
        ..Host::default()
    };
    Rack {
        hosts: (1..).zip(cpus).map(host).collect(),
        ..Rack::default()
    }
}

impl Rack {
    pub(super) fn with(mut self, guest: Guest) -> Self {
        self.guests.push(guest);
        self
    }

    pub(super) fn host(mut self, number: usize, edit: impl FnOnce(&mut Host)) -> Self {
        edit(&mut self.hosts[number - 1]);
        self
    }

    pub(super) fn label(self, number: usize, key: &str, value: &str) -> Self {
        self.host(number, |host| {
            host.labels.insert(key.to_owned(), value.to_owned());
        })
    }

    pub(super) fn offering(self, number: usize, resource: &str, amount: u64) -> Self {
        self.host(number, |host| {
            let amount = Quantity::units(amount);
            host.allocatable.insert(resource.to_owned(), amount);
        })
    }

    pub(super) fn ask<T>(&self, ask: impl FnOnce(&WhatIf<'_>) -> T) -> T {
        let mut usage = Usage::default();
        let mut machines = Vec::new();
        for guest in &self.guests {
            for host in &guest.hosts {
                usage.hold(host, &guest.requests);
            }
            machines.push(Machine {
                name: guest.name,
                hosts: guest.hosts.clone(),
                requests: &guest.requests,
                requirements: &guest.requirements,
                apart: guest.apart,
                tenant: guest.tenant,
            });
        }
        ask(&WhatIf::new(&Fleet {
            hosts: &self.hosts,
            usage: &usage,
            machines: &machines,
            caps: &self.caps,
        }))
    }

    /// The answer in words.
    pub(super) fn without(&self, hosts: &[&str]) -> String {
        self.ask(|what_if| match what_if.without(hosts) {
            Ok(outcome) => words(what_if, &outcome),
            Err(no_host) => no_host.to_string(),
        })
    }
}

/// An answer with all that can be asked about it.
pub(super) fn words(what_if: &WhatIf<'_>, outcome: &Outcome<'_>) -> String {
    let short = match outcome {
        Outcome::Fits { moves } => {
            let moves = moves
                .iter()
                .map(|(machine, to)| format!("{machine} to {to}"));
            return format!("fits: {}", moves.collect::<Vec<_>>().join(", "));
        }
        Outcome::Short(short) => short,
        Outcome::NotKnown(_) => return "not known".to_owned(),
    };
    let homeless = short.homeless.iter().map(|machine| {
        let why = reasons(&what_if.why(short, machine));
        format!("{machine}: {why}")
    });
    let homeless = homeless.collect::<Vec<_>>().join(" | ");
    format!("{homeless} => {}", what_if.cure(short))
}
