//! The data centre's network: one namespace with a bridge that routes between machines, Pods, Services and hosts.
//!
//! Everything that dials a machine (the infrastructure's API server, kube-proxy, probes, the operator)
//! runs inside the namespace `gc-<name>`. Nothing is routed out of it and nothing of the host's own
//! network is touched, so two infrastructures can stand side by side.
//!
//! | range | used for |
//! |---|---|
//! | 10.244.0.0/16 | machines and Pods, each a /32 behind its own veth; the router is 10.244.0.1 on `br0` |
//! | 10.0.2.0/24 | between a Pod and the masqueraded machine behind it, the same in each |
//! | 10.78.0.0/24 | the hosts' kubelet addresses, on `lo` |
//! | 10.79.0.0/24 | load balancers: local to the router, kube-proxy translates them |
//! | 10.96.0.0/16 | Services of the infrastructure: kube-proxy translates them |

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::addresses::{self, LOAD_BALANCER_RANGE, MAX_HOSTS, ROUTER};
use crate::cache::hexadecimal;
use ip::{batch, ip};
pub use masquerade::{Binding, INSIDE, Port};
use pool::Pool;
use severed::Pair;

mod ip;
mod masquerade;
mod pool;
mod severed;

/// The network of one local infrastructure.
#[derive(Debug)]
pub struct Network {
    name: String,
    pool: Mutex<Pool>,
    severed: Mutex<BTreeSet<Pair>>,
    /// The Pod addresses of masqueraded members.
    behind: Mutex<BTreeMap<String, Ipv4Addr>>,
    balancer_is_dead: tokio::sync::Mutex<bool>,
}

impl Network {
    /// Creates the namespace `gc-<name>` with bridge, router, and the addresses of `hosts` hosts.
    ///
    /// # Errors
    /// When the name is unusable, the namespace already exists, or `ip`, `iptables` or `sysctl` fail
    /// (all need root).
    pub async fn create(name: &str, hosts: u8) -> Result<Self> {
        check_name(name)?;
        ensure!(
            hosts <= MAX_HOSTS,
            "at most {MAX_HOSTS} hosts have an address, {hosts} asked for"
        );
        let network = Self {
            name: name.to_owned(),
            pool: Mutex::default(),
            severed: Mutex::default(),
            behind: Mutex::default(),
            balancer_is_dead: tokio::sync::Mutex::default(),
        };
        let namespace = network.namespace();
        ip(&["netns", "add", &namespace]).await?;
        batch(&namespace, &router_script(hosts)).await?;
        for setting in ROUTER_SYSCTLS {
            inside(&namespace, &["sysctl", "-q", "-w", setting]).await?;
        }
        // Without these a machine that dials an address nobody has waits half a minute for its own
        // TCP timeout; CoreDNS does so before its kube-proxy has written the guest's Service rules.
        // An ICMP answer is not enough for TCP, which goes on trying; a reset ends it at once.
        for answer in [
            &["-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"][..],
            &["-j", "REJECT"],
        ] {
            let rule = [
                "iptables", "-w", "-A", "FORWARD", "-i", "br0", "-o", "void0",
            ];
            inside(&namespace, &[&rule, answer].concat()).await?;
        }
        Ok(network)
    }

    /// The network of an infrastructure that is already up, seen from another process.
    ///
    /// Addresses must be allocated by one process only: the one that created the network.
    pub fn open(name: &str) -> Result<Self> {
        check_name(name)?;
        Ok(Self {
            name: name.to_owned(),
            pool: Mutex::default(),
            severed: Mutex::default(),
            behind: Mutex::default(),
            balancer_is_dead: tokio::sync::Mutex::default(),
        })
    }

    /// The infrastructure's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the namespace that plays the data centre, as `ip netns` lists it.
    pub fn namespace(&self) -> String {
        format!("gc-{}", self.name)
    }

    /// Name for the network namespace of the machine or Pod `id`.
    ///
    /// The dot keeps it apart from an infrastructure named `<name>-<something>`, because
    /// infrastructure names have no dots.
    pub fn member_namespace(&self, id: &str) -> String {
        format!("gc-{}.{id}", self.name)
    }

