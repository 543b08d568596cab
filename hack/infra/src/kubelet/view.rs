//! The status of a Pod as a kubelet writes it, from what it knows about the containers.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::cache::hexadecimal;

/// What a container is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    /// It does not run, for this reason and with these words.
    Waiting(&'static str, String),
    /// It runs since then.
    Running(Timestamp),
    /// It ended with this code; start and end.
    Ended {
        /// The exit code.
        code: i32,
        /// When it was started.
        started: Timestamp,
        /// When it ended.
        finished: Timestamp,
    },
}

/// One container as the kubelet knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerView {
    /// What it is doing.
    pub doing: Doing,
    /// How it ended the last time, if it was started again.
    pub last: Option<Doing>,
    /// Its startup probe has passed, or it has none.
    pub started: bool,
    /// Its readiness probe passes, or it has none.
    pub ready: bool,
    /// How often it was started again.
    pub restarts: i32,
}

impl ContainerView {
    /// A container that waits.
    pub fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            doing: Doing::Waiting(reason, message.into()),
            last: None,
            started: false,
            ready: false,
            restarts: 0,
        }
    }

    /// Whether it was started at least once.
    fn has_run(&self) -> bool {
        self.restarts > 0 || !matches!(self.doing, Doing::Waiting(..))
    }

    /// A container that runs since `now`, not yet probed.
    pub fn running(now: Timestamp) -> Self {
        Self {
            doing: Doing::Running(now),
            last: None,
            started: true,
            ready: false,
            restarts: 0,
        }
    }
}

/// The phase of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have been started.
    Pending,
    /// Bound, and a container runs or will be started again.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
}

impl Phase {
    /// The word in the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// A Pod as the kubelet knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Its phase.
    pub phase: Phase,
    /// Its address, once it has one.
    pub address: Option<Ipv4Addr>,
    /// The address of its host.
    pub host_address: Ipv4Addr,
    /// When the kubelet took it on.
    pub since: Timestamp,
    /// The containers, in the order of the spec.
    pub containers: Vec<ContainerView>,
    /// The init containers, in the order of the spec.
    pub inits: Vec<ContainerView>,
}

/// The status that the kubelet writes for `pod`.
///
/// Conditions keep their transition time while their status stays, so that an unchanged view gives
/// an unchanged status.
pub fn status(pod: &Pod, view: &PodView, now: Timestamp) -> PodStatus {
    let spec = pod.spec.clone().unwrap_or_default();
    let address = view.address.map(|address| address.to_string());
    PodStatus {
        phase: Some(view.phase.word().to_owned()),
        conditions: Some(conditions(pod, view, now)),
        host_ip: Some(view.host_address.to_string()),
        host_ips: Some(vec![HostIP {
            ip: view.host_address.to_string(),
        }]),
        pod_ips: address.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip: address,
        start_time: Some(Time(view.since)),
        container_statuses: Some(statuses(&spec.containers, &view.containers)),
        init_container_statuses: spec
            .init_containers
            .map(|containers| statuses(&containers, &view.inits)),
        ..PodStatus::default()
    }
}

/// Whether writing `wanted` would change anything in `pod`.
pub fn differs(pod: &Pod, wanted: &PodStatus) -> bool {
    let Some(current) = &pod.status else {
        return true;
    };
    let same = current.phase == wanted.phase
        && current.pod_ip == wanted.pod_ip
        && current.container_statuses == wanted.container_statuses
        && current.init_container_statuses.clone().unwrap_or_default()
            == wanted.init_container_statuses.clone().unwrap_or_default()
        && wanted.conditions.iter().flatten().all(|condition| {
            current
                .conditions
                .iter()
                .flatten()
                .any(|old| old == condition)
        });
    !same
}

fn conditions(pod: &Pod, view: &PodView, now: Timestamp) -> Vec<PodCondition> {
    let old = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let is_true = |kind: &str| old.iter().any(|c| c.type_ == kind && c.status == "True");
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.readiness_gates.clone())
        .unwrap_or_default();
    let gates_open = gates.iter().all(|gate| is_true(&gate.condition_type));
    let ended = matches!(view.phase, Phase::Succeeded | Phase::Failed);
    let containers_ready = !ended
        && view.phase == Phase::Running
        && view.containers.iter().all(|container| container.ready);
    let initialized = view.phase != Phase::Pending || view.inits.is_empty();
    let why_not = match (ended, containers_ready) {
        (true, _) => Some("PodCompleted"),
        (false, false) => Some("ContainersNotReady"),
        (false, true) => None,
    };
    let ready = containers_ready && gates_open;
    let facts = [
        (
            "PodReadyToStartContainers",
            view.address.is_some() && !ended,
            None,
        ),
        (
            "Initialized",
            initialized,
            (!initialized).then_some("ContainersNotInitialized"),
        ),
        ("ContainersReady", containers_ready, why_not),
        (
            "Ready",
            ready,
            why_not.or((!ready).then_some("ReadinessGatesNotReady")),
        ),
    ];
    facts
        .into_iter()
        .map(|(kind, truth, reason)| {
            let status = if truth { "True" } else { "False" };
            let kept = old
                .iter()
                .find(|c| c.type_ == kind && c.status == status)
                .and_then(|c| c.last_transition_time.clone());
            PodCondition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.map(str::to_owned),
                last_transition_time: Some(kept.unwrap_or(Time(now))),
                ..PodCondition::default()
            }
        })
        .collect()
}

