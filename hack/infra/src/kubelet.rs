//! The stand-in for a host's kubelet.
//!
//! Pods of virtual machines become Running and ready as their probes say, Pods of the operator's
//! image and of others that are registered are really run, and Pods of any other image stay Pending
//! with the reason that a kubelet gives when an image cannot be pulled.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::data_centre::DataCentre;
use crate::hosts::Host;
use crate::informer::Change;
use crate::kubevirt::HANDLER_IMAGE;
use images::Images;
use view::{ContainerView, Phase, PodView};

pub mod container;
mod container_worker;
mod environment;
pub mod images;
mod launcher;
mod log_follow;
mod log_query;
mod pod_worker;
mod probe;
mod prober;
mod references;
mod restarts;
mod rights;
pub mod server;
mod view;
mod volumes;

/// How long to wait before a status is written again that the API server did not take.
const RETRY: Duration = Duration::from_millis(500);

/// The newest state of one Pod; the sender is dropped when the Pod is gone.
type PodFeed = watch::Receiver<Arc<Pod>>;

/// Runs the kubelet of `host` until it is dropped.
pub async fn run(host: Arc<Host>, centre: Arc<DataCentre>) {
    let mut feed = centre.pods.subscribe();
    let mut known: HashMap<String, watch::Sender<Arc<Pod>>> = HashMap::new();
    let mut workers = JoinSet::new();
    while let Some(change) = feed.recv().await {
        match change {
            Change::Deleted(pod) => {
                known.remove(&pod.uid().unwrap_or_default());
            }
            Change::Applied(pod) if is_on(&pod, &host.name) => {
                let uid = pod.uid().unwrap_or_default();
                if let Some(sender) = known.get(&uid) {
                    sender.send_replace(pod);
                } else {
                    let (sender, receiver) = watch::channel(pod.clone());
                    known.insert(uid, sender);
                    workers.spawn(keep(host.clone(), centre.clone(), receiver));
                }
            }
            Change::Applied(_) => {}
        }
        while workers.try_join_next().is_some() {}
    }
}

/// What the kubelet knows how to do with a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// A launcher: a virtual machine.
    Launcher,
    /// Programs of images that are there, or will be.
    Programs,
    /// A Pod that only has to be there.
    Idle,
    /// An image that nobody has.
    Unknown(String),
}

fn kind(pod: &Pod, known: &Images) -> Kind {
    if pod
        .labels()
        .get("kubevirt.io")
        .is_some_and(|label| label == "virt-launcher")
    {
        return Kind::Launcher;
    }
    let spec = pod.spec.as_ref();
    let all = spec.into_iter().flat_map(|spec| {
        spec.init_containers
            .iter()
            .flatten()
            .chain(&spec.containers)
    });
    let images: Vec<_> = all
        .map(|container| container.image.clone().unwrap_or_default())
        .collect();
    if images.iter().all(|image| image == HANDLER_IMAGE) {
        return Kind::Idle;
    }
    match images.iter().find(|image| !known.knows(image)) {
        Some(image) => Kind::Unknown(image.clone()),
        None => Kind::Programs,
    }
}

async fn keep(host: Arc<Host>, centre: Arc<DataCentre>, feed: PodFeed) {
    let pod = feed.borrow().clone();
    let mut desk = Desk::new(host, centre, feed);
    let kind = kind(&pod, &desk.centre.images.borrow());
    match kind {
        _ if desk.has_ended() => desk.bury().await,
        Kind::Launcher => launcher::run(desk).await,
        Kind::Programs => pod_worker::run(desk).await,
        Kind::Idle => {
            desk.set_phase(Phase::Running);
            desk.set_containers(&ContainerView {
                ready: true,
                ..ContainerView::running(now())
            });
            desk.hold().await;
        }
        Kind::Unknown(image) => {
            let message = format!(
                "Back-off pulling image \"{image}\": the local infrastructure has no registry and \
                 knows no such image"
            );
            desk.set_containers(&ContainerView::waiting("ImagePullBackOff", message));
            desk.hold().await;
        }
    }
}

/// Where one Pod is worked on: its newest state, and what the kubelet says about it.
struct Desk {
    host: Arc<Host>,
    centre: Arc<DataCentre>,
    feed: PodFeed,
    view: PodView,
    /// The Pod as it was after our last write: the watch may lag behind it.
    written: Option<Arc<Pod>>,
}

impl Desk {
    fn new(host: Arc<Host>, centre: Arc<DataCentre>, feed: PodFeed) -> Self {
        let pod = feed.borrow().clone();
        let spec = pod.spec.clone().unwrap_or_default();
        let waiting = ContainerView::waiting("ContainerCreating", "");
        let view = PodView {
            phase: Phase::Pending,
            address: spec.host_network.unwrap_or(false).then_some(host.address),
            host_address: host.address,
            since: now(),
            containers: vec![waiting.clone(); spec.containers.len()],
            inits: vec![
                waiting;
                spec.init_containers
                    .map_or(0, |containers| containers.len())
            ],
        };
        Self {
            host,
            centre,
            feed,
            view,
            written: None,
        }
    }

