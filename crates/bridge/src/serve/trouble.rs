//! Why a machine is off, and when it is beyond help.

use guestcluster_foreign::core::LauncherPod;
use guestcluster_foreign::kubevirt::{VirtualMachine, VirtualMachineInstance, VmCondition};
use kube::ResourceExt;

use super::condition::{Severity, Verdict};
use super::seen::Machine;
use crate::capi;

/// Why a machine will not come back by itself, if so: a person declared it lost, or its run strategy
/// starts it no more.
pub(super) fn terminal(machine: &Machine, vm: &VirtualMachine) -> Option<String> {
    let instance = machine.instance.as_ref()?;
    let declared = vm
        .labels()
        .get(capi::TERMINAL)
        .or_else(|| instance.labels().get(capi::TERMINAL));
    if let Some(why) = declared {
        return Some(format!("the virtual machine is marked as lost: {why}"));
    }
    let phase = instance
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let strategy = vm.spec.run_strategy.as_deref();
    let is_over = match (strategy, phase) {
        (Some("Halted" | "Once"), Some("Succeeded" | "Failed")) => true,
        (Some("RerunOnFailure"), Some(phase)) => phase == "Succeeded",
        _ => false,
    };
    is_over.then(|| {
        format!(
            "the virtual machine has ended ({}), and its runStrategy {} does not start it again",
            phase.unwrap_or_default(),
            strategy.unwrap_or_default()
        )
    })
}

/// Why a virtual machine does not run, as KubeVirt, CDI and the scheduler tell it.
pub(super) fn why_off(machine: &Machine, vm: &VirtualMachine) -> Verdict {
    if let Some(why) = machine.launcher.as_ref().and_then(unschedulable) {
        return Verdict::fails("Unschedulable", Severity::Warning, why);
    }
    let status = vm.status.clone().unwrap_or_default();
    let word = status
        .printable_status
        .as_deref()
        .unwrap_or("not seen by KubeVirt yet");
    let detail = status.conditions.iter().find_map(complaint);
    let message = |what: &str| match &detail {
        Some(detail) => format!("{what}: {detail}"),
        None => what.to_owned(),
    };
    let (reason, severity, what) = match word {
        "Provisioning" => ("DVNotReady", Severity::Info, "its disks are being filled"),
        "WaitingForVolumeBinding" => (
            "DVPending",
            Severity::Info,
            "its disks wait for their volumes",
        ),
        "DataVolumeError" => ("DVFailed", Severity::Error, "a disk cannot be filled"),
        "ErrImagePull" | "ImagePullBackOff" => (
            "VMNotReady",
            Severity::Error,
            "an image of the machine cannot be fetched",
        ),
        "ErrorUnschedulable" => ("Unschedulable", Severity::Warning, "no host takes it"),
        "Stopped" => ("VMNotReady", Severity::Warning, "somebody has stopped it"),
        other => ("VMNotReady", Severity::Info, other),
    };
    Verdict::fails(reason, severity, message(what))
}

/// What KubeVirt complains of, in its own words.
fn complaint(condition: &VmCondition) -> Option<String> {
    let is_bad = match condition.type_.as_str() {
        "Failure" => condition.status == "True",
        "Ready" | "DataVolumesReady" | "Synchronized" => condition.status == "False",
        _ => false,
    };
    condition
        .message
        .clone()
        .filter(|message| is_bad && !message.is_empty())
}

fn unschedulable(pod: &LauncherPod) -> Option<String> {
    let mut conditions = pod.status.conditions.iter();
    let scheduled = conditions.find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    scheduled.message.clone()
}

/// Whether KubeVirt could move the machine while it runs, in its own words.
pub(super) fn migratable(instance: &VirtualMachineInstance) -> Verdict {
    let conditions = instance.status.iter().flat_map(|status| &status.conditions);
    let told = conditions.into_iter().find(|c| c.type_ == "LiveMigratable");
    match told {
        Some(told) if told.status == "True" => Verdict::holds(),
        Some(told) => Verdict::fails(
            told.reason.as_deref().unwrap_or("NotLiveMigratable"),
            Severity::Info,
            told.message.clone().unwrap_or_default(),
        ),
        None => Verdict::fails("NotKnown", Severity::Info, "KubeVirt has not told yet"),
    }
}
