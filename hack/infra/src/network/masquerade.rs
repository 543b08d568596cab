//! Machines behind their Pod's address: KubeVirt's masquerade binding.
//!
//! Every such machine has the same address inside. A namespace of its own stands for its Pod: it has the Pod's address
//! on the bridge, translates, and forwards to the machine over a second wire. A machine that moves keeps its end of that
//! wire; the other end goes to the namespace of the next Pod.

use std::net::Ipv4Addr;
use std::sync::{MutexGuard, PoisonError};

use anyhow::{Context, Result};

use super::ip::{batch, ip};
use super::{Network, inside, namespaces, port_name};

/// The address that every masqueraded machine has inside.
pub const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Its router: the Pod.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
/// The same in every Pod, so that a machine that has moved still knows its router.
const GATEWAY_MAC: &str = "02:67:63:00:00:02";
/// The Pod's end of the wire to the machine.
const INNER_LINK: &str = "vm0";

/// A port that is forwarded to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// UDP, and not TCP.
    pub udp: bool,
    /// Its number.
    pub number: u16,
}

/// How a machine is bound to the network of its Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// It has the Pod's address itself.
    Bridge,
    /// It stands behind the Pod's address; these ports of it are forwarded, all if none is listed.
    Masquerade(Vec<Port>),
}

impl Network {
    /// Makes the namespace `member` for a machine behind the Pod address `address`.
    ///
    /// # Errors
    /// When a namespace exists already, or `ip` or `iptables` fail; nothing is left behind then.
    pub async fn attach_behind(
        &self,
        member: &str,
        (address, ports): (Ipv4Addr, &[Port]),
        mac: &str,
    ) -> Result<()> {
        ip(&["netns", "add", member]).await?;
        self.behind().insert(member.to_owned(), address);
        let wired = self.wire_behind(member, (address, ports), mac).await;
        if wired.is_err() {
            // The first error is the one to tell.
            let _ = self.detach(member).await;
        }
        wired.with_context(|| format!("cannot attach {member} behind address {address}"))
    }

    async fn wire_behind(&self, member: &str, pod: (Ipv4Addr, &[Port]), mac: &str) -> Result<()> {
        let outside = self.open_pod(pod).await?;
        let wire = format!("link add {INNER_LINK} type veth peer name eth0 netns {member}\n");
        batch(&outside, &wire).await?;
        batch(&outside, &gateway_script()).await?;
        batch(member, &machine_script(mac)).await
    }