    fn pod(&self) -> Arc<Pod> {
        let watched = self.feed.borrow().clone();
        match &self.written {
            Some(written) if version(written) > version(&watched) => written.clone(),
            _ => watched,
        }
    }

    fn phase_word(&self) -> String {
        self.pod()
            .status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default()
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase_word().as_str(), "Succeeded" | "Failed")
    }

    fn is_terminating(&self) -> bool {
        self.pod().metadata.deletion_timestamp.is_some()
    }

    fn set_phase(&mut self, phase: Phase) {
        self.view.phase = phase;
    }

    /// Gives every container the same state.
    fn set_containers(&mut self, container: &ContainerView) {
        let all = self.view.containers.iter_mut().chain(&mut self.view.inits);
        all.for_each(|view| view.clone_from(container));
    }

    /// Writes the status if that changes anything; true when nothing is left to write.
    async fn report(&mut self) -> bool {
        let pod = self.pod();
        let status = view::status(&pod, &self.view, now());
        if !view::differs(&pod, &status) {
            return true;
        }
        let mut patch = json!({"metadata": {"uid": pod.uid()}, "status": status});
        replace_addresses(&mut patch);
        let written = self
            .api()
            .patch_status(
                &pod.name_any(),
                &PatchParams::default(),
                &Patch::Strategic(patch),
            )
            .await;
        match written {
            Ok(pod) => {
                self.written = Some(Arc::new(pod));
                true
            }
            // Gone, or another Pod by now: the feed will say so.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => true,
            Err(error) => {
                if matches!(&error, kube::Error::Api(status) if status.is_invalid()) {
                    tracing::error!(pod = pod.name_any(), %error, "status refused");
                }
                false
            }
        }
    }

    /// Writes the status, however long the API server is away; false when the Pod is gone.
    async fn report_surely(&mut self) -> bool {
        while !self.report().await {
            tokio::time::sleep(RETRY).await;
        }
        self.feed.has_changed().is_ok()
    }

    /// Keeps the status as it is until the Pod is deleted, then lets it go.
    async fn hold(mut self) {
        loop {
            let written = self.report().await;
            if self.is_terminating() {
                return self.release().await;
            }
            tokio::select! {
                changed = self.feed.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RETRY), if !written => {}
            }
        }
    }

    /// A Pod that has ended stays until someone deletes it.
    async fn bury(mut self) {
        while !self.is_terminating() {
            if self.feed.changed().await.is_err() {
                return self.free_address();
            }
        }
        self.release().await;
    }

    /// Removes the Pod from the API: nothing of it is left on the host.
    async fn release(self) {
        let pod = self.pod();
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        loop {
            match self.api().delete(&pod.name_any(), &parameters).await {
                Ok(_) => break,
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                    break;
                }
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
        self.free_address();
    }

    fn free_address(&self) {
        if let Some(address) = self
            .view
            .address
            .filter(|address| *address != self.host.address)
        {
            self.centre.network.release_ip(address);
        }
    }

    fn api(&self) -> Api<Pod> {
        let namespace = self.pod().namespace().unwrap_or_default();
        Api::namespaced(self.centre.clients.kubelet.clone(), &namespace)
    }
}

/// A strategic merge would keep the address that the Pod had before its host lost power.
fn replace_addresses(patch: &mut Value) {
    if let Some(addresses) = patch
        .pointer_mut("/status/podIPs")
        .and_then(Value::as_array_mut)
    {
        addresses.insert(0, json!({"$patch": "replace"}));
    }
}

/// How new a state is. Versions of one object are ordered, whatever else they are.
fn version(pod: &Pod) -> u64 {
    pod.resource_version()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

/// The time, to the second: finer parts do not survive the API, and an unchanged status would
/// look changed.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn is_on(pod: &Pod, host: &str) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(host)
}

#[cfg(test)]
mod tests {
    use super::{Images, Kind, kind};
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(labels: &serde_json::Value, images: &[&str]) -> Pod {
        let containers: Vec<_> = images
            .iter()
            .map(|image| json!({"name": "c", "image": image}))
            .collect();
        serde_json::from_value(
            json!({"metadata": {"labels": labels}, "spec": {"containers": containers}}),
        )
        .unwrap()
    }

    #[test]
    fn only_known_images_are_run() {
        let images = Images::default();
        let operator = "registry.local/guestcluster/operator:0.1.0";
        let found = kind(&pod(&json!({}), &[operator]), &images);
        assert_eq!(found, Kind::Programs);
        let other = "registry.local/guestcluster/operator-x:1";
        let found = kind(&pod(&json!({}), &[operator, other]), &images);
        assert_eq!(found, Kind::Unknown(other.into()));
    }

    #[test]
    fn a_launcher_is_known_by_its_label() {
        let labels = json!({"kubevirt.io": "virt-launcher"});
        let found = kind(&pod(&labels, &["anything"]), &Images::default());
        assert_eq!(found, Kind::Launcher);
    }
}
