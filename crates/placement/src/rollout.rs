//! How a machine can be replaced: its successor first, or itself gone first.

use std::fmt;

use guestcluster_capacity::{Holding, Host, Requests, Usage};

use crate::{Needs, Refusal, Requirements, fit};

/// A machine that is to be replaced, and the world it stands in.
#[derive(Clone, Copy, Debug)]
pub struct Replacement<'a> {
    /// All hosts, in any order.
    pub hosts: &'a [Host],
    /// What all Pods hold on them, those of this pool too.
    pub usage: &'a Usage,
    /// What the successor's host must be.
    pub requirements: &'a Requirements,
    /// What the successor will hold: its launcher Pod's requests.
    pub requests: &'a Requests,
    /// What machines of the pool hold, those that leave too.
    pub held: &'a [Holding],
    /// No two machines of the pool may share a host, as with control planes.
    pub apart: bool,
    /// Machines of the pool that exist and are on no host now (they start, are stopped or find no
    /// place): room is kept for each, as for one of the successor's size.
    pub waiting: &'a [String],
    /// The machine that is to be replaced.
    pub leaving: &'a str,
}

/// How a machine can be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rollout {
    /// Its successor fits beside all machines that exist: nothing is missing meanwhile.
    Surge {
        /// A host that has room. Which one the successor gets is the scheduler's choice.
        host: String,
    },
    /// Its successor fits once it is gone.
    DeleteFirst {
        /// A host that has room then.
        host: String,
        /// Why each host has none before, by name.
        why: Vec<(String, Refusal)>,
    },
    /// Its successor fits nowhere: the machine is better kept.
    Neither {
        /// Why each host would have no room even if the machine were gone, by name.
        why: Vec<(String, Refusal)>,
    },
}

/// How a machine can be replaced now: surge wherever one more fits, since nothing is missing
/// meanwhile.
///
/// # Guarantees
/// - Room that is claimed is there: all of `waiting` and the successor have a place together.
/// - Room that is denied is not: no way to place them exists. Since all are of one size, taking
///   hosts one after the other finds a way if there is one.
/// - The same world gives the same answer, whatever the order of its hosts.
///
/// # Caveats
/// - Machines of other pools and clusters that wait for a host are not seen; the scheduler may
///   give them the room first.
pub fn rollout(replacement: &Replacement<'_>) -> Rollout {
    let why = match room(replacement) {
        Ok(host) => return Rollout::Surge { host },
        Err(why) => why,
    };
    let leaves = |machine: &str| machine == replacement.leaving;
    let mut usage = replacement.usage.clone();
    let (gone, held): (Vec<Holding>, Vec<Holding>) = replacement
        .held
        .iter()
        .cloned()
        .partition(|holding| leaves(&holding.machine));
    for holding in &gone {
        usage.release(holding);
    }
    let mut waiting = replacement.waiting.to_vec();
    waiting.retain(|machine| !leaves(machine));
    let without = Replacement {
        usage: &usage,
        held: &held,
        waiting: &waiting,
        ..*replacement
    };
    match room(&without) {
        Ok(host) => Rollout::DeleteFirst { host, why },
        Err(why) => Rollout::Neither { why },
    }
}

/// A host for one more machine, after those that wait have taken theirs; else why each has no
/// room.
fn room(replacement: &Replacement<'_>) -> Result<String, Vec<(String, Refusal)>> {
    let needs = Needs {
        requirements: replacement.requirements,
        requests: replacement.requests,
        apart_from: if replacement.apart {
            replacement.held
        } else {
            &[]
        },
    };
    let mut hosts = replacement.hosts.iter().collect::<Vec<_>>();
    hosts.sort_by_key(|host| &host.name);
    let mut waiting = replacement.waiting.iter();
    let mut why = Vec::new();
    for host in hosts {
        let mut free = replacement.usage.free(host);
        let mut kept_for = None;
        let refusal = loop {
            if let Err(refusal) = fit(host, &needs, &free) {
                break kept_for.unwrap_or(refusal);
            }
            let Some(machine) = waiting.next() else {
                return Ok(host.name.clone());
            };
            let kept = Refusal::KeptFor(machine.clone());
            if replacement.apart {
                break kept;
            }
            free.take(replacement.requests);
            kept_for = Some(kept);
        };
        why.push((host.name.clone(), refusal));
    }
    Err(why)
}

/// Reasons in one line: `host-1 already carries prod-cp-1; host-4 is cordoned (kubectl uncordon)`.
pub fn reasons(why: &[(String, Refusal)]) -> String {
    if why.is_empty() {
        return "there are no hosts".to_owned();
    }
    let each = why
        .iter()
        .map(|(host, refusal)| format!("{host} {refusal}"));
    each.collect::<Vec<_>>().join("; ")
}

impl fmt::Display for Rollout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Surge { host } => write!(f, "one more machine fits: {host} has room"),
            Self::DeleteFirst { why, .. } => write!(f, "surge does not fit: {}", reasons(why)),
            Self::Neither { why } => write!(
                f,
                "a successor does not fit even with its predecessor gone: {}",
                reasons(why)
            ),
        }
    }
}

#[cfg(test)]
mod tests;