    /// Takes an address for a machine or Pod: never one in use, and not one used lately.
    ///
    /// # Errors
    /// When all 65,000 are taken.
    pub fn allocate_ip(&self) -> Result<Ipv4Addr> {
        self.pool()
            .take()
            .context("every address of 10.244.0.0/16 is in use")
    }

    /// Gives an address back. It is handed out again only after the whole range has been gone through.
    pub fn release_ip(&self, address: Ipv4Addr) {
        self.pool().release(address);
    }

    /// Makes the namespace `member` with `eth0` on the bridge: a /32 whose only neighbour is the router.
    ///
    /// Hairpin is on, so that a machine reaches itself through a Service.
    ///
    /// # Errors
    /// When the namespace exists already or `ip` fails; nothing of it is left behind then.
    pub async fn attach(&self, member: &str, address: Ipv4Addr, mac: Option<&str>) -> Result<()> {
        ip(&["netns", "add", member]).await?;
        let wired = self.wire(member, address, mac).await;
        if wired.is_err() {
            // The first error is the one to tell; what cannot be removed is found by the sweep.
            let _ = self.detach(member).await;
        }
        wired.with_context(|| format!("cannot attach {member} with address {address}"))
    }

    async fn wire(&self, member: &str, address: Ipv4Addr, mac: Option<&str>) -> Result<()> {
        let port = port_name(member);
        let script = format!(
            "link add {port} type veth peer name eth0 netns {member}\n{}",
            plug_script(&port)
        );
        batch(&self.namespace(), &script).await?;
        batch(member, &member_script(address, mac)).await
    }

    /// Removes the namespace `member` and its port, and the Pod before it if there is one. One that is gone already is
    /// fine.
    ///
    /// # Errors
    /// When `ip` cannot remove what is there.
    pub async fn detach(&self, member: &str) -> Result<()> {
        self.detach_pod(member).await?;
        self.remove_member(member).await
    }

    /// Cuts a member off: packets vanish both ways, its link stays up.
    ///
    /// That is what a broken switch or fabric looks like; a link taken down would be seen and answered.
    ///
    /// # Errors
    /// When the member has no port.
    pub async fn cut(&self, member: &str) -> Result<()> {
        let port = port_name(&self.edge(member));
        batch(&self.namespace(), &format!("link set {port} nomaster\n")).await
    }

    /// Undoes [`Network::cut`].
    ///
    /// # Errors
    /// When the member has no port.
    pub async fn restore(&self, member: &str) -> Result<()> {
        let port = port_name(&self.edge(member));
        batch(&self.namespace(), &plug_script(&port)).await
    }

    /// Makes all packets to load balancers vanish, from machines and from programs of the data centre alike, or lets
    /// them through again.
    ///
    /// The table `mangle` comes before kube-proxy has translated their addresses, so that connections that stand
    /// already are dead too.
    ///
    /// # Errors
    /// When `iptables` fails.
    pub async fn set_load_balancer(&self, alive: bool) -> Result<()> {
        let mut is_dead = self.balancer_is_dead.lock().await;
        if *is_dead != alive {
            return Ok(());
        }
        let change = if alive { "-D" } else { "-I" };
        for chain in ["PREROUTING", "OUTPUT"] {
            let command = ["iptables", "-w", "-t", "mangle", change, chain];
            let rule = ["-d", LOAD_BALANCER_RANGE, "-j", "DROP"];
            inside(&self.namespace(), &[&command[..], &rule].concat()).await?;
        }
        *is_dead = !alive;
        Ok(())
    }

