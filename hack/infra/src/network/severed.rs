//! Pairs of members between which packets vanish, while each reaches everybody else.
//!
//! Pairs are of addresses, because that is what the router sees on every way from one member to the other: directly,
//! and through a Service, whose address kube-proxy has translated by the time a packet is forwarded, or not yet put
//! back. So a member that comes back at another address is not cut off from anybody.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{MutexGuard, PoisonError};

use anyhow::{Result, ensure};

use super::{Network, inside};

/// Two addresses, the lower one first: a cut has no direction.
pub(super) type Pair = (Ipv4Addr, Ipv4Addr);

impl Network {
    /// Makes all packets between two addresses vanish, both ways.
    ///
    /// # Errors
    /// When it is one address, or `iptables` fails.
    pub async fn sever(&self, one: Ipv4Addr, other: Ipv4Addr) -> Result<()> {
        ensure!(one != other, "a machine cannot be cut off from itself");
        let pair = pair(one, other);
        // Taken first: of two who ask at once one writes the rules.
        if !self.severed().insert(pair) {
            return Ok(());
        }
        let written = self.write_rules("-I", pair).await;
        if written.is_err() {
            self.severed().remove(&pair);
        }
        written
    }

    /// Undoes [`Network::sever`]; a pair that is not severed is fine.
    ///
    /// # Errors
    /// When `iptables` fails.
    pub async fn rejoin(&self, one: Ipv4Addr, other: Ipv4Addr) -> Result<()> {
        let pair = pair(one, other);
        if self.severed().remove(&pair) {
            self.write_rules("-D", pair).await?;
        }
        Ok(())
    }

    /// Undoes everything of an address that is given up: its next owner is someone else.
    ///
    /// # Errors
    /// When `iptables` fails.
    pub async fn rejoin_all(&self, address: Ipv4Addr) -> Result<()> {
        for other in self.severed_from(address) {
            self.rejoin(address, other).await?;
        }
        Ok(())
    }

    /// Keeps a member cut off from those that it was cut off from when its address changes.
    ///
    /// # Errors
    /// When `iptables` fails.
    pub async fn sever_instead(&self, old: Ipv4Addr, new: Ipv4Addr) -> Result<()> {
        for other in self.severed_from(old) {
            self.sever(new, other).await?;
            self.rejoin(old, other).await?;
        }
        Ok(())
    }

    /// The addresses that `address` is severed from.
    pub fn severed_from(&self, address: Ipv4Addr) -> Vec<Ipv4Addr> {
        let other = |&(one, other): &Pair| match address {
            _ if address == one => Some(other),
            _ if address == other => Some(one),
            _ => None,
        };
        self.severed().iter().filter_map(other).collect()
    }

    /// In the table `mangle`, which kube-proxy leaves alone and which comes before all that it accepts.
    async fn write_rules(&self, change: &str, (one, other): Pair) -> Result<()> {
        let (one, other) = (one.to_string(), other.to_string());
        for (from, to) in [(&one, &other), (&other, &one)] {
            let rule = ["-s", from, "-d", to, "-j", "DROP"];
            let command = ["iptables", "-w", "-t", "mangle", change, "FORWARD"];
            inside(&self.namespace(), &[&command[..], &rule].concat()).await?;
        }
        Ok(())
    }

    fn severed(&self) -> MutexGuard<'_, BTreeSet<Pair>> {
        self.severed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair(one: Ipv4Addr, other: Ipv4Addr) -> Pair {
    (one.min(other), one.max(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_has_no_direction() {
        let network = Network::open("test").unwrap();
        let [a, b, c] = [1, 2, 3].map(|last| Ipv4Addr::new(10, 244, 0, last));
        network.severed().insert(pair(b, a));
        assert_eq!(network.severed_from(a), [b]);
        assert_eq!(network.severed_from(b), [a]);
        assert!(network.severed_from(c).is_empty());
    }

    #[tokio::test]
    async fn a_machine_is_not_cut_off_from_itself() {
        let network = Network::open("test").unwrap();
        let address = Ipv4Addr::new(10, 244, 0, 1);
        assert!(network.sever(address, address).await.is_err());
    }
}
