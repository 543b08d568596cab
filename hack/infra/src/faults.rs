//! What tests and people can break, and mend again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kube::Api;
use kube::api::DeleteParams;
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};

use crate::control_plane::API_SERVER;
use crate::data_centre::{DataCentre, instance_resource};
use crate::hosts::Hosts;
use crate::kubevirt::VIRT_API;
use crate::process::Supervisor;

/// An object in a namespace, written `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Target {
    /// The object `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// How a live migration goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationFault {
    /// It starts and never ends.
    Stall,
    /// It starts and fails, for this reason.
    Fail(String),
}

/// One thing that breaks, or is mended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A host loses power: its machines, its kubelet, its virt-handler.
    KillHost(String),
    /// A host is switched on again.
    ReviveHost(String),
    /// A machine is reset in place: same disk, same address.
    Reset(Target),
    /// A machine's hypervisor crashes: the instance fails.
    Crash(Target),
    /// A machine stops where it stands.
    Freeze(Target),
    /// A frozen machine goes on.
    Thaw(Target),
    /// A machine's packets vanish.
    Cut(Target),
    /// A cut machine is connected again.
    Restore(Target),
    /// Packets between two machines vanish, until one of them has another address.
    CutBetween(Target, Target),
    /// Two machines reach each other again.
    RestoreBetween(Target, Target),
    /// The disk that holds a machine's etcd has no space left.
    FillDisk(Target),
    /// It has space again.
    FreeDisk(Target),
    /// Each fsync and fdatasync of a machine's etcd is held back, until the machine is switched off.
    SlowDisk(Target, Duration),
    /// They take what they take.
    FastDisk(Target),
    /// A machine is stopped and started with a new Pod, which has another address.
    Restart(Target),
    /// Live migrations of a machine go wrong, until they are mended.
    BreakMigration(Target, MigrationFault),
    /// They go well again; one that was stalled goes on.
    MendMigration(Target),
    /// virt-api, with its webhooks, is away.
    StopVirtApi,
    /// virt-api is back.
    StartVirtApi,
    /// The infrastructure's API server is away.
    StopApiServer,
    /// The infrastructure's API server is back.
    StartApiServer,
    /// The load balancer is dead: packets to its addresses vanish, and nobody is told.
    StopLoadBalancer,
    /// The load balancer forwards again.
    StartLoadBalancer,
    /// New Services of a namespace, or one Service (`namespace/name`), get no address.
    MuteLoadBalancer(String),
    /// They get one again.
    UnmuteLoadBalancer(String),
}

/// How long a slow disk takes for a sync unless it is said: half of what etcd's members wait for a leader, so that
/// they are late and still have one.
pub const SLOW: Duration = Duration::from_millis(500);

/// Why a migration fails unless it is said.
const NO_REASON: &str = "the connection between the hosts broke";

/// Every fault as it is written, for help texts.
pub const USAGE: &[&str] = &[
    "kill-host HOST",
    "revive-host HOST",
    "reset NAMESPACE/VM",
    "crash NAMESPACE/VM",
    "freeze NAMESPACE/VM",
    "thaw NAMESPACE/VM",
    "cut NAMESPACE/VM",
    "restore NAMESPACE/VM",
    "cut-between NAMESPACE/VM NAMESPACE/VM",
    "restore-between NAMESPACE/VM NAMESPACE/VM",
    "fill-disk NAMESPACE/VM",
    "free-disk NAMESPACE/VM",
    "slow-disk NAMESPACE/VM [MILLISECONDS]",
    "fast-disk NAMESPACE/VM",
    "restart NAMESPACE/VM",
    "stall-migration NAMESPACE/VM",
    "fail-migration NAMESPACE/VM [REASON]",
    "mend-migration NAMESPACE/VM",
    "stop-virt-api",
    "start-virt-api",
    "stop-api-server",
    "start-api-server",
    "stop-load-balancer",
    "start-load-balancer",
    "mute-load-balancer NAMESPACE[/SERVICE]",
    "unmute-load-balancer NAMESPACE[/SERVICE]",
];

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                Ok(Self::new(namespace, name))
            }
            _ => anyhow::bail!("\"{text}\" is not of the form NAMESPACE/NAME"),
        }
    }
}

