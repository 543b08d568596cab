//! One machine of a Cluster, from its KubevirtMachine to a Node and back.

use guestcluster_foreign::kubevirt::{VirtualMachine, VirtualMachineInstance};
use guestcluster_planner::observed::{GuestNode, Probe};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::action::{Action, Owner, Plan, Target};
use super::condition::{Severity, Verdict, is_true};
use super::report::{BOOTSTRAPPED, Report, say};
use super::seen::{Dialect, Machine, Seen, UserData};
use super::{cluster, eviction, trouble, virtual_machine};
use crate::capi;

/// The longest name of a machine: it is the value of labels.
const NAME: usize = 63;
/// How soon a guest is looked at again that does not show a Node yet.
const LOOK: SignedDuration = SignedDuration::from_secs(2);

/// How long a virtual machine that was refused is left alone before it is tried again.
pub const REFUSED: SignedDuration = SignedDuration::from_secs(30);

/// Plans for one machine.
pub(super) fn plan(seen: &Seen, machine: &Machine, now: Timestamp, plan: &mut Plan) {
    let is_ours = machine
        .object
        .finalizers()
        .iter()
        .any(|f| f == capi::MACHINE_FINALIZER);
    if seen.is_paused() || machine.object.annotations().contains_key(capi::PAUSED) {
        pause(seen, machine, now, plan);
        return;
    }
    if machine.is_deleting() {
        if is_ours && !super::is_moved(&machine.object) {
            let stays = leave(machine, plan);
            if let Some(verdict) = stays {
                say(seen, machine, (&Report::off(verdict), now), plan);
            }
        }
        return;
    }
    if machine.owner.is_none() || seen.infra.is_none() {
        return;
    }
    if !is_ours {
        plan.actions.push(Action::AddFinalizer(Owner::Machine(
            machine.name().to_owned(),
        )));
    }
    let report = live(seen, machine, now, plan);
    say(seen, machine, (&report, now), plan);
}

/// The virtual machine goes, then its first-boot document, then our hold on the object. Until the
/// instance is gone the guest's Node may still be alive, and Cluster API must not take it for dead.
fn leave(machine: &Machine, plan: &mut Plan) -> Option<Verdict> {
    let waits = |message: String| Some(Verdict::fails("Deleting", Severity::Info, message));
    if let Some(vm) = machine.vm.as_ref().filter(|vm| is_of(machine, vm)) {
        if vm.metadata.deletion_timestamp.is_none() {
            plan.actions.push(Action::DeleteVm(Target::of(vm)));
        }
        return waits("the virtual machine shuts down".to_owned());
    }
    if machine.instance.is_some() && machine.vm.is_none() {
        return waits("the instance of the virtual machine shuts down".to_owned());
    }
    if let Some(secret) = &machine.user_data {
        plan.actions.push(Action::DeleteUserData {
            machine: machine.name().to_owned(),
            secret: user_data_target(machine, secret),
        });
    }
    plan.actions.push(Action::RemoveFinalizer(Owner::Machine(
        machine.name().to_owned(),
    )));
    None
}

fn pause(seen: &Seen, machine: &Machine, now: Timestamp, plan: &mut Plan) {
    if seen.dialect != Dialect::V1Beta2 {
        return;
    }
    let mut status = machine.object.status.clone().unwrap_or_default();
    let generation = machine.object.metadata.generation;
    status.conditions = cluster::paused(&status.conditions, generation, now);
    plan.machines.insert(machine.name().to_owned(), status);
}

/// A machine that is to be there.
fn live(seen: &Seen, machine: &Machine, now: Timestamp, plan: &mut Plan) -> Report {
    if let Err(verdict) = may_begin(seen, machine) {
        return Report::off(verdict);
    }
    let Some(vm) = &machine.vm else {
        return create(seen, machine, now, plan);
    };
    if !is_of(machine, vm) {
        let message = format!(
            "a virtual machine {} that is not this machine's is in namespace {}",
            machine.name(),
            machine.vm_namespace()
        );
        return Report::off(Verdict::fails("VMCreateFailed", Severity::Error, message));
    }
    if let Some(failure) = trouble::terminal(machine, vm) {
        let verdict = Verdict::fails("VMNotReady", Severity::Error, failure.clone());
        return Report {
            failure: Some(failure),
            ..Report::off(verdict)
        };
    }
    let Some(instance) = machine.instance.as_ref().filter(|i| is_on(machine, i)) else {
        return Report::off(trouble::why_off(machine, vm));
    };
    serve(seen, (machine, instance), now, plan)
}

