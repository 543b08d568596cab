//! The world in numbers: what is asked again and again is worked out once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use guestcluster_capacity::Quantity;

use super::bits::Bits;
use super::{Fleet, Machine, NoSuchHost};
use crate::Requirements;
use crate::eligible::unsuitable;

/// Hosts and machines by number, in the order of their names.
#[derive(Clone, Debug)]
pub(super) struct World<'a> {
    pub(super) fleet: Fleet<'a>,
    /// Indices into the fleet's hosts.
    pub(super) hosts: Vec<usize>,
    /// Numbers of hosts. Names that only machines mention come after all hosts: what is there can
    /// be lost, and nothing can move there.
    pub(super) places: BTreeMap<&'a str, usize>,
    /// Indices into the fleet's machines.
    pub(super) machines: Vec<usize>,
    pub(super) kind_of: Vec<usize>,
    pub(super) kinds: Vec<Kind<'a>>,
    /// Places of each machine.
    pub(super) at: Vec<Vec<usize>>,
    /// Machines at each place.
    on: Vec<Vec<usize>>,
    /// Machines on no host.
    waiting: Vec<usize>,
    /// How many resources machines request; each host has so many amounts in `free`.
    width: usize,
    free: Vec<Quantity>,
    /// Machines of tenants with a cap: by tenant and host.
    of_tenant: BTreeMap<(usize, usize), usize>,
}

/// Machines that no host can tell apart.
#[derive(Clone, Debug)]
pub(super) struct Kind<'a> {
    /// Amounts by number of the resource.
    pub(super) requests: Vec<Quantity>,
    /// Sum of the shares of what all hosts offer, to compare machines.
    pub(super) size: u128,
    /// The resource with the largest share.
    pub(super) scarce: usize,
    pub(super) group: Option<usize>,
    /// The tenant, if it has a cap, and that.
    pub(super) tenant: Option<(usize, usize)>,
    /// Hosts that would take one of them now.
    pub(super) hosts: Bits,
    requirements: &'a Requirements,
}

/// Machines of one kind that need a host.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: usize,
    /// Hosts that live and would take one of them if nobody else moved.
    pub(super) hosts: Bits,
    pub(super) machines: Vec<usize>,
}

/// Numbers for names, in the order of the names.
fn numbered<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let names = names.collect::<BTreeSet<_>>();
    names.into_iter().zip(0..).collect()
}

impl<'a> World<'a> {
    pub(super) fn new(fleet: Fleet<'a>) -> Self {
        let mut hosts = (0..fleet.hosts.len()).collect::<Vec<_>>();
        hosts.sort_by_key(|at| &fleet.hosts[*at].name);
        let mut machines = (0..fleet.machines.len()).collect::<Vec<_>>();
        machines.sort_by_key(|at| fleet.machines[*at].name);
        let mut world = Self {
            fleet,
            hosts,
            places: BTreeMap::new(),
            machines,
            kind_of: Vec::new(),
            kinds: Vec::new(),
            at: Vec::new(),
            on: Vec::new(),
            waiting: Vec::new(),
            width: 0,
            free: Vec::new(),
            of_tenant: BTreeMap::new(),
        };
        world.find_places();
        world.find_kinds();
        world
    }

