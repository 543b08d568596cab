//! Asking what becomes of a fleet, host by host, and putting the answers into words.

use std::collections::BTreeMap;

use guestcluster_api::labels;
use guestcluster_capacity::{Host, Usage};
use guestcluster_placement::{Machine, Outcome, Shortfall, WhatIf};

use super::{Answers, Crowd, Fleet, FleetMachine, Foresight, Loss, Outlook, Zones};

/// For so many lost hosts a cure is looked for, which takes longer than to find that one is needed.
const CURES: usize = 8;
/// Of so many hosts it is said why they take a machine not.
const HOSTS: usize = 6;

impl Fleet {
    /// What the loss of each host alone would mean. What Pods hold on hosts, those of the machines
    /// too, is `usage`.
    pub fn ask(&self, hosts: &[Host], usage: &Usage) -> Answers {
        let mut answers = Answers {
            guests: self.crowds(),
            ..Answers::default()
        };
        let machines = self.machines.iter().map(as_placed).collect::<Vec<_>>();
        let what_if = WhatIf::new(&guestcluster_placement::Fleet {
            hosts,
            usage,
            machines: &machines,
            caps: &self.caps,
        });
        let guest_of = self.machines.iter().map(|m| (&*m.name, &*m.guest));
        let guest_of = guest_of.collect::<BTreeMap<_, _>>();
        let mut question = Question {
            what_if: &what_if,
            guest_of,
            cures: CURES,
        };
        for (host, outcome) in what_if.each_host() {
            let (foresight, losses) = question.answer(outcome);
            if foresight == Foresight::NotKnown {
                self.not_known(host, &mut answers.guests);
            }
            for (guest, loss) in losses {
                let outlook = answers.guests.entry(guest).or_default();
                outlook.losses.insert(host.to_owned(), loss);
            }
            answers.hosts.insert(host.to_owned(), foresight);
        }
        self.ask_zones(&mut question, &mut answers);
        answers
    }

    /// The same for zones, told to the guests that ask.
    fn ask_zones(&self, question: &mut Question<'_>, answers: &mut Answers) {
        if self.zones_asked_by.is_empty() {
            return;
        }
        // Guests of which no machine must have a home are told nothing.
        let asking = answers.guests.iter_mut();
        let asking = asking.filter(|(guest, _)| self.zones_asked_by.contains(*guest));
        let mut outlooks: BTreeMap<&String, &mut Zones> = asking
            .map(|(guest, outlook)| (guest, outlook.zones.get_or_insert_default()))
            .collect();
        for (zone, outcome) in question.what_if.each_zone(labels::ZONE) {
            let (foresight, mut losses) = question.answer(outcome);
            for (guest, zones) in &mut outlooks {
                zones.count += 1;
                if foresight == Foresight::NotKnown {
                    zones.not_known.push(zone.to_owned());
                }
                if let Some(loss) = losses.remove(*guest) {
                    zones.losses.insert(zone.to_owned(), loss);
                }
            }
            answers.zones.insert(zone.to_owned(), foresight);
        }
    }

    /// An outlook for each guest, with the hosts that carry too much of its tenant.
    fn crowds(&self) -> BTreeMap<String, Outlook> {
        let mut carried = BTreeMap::<(&str, &str), usize>::new();
        for machine in &self.machines {
            for host in &machine.hosts {
                *carried.entry((&machine.tenant, host)).or_default() += 1;
            }
        }
        let mut guests = BTreeMap::<String, Outlook>::new();
        for machine in &self.machines {
            let outlook = guests.entry(machine.guest.clone()).or_default();
            let Some(cap) = self.caps.get(&machine.tenant).copied() else {
                continue;
            };
            for host in &machine.hosts {
                let carried = carried[&(&*machine.tenant, &**host)];
                let is_told = outlook.crowds.iter().any(|crowd| crowd.host == *host);
                if carried > cap && !is_told {
                    outlook.crowds.push(Crowd {
                        host: host.clone(),
                        carried,
                        cap,
                    });
                }
            }
            outlook.crowds.sort_by(|a, b| a.host.cmp(&b.host));
        }
        guests
    }