    /// Removes every namespace of this infrastructure. Safe to call again.
    ///
    /// # Errors
    /// When a namespace cannot be removed.
    pub async fn destroy(&self) -> Result<()> {
        sweep(&self.name).await.map(drop)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // The pool is two plain values: they hold whatever happened to the thread that had the lock.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the namespaces `gc-<name>` and `gc-<name>.*` with all their links; says what it removed.
pub(crate) async fn sweep(name: &str) -> Result<Vec<String>> {
    check_name(name)?;
    let mut removed = Vec::new();
    for namespace in namespaces().await? {
        if is_of(name, &namespace) {
            ip(&["netns", "del", &namespace]).await?;
            removed.push(format!("network namespace {namespace}"));
        }
    }
    Ok(removed)
}

/// Processes that live in one of this infrastructure's network namespaces.
pub(crate) async fn inhabitants(name: &str) -> Result<Vec<i32>> {
    let mut pids = Vec::new();
    for namespace in namespaces()
        .await?
        .iter()
        .filter(|namespace| is_of(name, namespace))
    {
        let listed = ip(&["netns", "pids", namespace]).await?;
        pids.extend(
            listed
                .split_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
    }
    Ok(pids)
}

/// Refuses names that could be mistaken for another infrastructure's or do not fit a file name.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 40 || !name.chars().all(fits) {
        bail!("infrastructure name {name:?}: use 1 to 40 of a-z, 0-9 and '-'");
    }
    Ok(())
}

fn is_of(name: &str, namespace: &str) -> bool {
    namespace
        .strip_prefix("gc-")
        .and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

async fn namespaces() -> Result<Vec<String>> {
    let listed = ip(&["netns", "list"]).await?;
    // A line is `name` or `name (id: 3)`.
    Ok(listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}

async fn inside(namespace: &str, argv: &[&str]) -> Result<String> {
    ip(&[&["netns", "exec", namespace], argv].concat()).await
}

/// Kernel names of links have at most 15 bytes: a digest of the member's name always fits.
fn port_name(member: &str) -> String {
    let digest = hexadecimal(&Sha256::digest(member.as_bytes()));
    format!("p{}", &digest[..12])
}

const ROUTER_SYSCTLS: [&str; 6] = [
    "net.ipv4.ip_forward=1",
    "net.ipv4.conf.all.send_redirects=0",
    "net.ipv4.conf.br0.send_redirects=0",
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv4.conf.br0.rp_filter=0",
];

/// The `ip` commands that make the router.
///
/// The bridge's MAC is fixed: left alone it follows its ports, and machines would talk to a stale one
/// whenever another machine comes or goes. The default route leads into a veth pair with no one behind
/// it: a node has a default route, and programs look for one.
fn router_script(hosts: u8) -> String {
    let hosts: Vec<String> = (1..=hosts)
        .map(|host| format!("addr add {}/32 dev lo", addresses::kubelet(host)))
        .collect();
    format!(
        "link set lo up
link add br0 address 02:67:63:00:00:01 type bridge
addr add {ROUTER}/16 dev br0
link set br0 up
link add void0 type veth peer name void1
link set void0 up
link set void1 up
addr add 10.99.0.1/30 dev void0
route add default via 10.99.0.2 dev void0 src {ROUTER}
route add local {LOAD_BALANCER_RANGE} dev lo src {ROUTER}
{}
",
        hosts.join("\n")
    )
}

fn plug_script(port: &str) -> String {
    format!("link set {port} master br0 up\nlink set {port} type bridge_slave hairpin on\n")
}

fn member_script(address: Ipv4Addr, mac: Option<&str>) -> String {
    let mac = mac
        .map(|mac| format!("link set eth0 address {mac}\n"))
        .unwrap_or_default();
    format!(
        "link set lo up
{mac}addr add {address}/32 dev eth0
link set eth0 up
route add {ROUTER} dev eth0 scope link
route add default via {ROUTER} src {address}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_given_back_is_not_the_next_one_handed_out() {
        let network = Network::open("test").unwrap();
        let first = network.allocate_ip().unwrap();
        network.release_ip(first);
        assert_ne!(network.allocate_ip().unwrap(), first);
    }

    #[test]
    fn only_the_infrastructures_own_namespaces_are_its_own() {
        assert!(is_of("infra", "gc-infra"));
        assert!(is_of("infra", "gc-infra.default.cp-0"));
        assert!(!is_of("infra", "gc-infra-2"));
        assert!(!is_of("infra", "gc-infra-2.default.cp-0"));
        assert!(!is_of("infra", "infra"));
        assert!(!is_of("infra", "gc-inf"));
    }

    #[test]
    fn names_that_could_reach_beyond_their_own_are_refused() {
        for name in ["", "a.b", "../x", "A", "a b", &"x".repeat(41)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name("infra-2").is_ok());
    }

    #[test]
    fn port_names_fit_the_kernels_limit_and_differ() {
        let (a, b) = (
            port_name("gc-infra.default.cp-0"),
            port_name("gc-infra.default.cp-1"),
        );
        assert!(a.len() <= 15 && a != b);
    }
}