    pub(super) fn machine(&self, machine: usize) -> &Machine<'a> {
        &self.fleet.machines[self.machines[machine]]
    }

    pub(super) fn host(&self, host: usize) -> &'a guestcluster_capacity::Host {
        &self.fleet.hosts[self.hosts[host]]
    }

    /// What is free on a host, by number of the resource.
    pub(super) fn free(&self, host: usize) -> &[Quantity] {
        &self.free[host * self.width..][..self.width]
    }

    /// How many machines of a tenant with a cap are on a host.
    pub(super) fn of_tenant(&self, tenant: usize, host: usize) -> usize {
        let count = self.of_tenant.get(&(tenant, host));
        count.copied().unwrap_or_default()
    }

    fn find_places(&mut self) {
        let hosts = self.hosts.iter().map(|at| &*self.fleet.hosts[*at].name);
        self.places = hosts.zip(0..).collect();
        let everywhere = self.fleet.machines.iter().flat_map(|m| &m.hosts).copied();
        let strange = numbered(everywhere.filter(|place| !self.places.contains_key(place)));
        let hosts = self.hosts.len();
        self.places
            .extend(strange.into_iter().map(|(place, at)| (place, hosts + at)));
        self.on = vec![Vec::new(); self.places.len()];
        for machine in 0..self.machines.len() {
            let hosts = self.machine(machine).hosts.iter();
            let mut places = hosts.map(|host| self.places[host]).collect::<Vec<_>>();
            places.sort_unstable();
            places.dedup();
            for place in &places {
                self.on[*place].push(machine);
            }
            if places.is_empty() {
                self.waiting.push(machine);
            }
            self.at.push(places);
        }
    }

    /// Kinds are numbered as they are met, which the order of machines' names decides.
    fn find_kinds(&mut self) {
        let machines = self.fleet.machines;
        let requested = machines.iter().flat_map(|machine| machine.requests.iter());
        let positive = requested.filter(|(_, amount)| *amount > Quantity::default());
        let resources = numbered(positive.map(|(name, _)| name));
        let groups = numbered(machines.iter().filter_map(|machine| machine.apart));
        let tenants = numbered(self.fleet.caps.keys().map(String::as_str));
        self.measure(&resources);
        let mut known = BTreeMap::new();
        for machine in 0..self.machines.len() {
            let this = self.machine(machine).clone();
            let mut requests = vec![Quantity::default(); resources.len()];
            for (name, amount) in this.requests.iter() {
                if let Some(at) = resources.get(name) {
                    requests[*at] = amount.max(Quantity::default());
                }
            }
            let group = this.apart.map(|group| groups[group]);
            let cap = |name| Some((*tenants.get(name)?, *self.fleet.caps.get(name)?));
            let tenant = this.tenant.and_then(cap);
            let next = self.kinds.len();
            let key = (group, tenant, requests, this.requirements);
            let kind = *known.entry(key.clone()).or_insert(next);
            if kind == next {
                let (group, tenant, requests, requirements) = key;
                self.kinds.push(Kind {
                    requests,
                    size: 0,
                    scarce: 0,
                    group,
                    tenant,
                    hosts: Bits::none(self.hosts.len()),
                    requirements,
                });
            }
            self.kind_of.push(kind);
        }
        self.find_sizes(&resources);
        self.find_hosts(groups.len());
    }

    /// No more than the whole host is free, even if the figures of the Pods say so.
    fn measure(&mut self, resources: &BTreeMap<&str, usize>) {
        self.width = resources.len();
        for host in 0..self.hosts.len() {
            let host = self.host(host);
            let free = self.fleet.usage.free(host);
            self.free.extend(resources.keys().map(|name| {
                let all = host.allocatable.get(*name).copied().unwrap_or_default();
                free.of(name).min(all)
            }));
        }
    }

    fn find_sizes(&mut self, resources: &BTreeMap<&str, usize>) {
        // Fine enough that amounts which differ at all differ in size, in any cluster that exists.
        const WHOLE: u128 = 1 << 64;
        let offered = |name: &&str| {
            let all = self
                .fleet
                .hosts
                .iter()
                .filter_map(|h| h.allocatable.get(*name));
            let sum = all.fold(Quantity::default(), |sum, amount| sum + *amount);
            sum.milli().unsigned_abs().max(1)
        };
        let offered = resources.keys().map(offered).collect::<Vec<_>>();
        for kind in &mut self.kinds {
            let shares = kind
                .requests
                .iter()
                .zip(&offered)
                .map(|(amount, all)| amount.milli().unsigned_abs().saturating_mul(WHOLE) / all);
            let shares = shares.collect::<Vec<_>>();
            let scarce = (0..shares.len()).max_by_key(|at| shares[*at]);
            kind.scarce = scarce.unwrap_or_default();
            kind.size = shares.into_iter().fold(0, u128::saturating_add);
        }
    }

    /// For each kind the hosts that meet its requirements, have room, carry none of its group and
    /// not too many of its tenant.
    fn find_hosts(&mut self, groups: usize) {
        let mut carry = vec![BTreeSet::new(); groups];
        for machine in 0..self.machines.len() {
            let kind = &self.kinds[self.kind_of[machine]];
            for place in self.at[machine].iter().filter(|at| **at < self.hosts.len()) {
                if let Some(group) = kind.group {
                    carry[group].insert(*place);
                }
                if let Some((tenant, _)) = kind.tenant {
                    *self.of_tenant.entry((tenant, *place)).or_default() += 1;
                }
            }
        }
        let (mut eligible, mut roomy) = (BTreeMap::new(), BTreeMap::new());
        let (mut full, mut found) = (BTreeMap::new(), Vec::new());
        for kind in &self.kinds {
            let needs = kind.requirements;
            // Sizes are many and selectors few: labels and taints are read once for all sizes.
            let key = (&needs.node_selector, &needs.tolerations);
            let eligible = eligible.entry(key).or_insert_with(|| {
                self.hosts_that(|host| unsuitable(self.host(host), needs).is_none())
            });
            let roomy = roomy.entry((key, &kind.requests)).or_insert_with(|| {
                self.hosts_that(|host| eligible.has(host) && fits(&kind.requests, self.free(host)))
            });
            let mut hosts = roomy.clone();
            for host in kind.group.iter().flat_map(|group| &carry[*group]) {
                hosts.remove(*host);
            }
            if let Some(tenant) = kind.tenant {
                let full = full.entry(tenant).or_insert_with(|| self.full(tenant));
                hosts.remove_all(full);
            }
            found.push(hosts);
        }
        for (kind, hosts) in self.kinds.iter_mut().zip(found) {
            kind.hosts = hosts;
        }
    }

    /// Hosts with as many machines of a tenant as its cap allows.
    fn full(&self, (tenant, cap): (usize, usize)) -> Bits {
        if cap == 0 {
            return self.hosts_that(|_| true);
        }
        let mut full = Bits::none(self.hosts.len());
        let on = self.of_tenant.range((tenant, 0)..(tenant + 1, 0));
        for ((_, host), _) in on.filter(|(_, count)| **count >= cap) {
            full.insert(*host);
        }
        full
    }

    fn hosts_that(&self, suit: impl Fn(usize) -> bool) -> Bits {
        let mut hosts = Bits::none(self.hosts.len());
        for host in (0..self.hosts.len()).filter(|host| suit(*host)) {
            hosts.insert(host);
        }
        hosts
    }

    /// The places that die, and no others.
    pub(super) fn dead(&self, names: &[&str]) -> Result<Bits, NoSuchHost> {
        let mut dead = Bits::none(self.places.len());
        for name in names {
            let place = self.places.get(name);
            dead.insert(*place.ok_or_else(|| NoSuchHost((*name).to_owned()))?);
        }
        Ok(dead)
    }

    /// Machines that have no host once these are dead, the hardest first: those with the fewest
    /// hosts, of these the largest.
    pub(super) fn displaced(&self, dead: &Bits) -> Vec<Block> {
        let homeless = |machine: &usize| self.at[*machine].iter().all(|at| dead.has(*at));
        let machines = dead.iter().flat_map(|place| &self.on[place]).copied();
        let mut machines = machines.filter(homeless).collect::<Vec<_>>();
        machines.extend(&self.waiting);
        machines.sort_unstable_by_key(|machine| (self.kind_of[*machine], *machine));
        machines.dedup();
        let same = |a: &usize, b: &usize| self.kind_of[*a] == self.kind_of[*b];
        let blocks = machines.chunk_by(same).map(|machines| {
            let kind = self.kind_of[machines[0]];
            let mut hosts = self.kinds[kind].hosts.clone();
            for host in dead.iter().take_while(|place| *place < self.hosts.len()) {
                hosts.remove(host);
            }
            Block {
                kind,
                hosts,
                machines: machines.to_vec(),
            }
        });
        let mut blocks = blocks.collect::<Vec<_>>();
        blocks.sort_by_cached_key(|block| {
            let size = Reverse(self.kinds[block.kind].size);
            (block.hosts.count(), size, block.kind)
        });
        blocks
    }
}

/// Whether so much room is there. What is not requested does not matter, even where it is owed.
pub(super) fn fits(requests: &[Quantity], free: &[Quantity]) -> bool {
    let nothing = Quantity::default();
    let mut each = requests.iter().zip(free);
    each.all(|(request, free)| *request <= nothing || request <= free)
}