    /// Moves a machine behind another Pod address. It keeps what it has inside; connections to the address that it
    /// leaves are lost.
    ///
    /// # Errors
    /// When the machine is not behind an address, or `ip` or `iptables` fail; while its wire has not moved, it stays
    /// where it was.
    pub async fn rehome(&self, member: &str, to: (Ipv4Addr, &[Port])) -> Result<()> {
        let from = self.behind().get(member).copied();
        let from = from.with_context(|| format!("{member} has its Pod's address itself"))?;
        let opened = self.open_pod(to).await;
        let moved = match &opened {
            Ok(outside) => {
                let source = self.pod_namespace(from);
                batch(&source, &format!("link set {INNER_LINK} netns {outside}\n")).await
            }
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        if let Err(error) = moved {
            let _ = self.remove_member(&self.pod_namespace(to.0)).await;
            return Err(error.context(format!("cannot move {member} behind {}", to.0)));
        }
        self.behind().insert(member.to_owned(), to.0);
        batch(&self.pod_namespace(to.0), &gateway_script()).await?;
        self.remove_member(&self.pod_namespace(from)).await
    }

    /// The namespace of a Pod with a machine behind it: on the bridge, with everything but the wire to the machine.
    async fn open_pod(&self, (address, ports): (Ipv4Addr, &[Port])) -> Result<String> {
        let outside = self.pod_namespace(address);
        self.attach(&outside, address, None).await?;
        for setting in [
            "net.ipv4.ip_forward=1",
            "net.ipv4.conf.all.send_redirects=0",
        ] {
            inside(&outside, &["sysctl", "-q", "-w", setting]).await?;
        }
        for rule in translation(address, ports) {
            let words: Vec<&str> = rule.split(' ').collect();
            inside(
                &outside,
                &[&["iptables", "-w", "-t", "nat", "-A"], &words[..]].concat(),
            )
            .await?;
        }
        Ok(outside)
    }

    /// The namespace by which a member is on the bridge: its own, or that of the Pod before it.
    pub(super) fn edge(&self, member: &str) -> String {
        let pod = self.behind().get(member).copied();
        pod.map_or_else(|| member.to_owned(), |address| self.pod_namespace(address))
    }

    /// Removes the namespace of the Pod before a member, if there is one.
    pub(super) async fn detach_pod(&self, member: &str) -> Result<()> {
        let pod = self.behind().remove(member);
        match pod {
            Some(address) => self.remove_member(&self.pod_namespace(address)).await,
            None => Ok(()),
        }
    }

    /// Removes one namespace and its port on the bridge. One that is gone already is fine.
    pub(super) async fn remove_member(&self, member: &str) -> Result<()> {
        // A namespace dies some time after its name: the port is removed by name, and at once, so
        // that a machine started again under the same name finds it free.
        let _ = ip(&["-n", &self.namespace(), "link", "del", &port_name(member)]).await;
        if !namespaces().await?.iter().any(|name| name == member) {
            return Ok(());
        }
        ip(&["netns", "del", member]).await.map(drop)
    }

    fn pod_namespace(&self, address: Ipv4Addr) -> String {
        self.member_namespace(&format!("pod-{address}"))
    }

    fn behind(&self) -> MutexGuard<'_, std::collections::BTreeMap<String, Ipv4Addr>> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the table `nat` of a Pod does, a rule each.
///
/// As in KubeVirt, only what comes over the Pod's own interface is forwarded: a machine that dials its Pod's address
/// itself meets the Pod, and sources of what comes in stay what they are.
fn translation(address: Ipv4Addr, ports: &[Port]) -> Vec<String> {
    let incoming = format!("PREROUTING -i eth0 -d {address}");
    let forward = format!("-j DNAT --to-destination {INSIDE}");
    let mut rules = vec![format!("POSTROUTING -o eth0 -s {INSIDE} -j MASQUERADE")];
    if ports.is_empty() {
        rules.push(format!("{incoming} {forward}"));
    }
    rules.extend(ports.iter().map(|port| {
        let protocol = if port.udp { "udp" } else { "tcp" };
        format!("{incoming} -p {protocol} --dport {} {forward}", port.number)
    }));
    rules
}

fn gateway_script() -> String {
    format!(
        "link set {INNER_LINK} address {GATEWAY_MAC}
addr add {GATEWAY}/24 dev {INNER_LINK}
link set {INNER_LINK} up
"
    )
}

fn machine_script(mac: &str) -> String {
    format!(
        "link set lo up
link set eth0 address {mac}
addr add {INSIDE}/24 dev eth0
link set eth0 up
route add default via {GATEWAY} src {INSIDE}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 12);

    #[test]
    fn a_machine_without_listed_ports_gets_everything() {
        let rules = translation(POD, &[]);
        assert!(rules.contains(
            &"PREROUTING -i eth0 -d 10.244.0.12 -j DNAT --to-destination 10.0.2.2".to_owned()
        ));
    }

    #[test]
    fn of_listed_ports_nothing_else_is_forwarded() {
        let port = |udp, number| Port { udp, number };
        let rules = translation(POD, &[port(false, 6443), port(true, 53)]);
        let forwarded: Vec<_> = rules.iter().filter(|rule| rule.contains("DNAT")).collect();
        assert_eq!(forwarded.len(), 2);
        assert!(forwarded[0].contains("-p tcp --dport 6443"));
        assert!(forwarded[1].contains("-p udp --dport 53"));
    }

    #[test]
    fn a_machine_is_cut_off_at_the_pod_before_it() {
        let network = Network::open("test").unwrap();
        let member = network.member_namespace("a.b");
        assert_eq!(network.edge(&member), member);
        network.behind().insert(member.clone(), POD);
        assert_eq!(network.edge(&member), "gc-test.pod-10.244.0.12");
    }
}