impl FromStr for Fault {
    type Err = anyhow::Error;

    /// Reads a fault as [`USAGE`] writes it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<_> = text.split_whitespace().collect();
        Ok(match words[..] {
            ["kill-host", host] => Self::KillHost(host.to_owned()),
            ["revive-host", host] => Self::ReviveHost(host.to_owned()),
            ["reset", target] => Self::Reset(target.parse()?),
            ["crash", target] => Self::Crash(target.parse()?),
            ["freeze", target] => Self::Freeze(target.parse()?),
            ["thaw", target] => Self::Thaw(target.parse()?),
            ["cut", target] => Self::Cut(target.parse()?),
            ["restore", target] => Self::Restore(target.parse()?),
            ["cut-between", one, other] => Self::CutBetween(one.parse()?, other.parse()?),
            ["restore-between", one, other] => Self::RestoreBetween(one.parse()?, other.parse()?),
            ["fill-disk", target] => Self::FillDisk(target.parse()?),
            ["free-disk", target] => Self::FreeDisk(target.parse()?),
            ["slow-disk", target] => Self::SlowDisk(target.parse()?, SLOW),
            ["slow-disk", target, delay] => Self::SlowDisk(target.parse()?, milliseconds(delay)?),
            ["fast-disk", target] => Self::FastDisk(target.parse()?),
            ["restart", target] => Self::Restart(target.parse()?),
            ["stall-migration", target] => {
                Self::BreakMigration(target.parse()?, MigrationFault::Stall)
            }
            ["fail-migration", target] => failing(target, NO_REASON)?,
            ["fail-migration", target, ref reason @ ..] => failing(target, &reason.join(" "))?,
            ["mend-migration", target] => Self::MendMigration(target.parse()?),
            ["stop-virt-api"] => Self::StopVirtApi,
            ["start-virt-api"] => Self::StartVirtApi,
            ["stop-api-server"] => Self::StopApiServer,
            ["start-api-server"] => Self::StartApiServer,
            ["stop-load-balancer"] => Self::StopLoadBalancer,
            ["start-load-balancer"] => Self::StartLoadBalancer,
            ["mute-load-balancer", scope] => Self::MuteLoadBalancer(scope.to_owned()),
            ["unmute-load-balancer", scope] => Self::UnmuteLoadBalancer(scope.to_owned()),
            _ => anyhow::bail!("no such fault; write one of:\n  {}", USAGE.join("\n  ")),
        })
    }
}

fn failing(target: &str, reason: &str) -> anyhow::Result<Fault> {
    let fault = MigrationFault::Fail(reason.to_owned());
    Ok(Fault::BreakMigration(target.parse()?, fault))
}

/// A delay in milliseconds, of which none would be no fault.
fn milliseconds(text: &str) -> anyhow::Result<Duration> {
    match text.parse() {
        Ok(delay @ 1..) => Ok(Duration::from_millis(delay)),
        _ => anyhow::bail!("\"{text}\" is no number of milliseconds"),
    }
}

/// What faults act on.
pub struct Breaker<'a> {
    /// The shared parts.
    pub centre: &'a DataCentre,
    /// The hosts.
    pub hosts: &'a Hosts,
    /// The programs.
    pub supervisor: &'a Supervisor,
}