/// Whether all is there that a machine needs before it is made.
fn may_begin(seen: &Seen, machine: &Machine) -> Result<(), Verdict> {
    let info = |reason: &str, message: &str| Err(Verdict::fails(reason, Severity::Info, message));
    let error = |message: String| Err(Verdict::fails("VMCreateFailed", Severity::Error, message));
    if machine.vm.is_some() {
        return Ok(());
    }
    if machine.name().len() > NAME {
        return error(format!(
            "the name {} has more than {NAME} characters, which a virtual machine's labels cannot \
             hold: choose a shorter name for its MachineDeployment or control plane",
            machine.name()
        ));
    }
    if machine.object.spec.infra_cluster_secret_ref.is_some() {
        return error(
            "spec.infraClusterSecretRef is not served: machines run in the cluster of this operator"
                .to_owned(),
        );
    }
    let started = seen
        .cluster
        .as_ref()
        .and_then(|cluster| cluster.status.as_ref());
    let started = started
        .map(|status| status.initialization.clone())
        .unwrap_or_default();
    if !started.infrastructure_provisioned {
        return info(
            "WaitingForClusterInfrastructure",
            "the Cluster has no endpoint yet",
        );
    }
    if bootstrap(machine).is_none() {
        return if machine.is_control_plane() || started.control_plane_initialized {
            info(
                "WaitingForBootstrapData",
                "the first-boot document is not there yet",
            )
        } else {
            info(
                "WaitingForControlPlaneAvailable",
                "the control plane does not answer yet",
            )
        };
    }
    Ok(())
}

/// A machine that was there once has lost its disks with its virtual machine, and its token is spent:
/// another one of that name would never join.
fn create(seen: &Seen, machine: &Machine, now: Timestamp, plan: &mut Plan) -> Report {
    if machine.object.spec.provider_id.is_some() {
        let why = "its virtual machine was deleted, and its disks with it: delete the Machine, or let a \
                   MachineHealthCheck do so";
        let verdict = Verdict::fails("VMNotReady", Severity::Error, why);
        return Report {
            failure: Some(why.to_owned()),
            ..Report::off(verdict)
        };
    }
    if machine.instance.is_some() {
        let why = "an instance of that name is still shutting down";
        return Report::off(Verdict::fails("VMNotReady", Severity::Info, why));
    }
    let Some(bootstrap) = bootstrap(machine) else {
        return Report::off(Verdict::holds());
    };
    if let Some(refused) = &machine.refused {
        plan.look_again_at(now + REFUSED);
        if !refused.is_due {
            let why = refused.why.clone();
            return Report::off(Verdict::fails("VMCreateFailed", Severity::Error, why));
        }
    }
    let secret = capi::user_data_secret(bootstrap);
    plan.actions.push(Action::WriteUserData {
        machine: machine.name().to_owned(),
        namespace: machine.vm_namespace().to_owned(),
        bootstrap: bootstrap.to_owned(),
        ssh_keys: ssh_keys(seen),
    });
    plan.actions.push(Action::CreateVm {
        machine: machine.name().to_owned(),
        body: virtual_machine::render(seen, machine, &secret),
    });
    Report::off(match &machine.refused {
        Some(refused) => Verdict::fails("VMCreateFailed", Severity::Error, refused.why.clone()),
        None => Verdict::fails(
            "VMNotReady",
            Severity::Info,
            "the virtual machine is being made",
        ),
    })
}

/// A machine whose instance runs: it boots, joins, and serves.
fn serve(
    seen: &Seen,
    (machine, instance): (&Machine, &VirtualMachineInstance),
    now: Timestamp,
    plan: &mut Plan,
) -> Report {
    let id = capi::provider_id(machine.name());
    let node = match &seen.guest {
        Probe::Known(guest) => guest.nodes.get(machine.name()),
        Probe::Unreachable(_) | Probe::NotAsked => None,
    };
    let bootstrapped = bootstrapped(seen, (machine, node), now, plan);
    let is_up = bootstrapped.fault.is_none();
    if is_up && machine.object.spec.provider_id.is_none() {
        let machine = machine.name().to_owned();
        plan.actions.push(Action::SetProviderId {
            machine,
            id: id.clone(),
        });
    }
    let (is_linked, conflict) = link(seen, (machine, node), &id, (now, plan));
    if is_linked {
        scrub(machine, plan);
    }
    let failure = eviction::plan(seen, (machine, instance, node), now, plan);
    let provisioned = match (&failure, conflict) {
        (Some(why), _) => Verdict::fails("VMNotReady", Severity::Error, why.clone()),
        (None, Some(why)) => Verdict::fails("VMNotReady", Severity::Error, why),
        (None, None) => Verdict::holds(),
    };
    // After a start of its own the guest is asked once whether its Node is still cordoned.
    let is_heard = was_ready(machine) || !matches!(seen.guest, Probe::Unreachable(_));
    Report {
        is_ready: is_up && is_heard && runs(instance) && provisioned.fault.is_none(),
        provisioned,
        bootstrapped: Some(bootstrapped),
        is_linked,
        failure,
    }
}

