//! Worlds of a few hosts and machines, and the oracle that tries every way to place them.

use std::collections::BTreeMap;

use guestcluster_capacity::{Host, Quantity, Requests, Taint, Usage};
use guestcluster_placement::{Fleet, Machine, Refusal, Requirements, Toleration, WhatIf};
use proptest::prelude::*;

/// CPUs, GiB of memory, and devices.
pub type Size = [u64; 3];
pub const RESOURCES: [&str; 3] = ["cpu", "memory", "gpu.example/card"];
pub const ZONES: [&str; 2] = ["a", "b"];

/// A world in small whole numbers.
#[derive(Clone, Debug)]
pub struct World {
    pub hosts: Vec<Metal>,
    pub guests: Vec<Guest>,
    pub dead: Vec<bool>,
    /// How many machines of each tenant a host may carry.
    pub caps: [Option<usize>; 2],
}

/// A host.
#[derive(Clone, Debug)]
pub struct Metal {
    pub size: Size,
    /// Held by Pods of others.
    pub others: Size,
    pub zone: Option<usize>,
    pub cordoned: bool,
    pub tainted: bool,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct Guest {
    pub size: Size,
    pub at: Vec<usize>,
    pub zone: Option<usize>,
    pub tolerates: bool,
    pub group: Option<usize>,
    pub tenant: Option<usize>,
}

fn metals() -> impl Strategy<Value = Metal> {
    (
        (5..16_u64, 5..16_u64, 0..3_u64),
        (0..2_u64, 0..2_u64),
        prop::option::of(0..2_usize),
        prop::bool::weighted(0.07),
        prop::bool::weighted(0.15),
    )
        .prop_map(|(size, others, zone, cordoned, tainted)| Metal {
            size: size.into(),
            others: [others.0, others.1, 0],
            zone,
            cordoned,
            tainted,
        })
}

fn guests() -> impl Strategy<Value = Guest> {
    (
        (
            1..4_u64,
            1..4_u64,
            prop_oneof![6 => Just(0_u64), 1 => Just(1)],
        ),
        prop_oneof![1 => Just(0_usize), 8 => Just(1), 3 => Just(2)],
        (0..6_usize, 1..6_usize),
        prop::option::weighted(0.15, 0..2_usize),
        any::<bool>(),
        prop::option::of(0..2_usize),
        prop::option::of(0..2_usize),
    )
        .prop_map(
            |(size, count, (at, step), zone, tolerates, group, tenant)| Guest {
                size: size.into(),
                at: (0..count).map(|copy| (at + copy * step) % 6).collect(),
                zone,
                tolerates,
                group,
                tenant,
            },
        )
}

pub fn worlds() -> impl Strategy<Value = World> {
    let cap = || prop::option::weighted(0.3, prop_oneof![1 => Just(0_usize), 9 => 2..5_usize]);
    (
        prop_oneof![1 => prop::collection::vec(metals(), 0..=3), 4 => prop::collection::vec(metals(), 4..=6)],
        prop::collection::vec(guests(), 1..=12),
        prop::collection::vec(prop::bool::weighted(0.3), 6),
        [cap(), cap()],
    )
        .prop_map(|(hosts, mut guests, dead, caps)| {
            for guest in &mut guests {
                guest.at.retain(|at| *at < hosts.len());
            }
            let mut world = World {
                hosts,
                guests,
                dead,
                caps,
            };
            while world.displaced().len() > 7 {
                world.guests.pop();
            }
            world
        })
}

impl World {
    /// Guests none of whose hosts lives.
    pub fn displaced(&self) -> Vec<usize> {
        let homeless = |guest: &Guest| guest.at.iter().all(|at| self.dead[*at]);
        (0..self.guests.len())
            .filter(|at| homeless(&self.guests[*at]))
            .collect()
    }

    /// Why a host that lives may not take a guest beside those that are said to be where.
    pub fn keeps_away(
        &self,
        guest: &Guest,
        at: usize,
        there: &[(usize, usize)],
    ) -> Option<Refusal> {
        let host = &self.hosts[at];
        if host.cordoned && !guest.tolerates {
            return Some(Refusal::Cordoned);
        }
        if guest.zone.is_some() && guest.zone != host.zone {
            return Some(Refusal::Label(String::new()));
        }
        if host.tainted && !guest.tolerates {
            return Some(Refusal::Taint(String::new()));
        }
        let here = || {
            let stays = self.guests.iter().filter(|other| other.at.contains(&at));
            let moved = there.iter().filter(|(_, to)| *to == at);
            stays.chain(moved.map(|(other, _)| &self.guests[*other]))
        };
        if guest.group.is_some() && here().any(|other| other.group == guest.group) {
            return Some(Refusal::Carries(String::new()));
        }
        let full = (0..3).find(|r| {
            let held = host.others[*r] + here().map(|other| other.size[*r]).sum::<u64>();
            guest.size[*r] > 0 && held + guest.size[*r] > host.size[*r]
        });
        if let Some(resource) = full {
            let quantity = Quantity::default();
            return Some(Refusal::Full {
                resource: RESOURCES[resource].to_owned(),
                free: quantity,
                needs: quantity,
            });
        }
        let cap = self.caps[guest.tenant?]?;
        let carried = here().filter(|other| other.tenant == guest.tenant).count();
        (carried >= cap).then(|| Refusal::TenantCap {
            tenant: String::new(),
            cap,
        })
    }