fn statuses(containers: &[Container], views: &[ContainerView]) -> Vec<ContainerStatus> {
    containers
        .iter()
        .zip(views)
        .map(|(container, view)| {
            let image = container.image.clone().unwrap_or_default();
            ContainerStatus {
                name: container.name.clone(),
                image_id: if view.has_run() {
                    image_id(&image)
                } else {
                    String::new()
                },
                container_id: view
                    .has_run()
                    .then(|| format!("stand-in://{}", container.name)),
                image,
                ready: view.ready,
                started: Some(view.started && matches!(view.doing, Doing::Running(_))),
                restart_count: view.restarts,
                state: Some(state(&view.doing)),
                last_state: view.last.as_ref().map(state),
                ..ContainerStatus::default()
            }
        })
        .collect()
}

fn state(doing: &Doing) -> ContainerState {
    match doing {
        Doing::Waiting(reason, message) => ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some((*reason).to_owned()),
                message: (!message.is_empty()).then(|| message.clone()),
            }),
            ..ContainerState::default()
        },
        Doing::Running(since) => ContainerState {
            running: Some(ContainerStateRunning {
                started_at: Some(Time(*since)),
            }),
            ..ContainerState::default()
        },
        Doing::Ended {
            code,
            started,
            finished,
        } => ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: *code,
                reason: Some(if *code == 0 { "Completed" } else { "Error" }.to_owned()),
                started_at: Some(Time(*started)),
                finished_at: Some(Time(*finished)),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        },
    }
}

/// A digest for an image that nobody pulled: KubeVirt reads one of every container disk.
fn image_id(image: &str) -> String {
    if image.contains("@sha256:") {
        return image.to_owned();
    }
    let repository = image
        .rsplit_once(':')
        .map_or(image, |(repository, _)| repository);
    let digest = Sha256::digest(image.as_bytes());
    format!("{repository}@sha256:{}", hexadecimal(&digest))
}

#[cfg(test)]
mod tests {
    use super::{ContainerView, Phase, PodView, differs, status};
    use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodReadinessGate, PodSpec};
    use k8s_openapi::jiff::Timestamp;
    use std::net::Ipv4Addr;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn pod() -> Pod {
        let spec = PodSpec {
            containers: vec![Container {
                name: "compute".into(),
                ..Container::default()
            }],
            readiness_gates: Some(vec![PodReadinessGate {
                condition_type: "gate".into(),
            }]),
            ..PodSpec::default()
        };
        Pod {
            spec: Some(spec),
            ..Pod::default()
        }
    }

    fn view(ready: bool) -> PodView {
        PodView {
            phase: Phase::Running,
            address: Some(Ipv4Addr::new(10, 244, 0, 10)),
            host_address: Ipv4Addr::new(10, 78, 0, 1),
            since: NOW,
            containers: vec![ContainerView {
                ready,
                ..ContainerView::running(NOW)
            }],
            inits: vec![],
        }
    }

    fn condition(pod: &Pod, view: &PodView, kind: &str) -> (String, Option<String>) {
        let status = status(pod, view, NOW);
        let found = status
            .conditions
            .unwrap()
            .into_iter()
            .find(|c| c.type_ == kind)
            .unwrap();
        (found.status, found.reason)
    }

    #[test]
    fn a_pod_is_ready_once_its_containers_are_and_its_gates_are_open() {
        let mut pod = pod();
        assert_eq!(
            condition(&pod, &view(false), "Ready").1.as_deref(),
            Some("ContainersNotReady")
        );
        assert_eq!(
            condition(&pod, &view(true), "Ready").1.as_deref(),
            Some("ReadinessGatesNotReady")
        );
        let gate = PodCondition {
            type_: "gate".into(),
            status: "True".into(),
            ..Default::default()
        };
        pod.status.get_or_insert_default().conditions = Some(vec![gate]);
        assert_eq!(condition(&pod, &view(true), "Ready"), ("True".into(), None));
    }

    #[test]
    fn an_unchanged_view_is_not_written_again() {
        let mut pod = pod();
        let first = status(&pod, &view(true), NOW);
        assert!(differs(&pod, &first));
        pod.status = Some(first);
        let later = NOW + k8s_openapi::jiff::SignedDuration::from_secs(5);
        assert!(!differs(&pod, &status(&pod, &view(true), later)));
        assert!(differs(&pod, &status(&pod, &view(false), later)));
    }
}
