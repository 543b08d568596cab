//! A launcher Pod: the shell of a virtual machine, which lives as long as its guest.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Secret};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::probe::ProbePlan;
use super::prober::{self, ProbeKind, Verdict};
use super::view::{ContainerView, Doing, Phase};
use super::{Desk, RETRY, now};
use crate::data_centre::DataCentre;
use crate::machine::PowerState;

/// The time after which a launcher ends although its instance is not final yet.
const HANDLER_LIMIT: Duration = Duration::from_secs(5);
/// The exit code of a container that was killed.
const KILLED: i32 = 137;

/// Runs a launcher Pod to its end.
pub(super) async fn run(mut desk: Desk) {
    let instance = instance_uid(&desk);
    if desk.phase_word() == "Running" {
        // It was started before this kubelet: the host lost power, and launchers do not restart.
        return end(desk, PowerState::Killed).await;
    }
    if !wait_for_secrets(&mut desk).await {
        return desk.release().await;
    }
    match desk.centre.network.allocate_ip() {
        Ok(address) => desk.view.address = Some(address),
        Err(error) => {
            tracing::error!("{error:#}");
            return desk.hold().await;
        }
    }
    start_containers(&mut desk);
    let ended = live(&mut desk, &instance).await;
    // A guest that has moved, or was to come, is in another Pod, and none of this one's business.
    if desk.has_guest(&instance) {
        if ended.is_some() {
            wait_for_handler(&desk, &instance).await;
        }
        // However the Pod went, the machine must not outlive it.
        desk.centre.guests.remove(&instance).await;
    }
    match ended {
        Some(ending) => end(desk, ending).await,
        None => desk.free_address(),
    }
}

/// Follows probes and the Pod until the guest has ended or moved; none when the Pod is gone.
async fn live(desk: &mut Desk, instance: &str) -> Option<PowerState> {
    let (verdicts, mut turned) = mpsc::unbounded_channel();
    let mut probes = JoinSet::new();
    start_probes(desk, &mut probes, &verdicts);
    let guests = desk.centre.guests.clone();
    let ended = guests.ended(instance);
    tokio::pin!(ended);
    let moved = moved(
        desk.centre.clone(),
        instance.to_owned(),
        desk.pod().name_any(),
    );
    tokio::pin!(moved);
    loop {
        let written = desk.report().await;
        if desk.is_terminating() {
            return Some(stop(desk, instance).await);
        }
        tokio::select! {
            changed = desk.feed.changed() => if changed.is_err() { return None },
            ending = &mut ended => return Some(ending),
            ending = &mut moved => return Some(ending),
            Some(verdict) = turned.recv() => {
                if verdict.kind == ProbeKind::Liveness && !verdict.passing {
                    // Before a guest has moved here there is nobody to be alive.
                    if desk.has_guest(instance) {
                        return Some(PowerState::Killed);
                    }
                    continue;
                }
                if let Some(container) = desk.view.containers.get_mut(verdict.container) {
                    container.ready = verdict.passing;
                }
            }
            () = tokio::time::sleep(RETRY), if !written => {}
        }
    }
}

/// Waits until a migration is over that this Pod was the source or the target of; returns how the Pod ends. One that
/// the guest moved into goes on.
async fn moved(centre: Arc<DataCentre>, instance: String, pod: String) -> PowerState {
    let mut changes = centre.instances.subscribe();
    loop {
        let instance = centre.instances.get(&instance);
        if let Some(ending) = instance.and_then(|instance| after_migration(&instance.data, &pod)) {
            return ending;
        }
        drop(changes.recv().await);
    }
}

/// How the Pod ends after the last migration of its instance, if it does.
fn after_migration(instance: &Value, pod: &str) -> Option<PowerState> {
    let state = instance.pointer("/status/migrationState")?;
    if state["completed"] != true {
        return None;
    }
    let has_failed = state["failed"] == true;
    match has_failed {
        false if state["sourcePod"] == pod => Some(PowerState::PowerOff),
        true if state["targetPod"] == pod => Some(PowerState::Killed),
        _ => None,
    }
}

/// The Pod is being deleted: the guest gets the Pod's grace to power off.
async fn stop(desk: &Desk, instance: &str) -> PowerState {
    if !desk.has_guest(instance) {
        return PowerState::PowerOff;
    }
    let seconds = desk
        .pod()
        .metadata
        .deletion_grace_period_seconds
        .unwrap_or(30);
    let grace = Duration::from_secs(seconds.try_into().unwrap_or(0));
    desk.centre.guests.stop(instance, grace).await
}

fn start_containers(desk: &mut Desk) {
    let now = now();
    let silent = desk
        .centre
        .is_silent(&desk.pod().namespace().unwrap_or_default());
    let pod = desk.pod();
    let spec = pod.spec.clone().unwrap_or_default();
    desk.set_phase(Phase::Running);
    desk.view.containers = spec
        .containers
        .iter()
        .map(|container| ContainerView {
            ready: silent || container.readiness_probe.is_none(),
            ..ContainerView::running(now)
        })
        .collect();
    // Init containers that restart always are sidecars: they run beside the others.
    desk.view.inits = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| ContainerView {
            ready: true,
            doing: if container.restart_policy.as_deref() == Some("Always") {
                Doing::Running(now)
            } else {
                Doing::Ended {
                    code: 0,
                    started: now,
                    finished: now,
                }
            },
            ..ContainerView::running(now)
        })
        .collect();
}