    /// Guests that may lose a machine with a host for whose loss there is no answer.
    fn not_known(&self, host: &str, guests: &mut BTreeMap<String, Outlook>) {
        let there = |m: &&FleetMachine| m.hosts.is_empty() || m.hosts.iter().any(|h| h == host);
        for machine in self.machines.iter().filter(there) {
            let not_known = &mut guests.entry(machine.guest.clone()).or_default().not_known;
            if not_known.last().is_none_or(|last| last != host) {
                not_known.push(host.to_owned());
            }
        }
    }
}

/// What is asked of a fleet, loss by loss.
struct Question<'q> {
    what_if: &'q WhatIf<'q>,
    guest_of: BTreeMap<&'q str, &'q str>,
    /// For so many more losses a cure is looked for.
    cures: usize,
}

impl Question<'_> {
    /// The answer in words, and what it means for each guest.
    fn answer(&mut self, outcome: Outcome<'_>) -> (Foresight, BTreeMap<String, Loss>) {
        let short = match outcome {
            Outcome::Fits { .. } => return (Foresight::Fits, BTreeMap::new()),
            Outcome::NotKnown(_) => return (Foresight::NotKnown, BTreeMap::new()),
            Outcome::Short(short) => short,
        };
        let cure = (self.cures > 0).then(|| self.what_if.cure(&short));
        self.cures = self.cures.saturating_sub(1);
        let is_any = |cure: &guestcluster_placement::Cure<'_>| {
            !cure.hosts.is_empty() || !cure.capped.is_empty()
        };
        let cure = cure.filter(is_any).map(|cure| cure.to_string());
        let losses = losses(self.what_if, (&short, cure.as_ref()), &self.guest_of);
        let first = short.homeless.first().copied().unwrap_or_default();
        let foresight = Foresight::Short {
            why: why(self.what_if, &short, first),
            homeless: short.homeless.iter().map(|m| (*m).to_owned()).collect(),
            cure,
        };
        (foresight, losses)
    }
}

fn as_placed(machine: &FleetMachine) -> Machine<'_> {
    Machine {
        name: &machine.name,
        hosts: machine.hosts.iter().map(String::as_str).collect(),
        requests: &machine.requests,
        requirements: &machine.requirements,
        apart: machine.apart.as_deref(),
        tenant: Some(&machine.tenant),
    }
}

/// The shortfall as each guest meets it.
fn losses(
    what_if: &WhatIf<'_>,
    (short, cure): (&Shortfall<'_>, Option<&String>),
    guest_of: &BTreeMap<&str, &str>,
) -> BTreeMap<String, Loss> {
    let mut losses = BTreeMap::<String, Loss>::new();
    for machine in &short.homeless {
        let guest = guest_of.get(machine).copied().unwrap_or_default();
        let loss = losses.entry(guest.to_owned()).or_insert_with(|| Loss {
            homeless: Vec::new(),
            why: why(what_if, short, machine),
            cure: cure.cloned(),
        });
        loss.homeless.push((*machine).to_owned());
    }
    losses
}

/// Why the hosts that would be left do not take a machine.
fn why(what_if: &WhatIf<'_>, short: &Shortfall<'_>, machine: &str) -> String {
    let why = what_if.why(short, machine);
    if why.is_empty() {
        return "no other host is there".to_owned();
    }
    let told = why.iter().take(HOSTS);
    let told = told.map(|(host, refusal)| format!("{host} {refusal}"));
    let told = told.collect::<Vec<_>>().join("; ");
    match why.len().saturating_sub(HOSTS) {
        0 => told,
        more => format!("{told}; and {more} more hosts do not either"),
    }
}
