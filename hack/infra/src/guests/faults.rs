//! What faults do to machines.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context;
use tokio::task::spawn_blocking;

use super::{Guest, Guests};
use crate::faults::Target;

impl Guests {
    /// Resets the machine: power off and on in place, same disk, same address.
    pub async fn reset(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let (uid, machine) = self.by_name(namespace, name)?;
        if let Some(guest) = self.lock().get_mut(&uid) {
            guest.reset = true;
        }
        machine.pull_plug().await
    }

    /// Kills the machine as a crash of its hypervisor would: the instance fails.
    pub async fn crash(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        self.by_name(namespace, name)?.1.pull_plug().await
    }

    /// Stops the machine where it stands, or lets it go on.
    pub async fn set_frozen(&self, namespace: &str, name: &str, on: bool) -> anyhow::Result<()> {
        let (uid, machine) = self.by_name(namespace, name)?;
        if on {
            machine.freeze().await
        } else {
            machine.thaw().await
        }?;
        if let Some(guest) = self.lock().get_mut(&uid) {
            guest.frozen = on;
        }
        Ok(())
    }

    /// Cuts the machine off the network, or connects it again.
    pub async fn set_cut(&self, namespace: &str, name: &str, on: bool) -> anyhow::Result<()> {
        let (uid, _) = self.by_name(namespace, name)?;
        let id = {
            let guests = self.lock();
            guests
                .get(&uid)
                .and_then(|guest| guest.order.machine.as_ref().map(|m| m.id.clone()))
        };
        let member = self
            .network
            .member_namespace(&id.context("the machine is gone")?);
        if on {
            self.network.cut(&member).await
        } else {
            self.network.restore(&member).await
        }?;
        if let Some(guest) = self.lock().get_mut(&uid) {
            guest.cut = on;
        }
        Ok(())
    }

    /// Fills the disk that holds the machine's etcd, or gives the space back.
    pub async fn set_disk_full(&self, at: &Target, full: bool) -> anyhow::Result<()> {
        let (_, machine) = self.by_name(&at.namespace, &at.name)?;
        spawn_blocking(move || machine.set_disk_full(full)).await?
    }

    /// Holds back each sync of the machine's etcd by `delay`; none lets them go on at once.
    pub async fn set_slow_disk(&self, at: &Target, delay: Option<Duration>) -> anyhow::Result<()> {
        let (uid, machine) = self.by_name(&at.namespace, &at.name)?;
        // Ended before another begins: a process has one tracer.
        let before = self
            .lock()
            .get_mut(&uid)
            .and_then(|guest| guest.slow.take());
        if let Some(before) = before {
            before.end().await;
        }
        let Some(delay) = delay else {
            return Ok(());
        };
        let slow = machine.slow_disk(delay).await?;
        if let Some(guest) = self.lock().get_mut(&uid) {
            guest.slow = Some(slow);
        }
        Ok(())
    }

    /// Makes packets between two machines vanish, or lets them through again.
    ///
    /// It lasts as long as both machines have the addresses that they have now: one whose instance is started again,
    /// with a new Pod, is not cut off any more.
    pub async fn set_cut_between(
        &self,
        one: &Target,
        other: &Target,
        on: bool,
    ) -> anyhow::Result<()> {
        let (one, other) = (self.address(one)?, self.address(other)?);
        if on {
            self.network.sever(one, other).await
        } else {
            self.network.rejoin(one, other).await
        }
    }

    fn address(&self, at: &Target) -> anyhow::Result<Ipv4Addr> {
        let (uid, _) = self.by_name(&at.namespace, &at.name)?;
        let guests = self.lock();
        let guest = guests.get(&uid).context("the machine is gone")?;
        Ok(guest.order.address)
    }

    /// The machines that one is cut off from.
    pub(super) fn cut_from(&self, guests: &BTreeMap<String, Guest>, guest: &Guest) -> Vec<String> {
        let severed = self.network.severed_from(guest.order.address);
        let others = guests.values().map(|guest| &guest.order);
        others
            .filter(|order| severed.contains(&order.address))
            .map(|order| format!("{}/{}", order.namespace, order.name))
            .collect()
    }
}