/// A machine has booted when its guest shows its Node. Where there is no kubeconfig to ask with, or the
/// user wants no check, running is all that can be told.
fn bootstrapped(
    seen: &Seen,
    (machine, node): (&Machine, Option<&GuestNode>),
    now: Timestamp,
    plan: &mut Plan,
) -> Verdict {
    let check = machine
        .object
        .spec
        .virtual_machine_bootstrap_check
        .check_strategy
        .as_deref();
    let before = machine
        .object
        .status
        .as_ref()
        .map(|s| s.conditions.as_slice());
    let was = is_true(before.unwrap_or_default(), BOOTSTRAPPED);
    if was || node.is_some() || check == Some("none") {
        return Verdict::holds();
    }
    let why = match &seen.guest {
        Probe::Known(_) => "the guest shows no Node of that name yet".to_owned(),
        Probe::Unreachable(why) => format!("the guest does not answer yet: {why}"),
        Probe::NotAsked => return Verdict::holds(),
    };
    plan.look_again_at(now + LOOK);
    Verdict::fails(
        "BootstrapFailed",
        Severity::Info,
        format!("VM not bootstrapped yet: {why}"),
    )
}

/// Whether the Node carries the machine's id; and why it never will.
fn link(
    seen: &Seen,
    (machine, node): (&Machine, Option<&GuestNode>),
    id: &str,
    (now, plan): (Timestamp, &mut Plan),
) -> (bool, Option<String>) {
    let was = machine
        .object
        .status
        .as_ref()
        .is_some_and(|status| status.nodeupdated);
    let Some(node) = node else {
        if !was && !matches!(seen.guest, Probe::NotAsked) {
            plan.look_again_at(now + LOOK);
        }
        return (was, None);
    };
    match node.provider_id.as_deref() {
        Some(carried) if carried == id => (true, None),
        Some(carried) => {
            let why = format!(
                "the Node {} carries the provider id {carried} instead of {id}, which cannot be changed: \
                 keep other cloud providers from setting it",
                machine.name()
            );
            (false, Some(why))
        }
        None => {
            plan.actions.push(Action::SetNodeProviderId {
                node: machine.name().to_owned(),
                uid: node.uid.clone(),
                id: id.to_owned(),
            });
            (false, None)
        }
    }
}

/// Keys and tokens have done their work once Cluster API knows the Node.
fn scrub(machine: &Machine, plan: &mut Plan) {
    let is_known = machine.owner.as_ref().and_then(|o| o.status.as_ref());
    let is_known = is_known.is_some_and(|status| status.node_ref.is_some());
    let Some(secret) = machine
        .user_data
        .as_ref()
        .filter(|s| is_known && !s.is_scrubbed)
    else {
        return;
    };
    plan.actions.push(Action::ScrubUserData {
        machine: machine.name().to_owned(),
        secret: user_data_target(machine, secret),
    });
}

/// What was preset by a person; no key is made, and nobody may log in, unless asked for.
fn ssh_keys(seen: &Seen) -> Option<String> {
    let infra = seen.infra.as_ref()?;
    infra
        .spec
        .ssh_keys
        .data_secret_name
        .clone()
        .filter(|name| !name.is_empty())
}

/// Whether it was said to be ready.
pub(super) fn was_ready(machine: &Machine) -> bool {
    machine
        .object
        .status
        .as_ref()
        .is_some_and(|status| status.ready)
}

fn bootstrap(machine: &Machine) -> Option<&str> {
    let owner = machine.owner.as_ref()?;
    owner
        .spec
        .bootstrap
        .data_secret_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

fn user_data_target(machine: &Machine, secret: &UserData) -> Target {
    Target {
        namespace: machine.vm_namespace().to_owned(),
        name: secret.name.clone(),
        uid: secret.uid.clone(),
        resource_version: secret.resource_version.clone(),
    }
}

/// Whether a virtual machine says that it belongs to this KubevirtMachine.
fn is_of(machine: &Machine, vm: &VirtualMachine) -> bool {
    let namespace = machine.object.metadata.namespace.as_deref();
    vm.labels().get(capi::MACHINE_NAME).map(String::as_str) == Some(machine.name())
        && vm.labels().get(capi::MACHINE_NAMESPACE).map(String::as_str) == namespace
}

/// It can boot. A control-plane machine is not ready before its API server listens, and that it never
/// will unless it is helped to boot.
pub(super) fn is_on(machine: &Machine, instance: &VirtualMachineInstance) -> bool {
    let phase = instance
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let boots = machine.is_control_plane() && phase == Some("Running");
    runs(instance) || boots && address(instance).is_some()
}

fn address(instance: &VirtualMachineInstance) -> Option<&str> {
    let first = instance.status.as_ref()?.interfaces.first()?;
    first
        .ip_address
        .as_deref()
        .filter(|address| !address.is_empty())
}

/// It runs, is ready and has an address.
pub(super) fn runs(instance: &VirtualMachineInstance) -> bool {
    let mut conditions = instance.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
    ready && address(instance).is_some()
}
