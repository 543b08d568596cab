//! What would become of machines if a host died or were emptied.
//!
//! Asked of all guests together, since they compete for the same room: [`Fleet::ask`]. How it is
//! computed and what it does not see stands in `docs/adr/0010-foresight.md`.

mod ask;
mod fleet;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use fleet::guest_name;
pub use fleet::{Fleet, FleetMachine, machines, newcomer};

/// The answer to *would all machines that must have a home still find one without this host?*
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Foresight {
    /// All would find another host.
    Fits,
    /// Some would find none.
    Short {
        /// Those left over, `namespace/name`, in order.
        homeless: Vec<String>,
        /// What they lack, by host where it matters; for people.
        why: String,
        /// What would cure it, if anything simple would; for people.
        cure: Option<String>,
    },
    /// It was asked, and the bounded search found no answer.
    NotKnown,
    /// It has not been asked yet, or the host is not known.
    #[default]
    NotAsked,
}

/// What was answered for a whole fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// By the host that would be lost.
    pub hosts: BTreeMap<String, Foresight>,
    /// By the zone that would be lost; empty if no guest asks.
    pub zones: BTreeMap<String, Foresight>,
    /// By guest, `namespace/name`; each guest with a machine that must have a home has one.
    pub guests: BTreeMap<String, Outlook>,
}

/// What the loss of hosts would mean for one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Losses that would leave a machine of the guest without a host, by name of the lost host.
    pub losses: BTreeMap<String, Loss>,
    /// Hosts that carry a machine of the guest and whose loss has no answer, in order.
    pub not_known: Vec<String>,
    /// Hosts that carry a machine of the guest and more of its tenant than they may, in order.
    pub crowds: Vec<Crowd>,
    /// The same for zones, if the guest asks.
    pub zones: Option<Zones>,
}

/// What the loss of zones would mean for one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zones {
    /// How many there are.
    pub count: usize,
    /// Losses that would leave a machine of the guest without a host, by name of the lost zone.
    pub losses: BTreeMap<String, Loss>,
    /// Zones whose loss has no answer, in order.
    pub not_known: Vec<String>,
}

/// A loss that a guest does not survive as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Its machines that would find no host, `namespace/name`, in order.
    pub homeless: Vec<String>,
    /// Why the first of them would find none, for people.
    pub why: String,
    /// What would cure it, for people.
    pub cure: Option<String>,
}

/// A host that carries more machines of a tenant than it may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// The host.
    pub host: String,
    /// How many machines of the tenant it carries.
    pub carried: usize,
    /// How many it may.
    pub cap: usize,
}

/// What one guest sees of the fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetView {
    /// What was last worked out for this guest; none if none of its machines must have a home.
    pub outlook: Option<Outlook>,
    /// All machines as they were then, its own too.
    pub fleet: Arc<Fleet>,
}

/// `if host-3 died, tenant-a/prod-cp-2 would find no host: …`, with the cure.
pub fn sentence(lost: &str, homeless: &[String], why: &str, cure: Option<&str>) -> String {
    let named = homeless.iter().take(3).cloned().collect::<Vec<_>>();
    let named = named.join(", ");
    let more = match homeless.len().saturating_sub(3) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let cure = cure.map(|cure| format!(". It takes {cure}"));
    let cure = cure.unwrap_or_default();
    format!("if {lost} died, {named}{more} would find no host: {why}{cure}")
}

/// How the loss of a zone is told of.
pub(crate) fn zone(name: &str) -> String {
    format!("zone {name}")
}

impl Outlook {
    /// The loss that would leave most machines of the guest without a host, the first by name of
    /// several.
    pub fn worst(&self) -> Option<(&String, &Loss)> {
        worst(&self.losses)
    }
}

impl Zones {
    /// The same for zones.
    pub fn worst(&self) -> Option<(&String, &Loss)> {
        worst(&self.losses)
    }
}

fn worst(losses: &BTreeMap<String, Loss>) -> Option<(&String, &Loss)> {
    let losses = losses.iter().rev();
    losses.max_by_key(|(_, loss)| loss.homeless.len())
}

impl Answers {
    /// Hosts whose loss leaves machines without a host.
    pub fn short(&self) -> usize {
        let short = |answer: &&Foresight| matches!(answer, Foresight::Short { .. });
        self.hosts.values().filter(short).count()
    }

    /// Keeps the words of a former answer as long as the machines that it leaves over are the same:
    /// they tell how much is free, which changes all the time and is no news.
    #[must_use]
    pub fn in_the_words_of(mut self, former: &Self) -> Self {
        keep_words(&mut self.hosts, &former.hosts);
        keep_words(&mut self.zones, &former.zones);
        for (guest, outlook) in &mut self.guests {
            let Some(before) = former.guests.get(guest) else {
                continue;
            };
            keep_loss(&mut outlook.losses, &before.losses);
            if let (Some(zones), Some(before)) = (&mut outlook.zones, &before.zones) {
                keep_loss(&mut zones.losses, &before.losses);
            }
        }
        self
    }
}

fn keep_words(answers: &mut BTreeMap<String, Foresight>, former: &BTreeMap<String, Foresight>) {
    for (lost, answer) in answers {
        let (
            Foresight::Short { homeless, .. },
            Some(
                short @ Foresight::Short {
                    homeless: before, ..
                },
            ),
        ) = (&*answer, former.get(lost))
        else {
            continue;
        };
        if homeless == before {
            *answer = short.clone();
        }
    }
}

fn keep_loss(losses: &mut BTreeMap<String, Loss>, former: &BTreeMap<String, Loss>) {
    for (lost, loss) in losses {
        let before = former.get(lost);
        if let Some(before) = before.filter(|before| before.homeless == loss.homeless) {
            *loss = before.clone();
        }
    }
}
