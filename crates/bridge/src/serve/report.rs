//! What is said of a machine.

use std::collections::BTreeMap;

use guestcluster_foreign::capk::{Initialization, KubevirtMachineStatus, MachineAddress};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::action::Plan;
use super::condition::{Conditions, Verdict, is_true};
use super::machine::is_on;
use super::seen::{Dialect, Machine, Seen};
use super::trouble;

/// Type of the condition that tells of the virtual machine.
const PROVISIONED: &str = "VMProvisioned";
/// Type of the condition that tells of the end of the first boot.
pub(super) const BOOTSTRAPPED: &str = "BootstrapExecSucceeded";
/// Type of the condition that tells whether a machine can move while it runs.
const MIGRATABLE: &str = "VMLiveMigratable";

/// What is said of a machine.
pub(super) struct Report {
    pub provisioned: Verdict,
    pub bootstrapped: Option<Verdict>,
    pub is_ready: bool,
    pub is_linked: bool,
    /// Why it is beyond help.
    pub failure: Option<String>,
}

impl Report {
    /// It does not run.
    pub(super) fn off(provisioned: Verdict) -> Self {
        Self {
            provisioned,
            bootstrapped: None,
            is_ready: false,
            is_linked: false,
            failure: None,
        }
    }
}

/// Whether a status says nothing but how far something is that goes on: whoever waits for that machine
/// waits on. A machine that starts passes through half a dozen such words within a second.
pub fn is_progress(before: &KubevirtMachineStatus, after: &KubevirtMachineStatus) -> bool {
    let states = |status: &KubevirtMachineStatus| -> BTreeMap<String, (String, String)> {
        let word = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
        let conditions = status.conditions.iter();
        let states = conditions.map(|one| {
            // How bad it is counts: that a person is needed is told at once.
            (
                word(one, "type"),
                (word(one, "status"), word(one, "severity")),
            )
        });
        states.collect()
    };
    let mut same = before.clone();
    same.conditions.clone_from(&after.conditions);
    same == *after && states(before) == states(after)
}

/// Says it, beside what stays as it was.
pub(super) fn say(
    seen: &Seen,
    machine: &Machine,
    (report, now): (&Report, Timestamp),
    plan: &mut Plan,
) {
    let before = machine.object.status.clone().unwrap_or_default();
    let generation = machine.object.metadata.generation;
    let mut conditions = Conditions::new(seen.dialect, (&before.conditions, generation), now);
    conditions.say(PROVISIONED, &report.provisioned);
    let mut verdicts = vec![&report.provisioned];
    if let Some(bootstrapped) = &report.bootstrapped {
        conditions.say(BOOTSTRAPPED, bootstrapped);
        verdicts.push(bootstrapped);
    } else if let Some(latched) = is_true(&before.conditions, BOOTSTRAPPED).then(Verdict::holds) {
        conditions.say(BOOTSTRAPPED, &latched);
    }
    if let Some(instance) = machine
        .instance
        .as_ref()
        .filter(|_| report.bootstrapped.is_some())
    {
        conditions.say(MIGRATABLE, &trouble::migratable(instance));
    }
    conditions.note("Paused", (false, "NotPaused"), "");
    let all = conditions.finish(&verdicts);
    let is_ready = report.is_ready && machine.object.spec.provider_id.is_some();
    let was = before
        .initialization
        .as_ref()
        .is_some_and(|i| i.provisioned);
    let status = KubevirtMachineStatus {
        ready: is_ready,
        initialization: (seen.dialect == Dialect::V1Beta2).then_some(Initialization {
            provisioned: was || is_ready,
        }),
        addresses: addresses(machine).unwrap_or(before.addresses),
        conditions: all,
        nodeupdated: report.is_linked || before.nodeupdated,
        failure_reason: report.failure.is_some().then(|| "UpdateError".to_owned()),
        failure_message: report.failure.clone(),
    };
    plan.machines.insert(machine.name().to_owned(), status);
}

/// Every address of a running machine, as Cluster API shows them; none while it is off.
fn addresses(machine: &Machine) -> Option<Vec<MachineAddress>> {
    let instance = machine
        .instance
        .as_ref()
        .filter(|instance| is_on(machine, instance))?;
    let address = |type_: &str, address: &str| MachineAddress {
        type_: type_.to_owned(),
        address: address.to_owned(),
    };
    let mut all = vec![address("Hostname", machine.name())];
    let interfaces = instance.status.iter().flat_map(|status| &status.interfaces);
    for ip in interfaces
        .filter_map(|i| i.ip_address.as_deref())
        .filter(|ip| !ip.is_empty())
    {
        all.push(address("InternalIP", ip));
        all.push(address("ExternalIP", ip));
    }
    all.push(address("InternalDNS", machine.name()));
    Some(all)
}
