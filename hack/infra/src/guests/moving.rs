//! Moving a guest from one host to another while it runs.
//!
//! All machines stand on one box, so there is no memory to copy: a machine is stopped where it stands, its wire goes to
//! the Pod on the other host, and it goes on.

use std::net::Ipv4Addr;

use anyhow::Context;

use super::Guests;
use crate::machine::Machine;
use crate::network::Binding;

impl Guests {
    /// Whether the guest of the instance `uid` is in the Pod with this address.
    pub fn is_behind(&self, uid: &str, address: Option<Ipv4Addr>) -> bool {
        let guests = self.lock();
        let guest = guests.get(uid);
        guest.is_some_and(|guest| Some(guest.order.address) == address)
    }

    /// Whether the guest of the instance `uid` runs on this host.
    pub fn is_on(&self, uid: &str, host: &str) -> bool {
        let guests = self.lock();
        guests
            .get(uid)
            .is_some_and(|guest| guest.order.host == host)
    }

    /// Moves the guest of the instance `uid` into the Pod with the address `to` on `host`, with the faults it has. A
    /// guest that is there already is fine.
    ///
    /// # Errors
    /// When no such guest runs, or its machine cannot be moved; it goes on where it was then.
    pub async fn relocate(&self, uid: &str, host: &str, to: Ipv4Addr) -> anyhow::Result<()> {
        let (order, machine, frozen, cut) = {
            let guests = self.lock();
            let running = guests
                .get(uid)
                .filter(|guest| guest.ending.borrow().is_none());
            let guest = running.context("its guest does not run any more")?;
            let machine = guest.machine.clone();
            (guest.order.clone(), machine, guest.frozen, guest.cut)
        };
        if order.address == to {
            return Ok(());
        }
        if let (Some(machine), Some(spec)) = (machine, &order.machine) {
            let Binding::Masquerade(ports) = &spec.binding else {
                anyhow::bail!("the machine host moves masqueraded machines only");
            };
            let member = self.network.member_namespace(&spec.id);
            let rewire = self.network.rehome(&member, (to, ports));
            if frozen {
                rewire.await?;
            } else {
                while_stopped(&machine, rewire).await?;
            }
            if cut {
                self.network.cut(&member).await?;
            }
        }
        self.network.sever_instead(order.address, to).await?;
        if let Some(guest) = self.lock().get_mut(uid) {
            host.clone_into(&mut guest.order.host);
            guest.order.address = to;
            if let Some(spec) = &mut guest.order.machine {
                spec.address = to;
            }
        }
        Ok(())
    }
}

/// Does something while the machine stands still.
async fn while_stopped(
    machine: &Machine,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    machine.freeze().await?;
    let done = work.await;
    machine.thaw().await?;
    done
}