    /// The fewest of `left` that find no host, if that is less than `best`: every way is tried.
    fn fewest(&self, left: &[usize], there: &mut Vec<(usize, usize)>, best: usize) -> usize {
        let Some((guest, left)) = left.split_first() else {
            return 0;
        };
        let mut best = best;
        for at in 0..self.hosts.len() {
            let this = &self.guests[*guest];
            if !self.dead[at] && self.keeps_away(this, at, there).is_none() {
                there.push((*guest, at));
                best = best.min(self.fewest(left, there, best));
                there.pop();
            }
            if best == 0 {
                return 0;
            }
        }
        best.min(1 + self.fewest(left, there, best - 1))
    }

    /// The fewest machines that are left without a host.
    pub fn oracle(&self) -> usize {
        let displaced = self.displaced();
        self.fewest(&displaced, &mut Vec::new(), displaced.len())
    }
}

fn requests(size: Size) -> Requests {
    let units = [1, 1 << 30, 1];
    let amounts = (0..3).map(|r| (RESOURCES[r], Quantity::units(size[r] * units[r])));
    amounts.collect()
}

/// Zero for what is not whole.
pub fn sizes(requests: &Requests) -> Size {
    let units = [1, 1 << 30, 1];
    let whole = |r: usize| u64::try_from(requests.of(RESOURCES[r]).ceil()).unwrap_or_default();
    [0, 1, 2].map(|r| whole(r) / units[r])
}

fn host(at: usize, metal: &Metal) -> Host {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let zone = metal.zone.map(|zone| label("zone", ZONES[zone]));
    let labels = [
        label("kubevirt.io/schedulable", "true"),
        label("cpumanager", "true"),
    ];
    let allocatable = requests(metal.size);
    let taint = Taint {
        key: "only".into(),
        value: String::new(),
        effect: "NoSchedule".into(),
    };
    Host {
        name: format!("host-{at}"),
        labels: labels.into_iter().chain(zone).collect(),
        taints: metal.tainted.then_some(taint).into_iter().collect(),
        ready: true,
        unschedulable: metal.cordoned,
        allocatable: allocatable.iter().map(|(n, q)| (n.to_owned(), q)).collect(),
    }
}

fn requirements(guest: &Guest) -> Requirements {
    let toleration = Toleration {
        exists: true,
        ..Toleration::default()
    };
    let zone = guest
        .zone
        .map(|zone| ("zone".to_owned(), ZONES[zone].to_owned()));
    Requirements {
        node_selector: zone.into_iter().collect(),
        tolerations: guest.tolerates.then_some(toleration).into_iter().collect(),
        ..Requirements::default()
    }
}

/// What is asked of an answer: the prepared world, with hosts and machines in their order or
/// backwards.
pub fn with<T>(world: &World, backwards: bool, ask: impl FnOnce(&WhatIf<'_>, &[&str]) -> T) -> T {
    let names = ["0", "1", "2", "3", "4", "5"].map(|at| format!("host-{at}"));
    let mut hosts = (0..)
        .zip(&world.hosts)
        .map(|(at, h)| host(at, h))
        .collect::<Vec<_>>();
    let mut usage = Usage::default();
    for (at, metal) in world.hosts.iter().enumerate() {
        usage.hold(&names[at], &requests(metal.others));
    }
    let guests = world.guests.iter().enumerate().map(|(number, guest)| {
        (
            format!("machine-{number:02}"),
            requests(guest.size),
            requirements(guest),
            guest,
        )
    });
    let guests = guests.collect::<Vec<_>>();
    let mut machines = Vec::new();
    for (name, requests, requirements, guest) in &guests {
        for at in &guest.at {
            usage.hold(&names[*at], requests);
        }
        machines.push(Machine {
            name,
            hosts: guest.at.iter().map(|at| &*names[*at]).collect(),
            requests,
            requirements,
            apart: guest.group.map(|group| ["group-0", "group-1"][group]),
            tenant: guest.tenant.map(|tenant| ["tenant-0", "tenant-1"][tenant]),
        });
    }
    if backwards {
        hosts.reverse();
        machines.reverse();
    }
    let caps = world.caps.iter().zip(["tenant-0", "tenant-1"]);
    let caps = caps.filter_map(|(cap, name)| Some((name.to_owned(), (*cap)?)));
    let caps = caps.collect::<BTreeMap<_, _>>();
    let fleet = Fleet {
        hosts: &hosts,
        usage: &usage,
        machines: &machines,
        caps: &caps,
    };
    let dead = (0..world.hosts.len()).filter(|at| world.dead[*at]);
    let dead = dead.map(|at| &*names[at]).collect::<Vec<_>>();
    ask(&WhatIf::new(&fleet).with_effort(10_000_000), &dead)
}

/// The number at the end of a name.
pub fn number(name: &str) -> usize {
    let number = name
        .rsplit_once('-')
        .and_then(|(_, number)| number.parse().ok());
    number.unwrap_or(usize::MAX)
}