impl Breaker<'_> {
    /// Makes `fault` happen; returns once it has.
    pub async fn inject(&self, fault: Fault) -> anyhow::Result<()> {
        let guests = &self.centre.guests;
        match fault {
            Fault::KillHost(host) => self.hosts.kill(&host).await,
            Fault::ReviveHost(host) => self.hosts.revive(&host),
            Fault::Reset(at) => guests.reset(&at.namespace, &at.name).await,
            Fault::Crash(at) => guests.crash(&at.namespace, &at.name).await,
            Fault::Freeze(at) => guests.set_frozen(&at.namespace, &at.name, true).await,
            Fault::Thaw(at) => guests.set_frozen(&at.namespace, &at.name, false).await,
            Fault::Cut(at) => guests.set_cut(&at.namespace, &at.name, true).await,
            Fault::Restore(at) => guests.set_cut(&at.namespace, &at.name, false).await,
            Fault::CutBetween(one, other) => guests.set_cut_between(&one, &other, true).await,
            Fault::RestoreBetween(one, other) => guests.set_cut_between(&one, &other, false).await,
            Fault::FillDisk(at) => guests.set_disk_full(&at, true).await,
            Fault::FreeDisk(at) => guests.set_disk_full(&at, false).await,
            Fault::SlowDisk(at, delay) => guests.set_slow_disk(&at, Some(delay)).await,
            Fault::FastDisk(at) => guests.set_slow_disk(&at, None).await,
            Fault::Restart(at) => self.restart(&at).await,
            Fault::BreakMigration(at, fault) => {
                let faults = &self.centre.migration_faults;
                faults.send_modify(|faults| faults.extend([(at, fault)]));
                Ok(())
            }
            Fault::MendMigration(at) => {
                let faults = &self.centre.migration_faults;
                faults.send_modify(|faults| faults.retain(|known, _| *known != at));
                Ok(())
            }
            Fault::StopVirtApi => self.supervisor.hold(VIRT_API),
            Fault::StartVirtApi => self.supervisor.release(VIRT_API),
            Fault::StopApiServer => self.supervisor.hold(API_SERVER),
            Fault::StartApiServer => self.supervisor.release(API_SERVER),
            Fault::StopLoadBalancer => self.centre.network.set_load_balancer(false).await,
            Fault::StartLoadBalancer => self.centre.network.set_load_balancer(true).await,
            Fault::MuteLoadBalancer(scope) => {
                self.centre.muted.send_modify(|muted| muted.extend([scope]));
                Ok(())
            }
            Fault::UnmuteLoadBalancer(scope) => {
                self.centre
                    .muted
                    .send_modify(|muted| muted.retain(|known| *known != scope));
                Ok(())
            }
        }
    }

    /// Deletes the instance: its owner makes a new one, with a new Pod.
    async fn restart(&self, at: &Target) -> anyhow::Result<()> {
        let api: Api<DynamicObject> = Api::namespaced_with(
            self.centre.clients.admin.clone(),
            &at.namespace,
            &instance_resource(),
        );
        api.delete(&at.name, &DeleteParams::default()).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Fault, MigrationFault, SLOW, Target, USAGE};

    #[test]
    fn every_fault_is_read_as_the_usage_writes_it() {
        for usage in USAGE {
            let example = usage
                .replace("NAMESPACE[/SERVICE]", "guests/api")
                .replace("NAMESPACE/VM", "guests/prod-cp-1")
                .replace("[MILLISECONDS]", "250")
                .replace("[REASON]", "no route to host")
                .replace("HOST", "host-1");
            assert!(example.parse::<Fault>().is_ok(), "{example}");
        }
    }

    #[test]
    fn a_fault_is_what_was_written() {
        let fault: Fault = "cut guests/prod-cp-1".parse().unwrap();
        assert_eq!(fault, Fault::Cut(Target::new("guests", "prod-cp-1")));
    }

    #[test]
    fn a_slow_disk_is_as_slow_as_it_is_said() {
        let read = |text: &str| text.parse::<Fault>().unwrap();
        let at = Target::new("guests", "prod-cp-1");
        let delay = Duration::from_millis(250);
        assert_eq!(
            read("slow-disk guests/prod-cp-1 250"),
            Fault::SlowDisk(at.clone(), delay)
        );
        assert_eq!(
            read("slow-disk guests/prod-cp-1"),
            Fault::SlowDisk(at, SLOW)
        );
    }

    #[test]
    fn a_failed_migration_fails_for_the_reason_that_is_said() {
        let fault: Fault = "fail-migration guests/vm no route to host".parse().unwrap();
        let reason = MigrationFault::Fail("no route to host".to_owned());
        assert_eq!(
            fault,
            Fault::BreakMigration(Target::new("guests", "vm"), reason)
        );
    }

    #[test]
    fn what_is_no_fault_is_answered_with_the_list() {
        for text in [
            "",
            "kill-host",
            "cut prod-cp-1",
            "slow-disk a/b 0",
            "explode",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
        let error = "explode".parse::<Fault>().unwrap_err().to_string();
        assert!(error.contains("kill-host HOST"));
    }
}