fn start_probes(desk: &Desk, probes: &mut JoinSet<()>, out: &mpsc::UnboundedSender<Verdict>) {
    let pod = desk.pod();
    let Some(address) = desk.view.address else {
        return;
    };
    let namespace = pod.namespace().unwrap_or_default();
    if desk.centre.is_silent(&namespace) {
        return;
    }
    // KubeVirt adds ten seconds for libvirt's start, which nobody waits for on paper.
    let at_once = desk.centre.on_paper(&namespace);
    let containers = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .enumerate();
    for (index, container) in containers {
        for (kind, mut plan) in plans(container) {
            if at_once {
                plan.initial_delay = Duration::ZERO;
            }
            probes.spawn(prober::watch(plan, address, (index, kind), out.clone()));
        }
    }
}

/// KubeVirt gives launchers readiness and liveness probes only.
fn plans(container: &Container) -> Vec<(ProbeKind, ProbePlan)> {
    let read = |kind, probe: &Option<_>| {
        probe
            .as_ref()
            .map(|probe| (kind, ProbePlan::read(probe, container)))
    };
    [
        read(ProbeKind::Readiness, &container.readiness_probe),
        read(ProbeKind::Liveness, &container.liveness_probe),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Waits until every Secret that the Pod mounts is there; false when the Pod is deleted meanwhile.
async fn wait_for_secrets(desk: &mut Desk) -> bool {
    let pod = desk.pod();
    let namespace = pod.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(desk.centre.clients.kubelet.clone(), &namespace);
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let mut names: Vec<_> = volumes
        .filter_map(|volume| volume.secret.as_ref())
        .filter(|secret| !secret.optional.unwrap_or(false))
        .filter_map(|secret| secret.secret_name.clone())
        .collect();
    while let Some(name) = names.last() {
        if desk.is_terminating() || desk.feed.has_changed().is_err() {
            return false;
        }
        match secrets.get_metadata_opt(name).await {
            Ok(Some(_)) => drop(names.pop()),
            Ok(None) => {
                let message = format!("secret \"{name}\" not found");
                desk.set_containers(&ContainerView::waiting("ContainerCreating", message));
                desk.report().await;
                // A kubelet looks again after some time only: it watches nothing that is missing.
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
    !desk.is_terminating()
}

/// The launcher ends after its handler has told how the guest ended: a Pod that vanished from
/// under a running instance would count as a failure.
async fn wait_for_handler(desk: &Desk, instance: &str) {
    let (instances, uid) = (desk.centre.instances.clone(), instance.to_owned());
    let mut changes = instances.subscribe();
    let settled = async move {
        let runs = |instance: &DynamicObject| {
            instance
                .data
                .pointer("/status/phase")
                .is_some_and(|phase| phase == "Running")
        };
        while instances.get(&uid).is_some_and(|instance| runs(&instance)) {
            drop(changes.recv().await);
        }
    };
    // The limit only keeps a Pod from staying for ever when its handler cannot write.
    let _ = tokio::time::timeout(HANDLER_LIMIT, settled).await;
}

/// Ends the Pod as its guest ended, and waits for its deletion.
async fn end(mut desk: Desk, ending: PowerState) {
    let code = if ending == PowerState::Killed {
        KILLED
    } else {
        0
    };
    let now = now();
    let since = desk.view.since;
    desk.set_phase(if code == 0 {
        Phase::Succeeded
    } else {
        Phase::Failed
    });
    desk.set_containers(&ContainerView {
        doing: Doing::Ended {
            code,
            started: since,
            finished: now,
        },
        ready: false,
        ..ContainerView::running(now)
    });
    if desk.report_surely().await {
        desk.bury().await;
    } else {
        desk.free_address();
    }
}

impl Desk {
    /// Whether the guest of the instance is in this Pod.
    fn has_guest(&self, instance: &str) -> bool {
        self.centre.guests.is_behind(instance, self.view.address)
    }
}

/// The uid of the instance that the launcher belongs to.
fn instance_uid(desk: &Desk) -> String {
    desk.pod()
        .labels()
        .get("kubevirt.io/created-by")
        .cloned()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::after_migration;
    use crate::machine::PowerState;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case::the_guest_left("old", json!({"completed": true}), Some(PowerState::PowerOff))]
    #[case::the_guest_came("new", json!({"completed": true}), None)]
    #[case::the_guest_stayed("old", json!({"completed": true, "failed": true}), None)]
    #[case::the_guest_never_came(
        "new", json!({"completed": true, "failed": true}), Some(PowerState::Killed))]
    #[case::not_over("new", json!({}), None)]
    #[case::a_migration_of_others("older", json!({"completed": true}), None)]
    fn a_pod_ends_when_a_migration_leaves_it_without_its_guest(
        #[case] pod: &str,
        #[case] mut state: Value,
        #[case] expected: Option<PowerState>,
    ) {
        state["sourcePod"] = json!("old");
        state["targetPod"] = json!("new");
        let instance = json!({"status": {"migrationState": state}});
        assert_eq!(after_migration(&instance, pod), expected);
    }
}
