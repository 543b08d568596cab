//! What tests and people can break, and mend again.

use std::fmt;
use std::str::FromStr;

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// A machine is stopped and started with a new Pod, which has another address.
    Restart(Target),
    /// virt-api, with its webhooks, is away.
    StopVirtApi,
    /// virt-api is back.
    StartVirtApi,
    /// The infrastructure's API server is away.
    StopApiServer,
    /// The infrastructure's API server is back.
    StartApiServer,
    /// New Services of a namespace, or one Service (`namespace/name`), get no address.
    MuteLoadBalancer(String),
    /// They get one again.
    UnmuteLoadBalancer(String),
}

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
    "restart NAMESPACE/VM",
    "stop-virt-api",
    "start-virt-api",
    "stop-api-server",
    "start-api-server",
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
            ["restart", target] => Self::Restart(target.parse()?),
            ["stop-virt-api"] => Self::StopVirtApi,
            ["start-virt-api"] => Self::StartVirtApi,
            ["stop-api-server"] => Self::StopApiServer,
            ["start-api-server"] => Self::StartApiServer,
            ["mute-load-balancer", scope] => Self::MuteLoadBalancer(scope.to_owned()),
            ["unmute-load-balancer", scope] => Self::UnmuteLoadBalancer(scope.to_owned()),
            _ => anyhow::bail!("no such fault; write one of:\n  {}", USAGE.join("\n  ")),
        })
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
            Fault::Restart(at) => self.restart(&at).await,
            Fault::StopVirtApi => self.supervisor.hold(VIRT_API),
            Fault::StartVirtApi => self.supervisor.release(VIRT_API),
            Fault::StopApiServer => self.supervisor.hold(API_SERVER),
            Fault::StartApiServer => self.supervisor.release(API_SERVER),
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
    use super::{Fault, Target, USAGE};

    #[test]
    fn every_fault_is_read_as_the_usage_writes_it() {
        for usage in USAGE {
            let example = usage
                .replace("NAMESPACE[/SERVICE]", "guests/api")
                .replace("NAMESPACE/VM", "guests/prod-cp-1")
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
    fn what_is_no_fault_is_answered_with_the_list() {
        for text in ["", "kill-host", "cut prod-cp-1", "explode"] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
        let error = "explode".parse::<Fault>().unwrap_err().to_string();
        assert!(error.contains("kill-host HOST"));
    }
}
