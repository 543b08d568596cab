//! Whether the loss of one storage host, or of one zone, takes several of etcd's disks.
//!
//! Where a volume lies is read from the one thing that means the same for every driver: the hosts from
//! which it can be reached. A volume that one host alone reaches is lost with that host, and one that
//! the hosts of a single zone reach is lost with that zone, whatever keys its driver writes. A volume
//! that restricts no hosts says nothing of where it lies.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_capacity::Host;

/// From which hosts a volume can be reached: from those for which one of the terms holds, each of which
/// is a list of demands that must all be met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The terms; an empty one holds for no host.
    pub terms: Vec<Vec<Demand>>,
}

/// What a term demands of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Which property of the host is looked at.
    pub of: Property,
    /// What must be true of it.
    pub test: Test,
}

/// A property of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// Its name.
    Name,
    /// The label of this key.
    Label(String),
}

/// What must be true of a property, as in a node selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// It is one of these.
    In(Vec<String>),
    /// It is absent or none of these.
    NotIn(Vec<String>),
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
    /// It is a whole number above this one.
    Above(i64),
    /// It is a whole number below this one.
    Below(i64),
}

impl Demand {
    fn is_met(&self, host: &Host) -> bool {
        let value = match &self.of {
            Property::Name => Some(&host.name),
            Property::Label(key) => host.labels.get(key),
        };
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Above(limit) => number().is_some_and(|number| number > *limit),
            Test::Below(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

impl Reach {
    fn has(&self, host: &Host) -> bool {
        let holds = |term: &Vec<Demand>| !term.is_empty() && term.iter().all(|d| d.is_met(host));
        self.terms.iter().any(holds)
    }
}

/// A disk that holds a member of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdDisk<'a> {
    /// Name of its claim.
    pub claim: &'a str,
    /// Name of its volume.
    pub volume: &'a str,
    /// From where it can be reached; `None` if the volume does not say.
    pub reach: Option<&'a Reach>,
}

/// What is lost at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Domain<'a> {
    /// A host.
    Host(&'a str),
    /// A zone.
    Zone(&'a str),
}

/// Disks that are lost together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Together<'a> {
    /// With what they are lost.
    pub domain: Domain<'a>,
    /// The disks, as they were given.
    pub disks: Vec<EtcdDisk<'a>>,
}

/// How etcd's disks are spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spread<'a> {
    /// As far as hosts and zones allow.
    Apart,
    /// Not so: these are lost together.
    Shared(Vec<Together<'a>>),
    /// No two are known to be lost together, and of some it is not known where they lie.
    Unknown,
}

/// How the disks of an etcd of so many `members` are spread.
///
/// They are lost together
/// - with a host, if it alone reaches two or more of them;
/// - with a zone, if no host outside it reaches so many of them that the others are no quorum, and a
///   spread over the zones in which the guest's machines may run (`zones`) would leave fewer in it.
///   Over two zones any three members are spread two and one: that is no finding. Zones are looked at
///   only where no host takes two disks, since that has the same cure and comes first.
///
/// `hosts` are all Nodes, whether ready or not, with their zone under the label `zone_key`. A disk that
/// no host reaches, or one without a zone, is not known to lie there.
pub fn spread<'a>(
    disks: &[EtcdDisk<'a>],
    (members, zones): (usize, &BTreeSet<&str>),
    (hosts, zone_key): (&'a [Host], &str),
) -> Spread<'a> {
    let mut on_host = BTreeMap::<Domain<'a>, Vec<EtcdDisk<'a>>>::new();
    let mut in_zone = on_host.clone();
    let mut all_known = true;
    for disk in disks {
        let reach = disk.reach;
        let reached: Vec<&Host> = match reach {
            Some(reach) => hosts.iter().filter(|host| reach.has(host)).collect(),
            None => Vec::new(),
        };
        all_known &= !reached.is_empty();
        if let [host] = reached.as_slice() {
            on_host
                .entry(Domain::Host(&host.name))
                .or_default()
                .push(*disk);
        }
        let there: BTreeSet<_> = reached
            .iter()
            .map(|host| host.labels.get(zone_key))
            .collect();
        if let (1, Some(Some(zone))) = (there.len(), there.first()) {
            in_zone.entry(Domain::Zone(zone)).or_default().push(*disk);
        }
    }
    on_host.retain(|_, disks| disks.len() > 1);
    let most = members.div_ceil(zones.len().max(1));
    in_zone.retain(|_, disks| disks.len() > most && !is_quorum(members, disks.len()));
    let found = if on_host.is_empty() { in_zone } else { on_host };
    match (found.is_empty(), all_known) {
        (true, true) => Spread::Apart,
        (true, false) => Spread::Unknown,
        (false, _) => Spread::Shared(together(found)),
    }
}

/// Whether etcd goes on without so many of its members.
fn is_quorum(members: usize, lost: usize) -> bool {
    members.saturating_sub(lost) > members / 2
}

/// The largest loss first.
fn together<'a>(found: BTreeMap<Domain<'a>, Vec<EtcdDisk<'a>>>) -> Vec<Together<'a>> {
    let found = found.into_iter();
    let mut found: Vec<_> = found
        .map(|(domain, disks)| Together { domain, disks })
        .collect();
    found.sort_by_key(|together| std::cmp::Reverse(together.disks.len()));
    found
}

#[cfg(test)]
mod tests;
