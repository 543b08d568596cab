//! The stand-in for a host's virt-handler: takes scheduled instances to Running by booting a
//! machine for each, and tells how it ended.
//!
//! It writes as KubeVirt's own virt-handler, with exactly that account's rights: it may list,
//! watch, update and patch instances, but not get one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::data_centre::{DataCentre, instance_resource};
use crate::guests::Order;
use crate::hosts::Host;
use crate::informer::Change;
use crate::machine::{PowerState, imported_image};
use crate::node_image::NodeImage;

mod migratable;
mod migration;
mod mover;
mod plan;
mod status;

/// How long to wait before something is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long to wait before a boot that failed is tried again.
const BOOT_RETRY: Duration = Duration::from_secs(2);
/// KubeVirt's default time for a guest to power off.
const DEFAULT_GRACE: u64 = 30;

type InstanceFeed = watch::Receiver<Arc<DynamicObject>>;

/// Runs the virt-handler of `host` until it is dropped.
pub async fn run(host: Arc<Host>, centre: Arc<DataCentre>) {
    tokio::join!(
        mover::run(host.clone(), centre.clone()),
        keep_all(host, centre)
    );
}

/// Keeps a keeper for every instance on the host.
async fn keep_all(host: Arc<Host>, centre: Arc<DataCentre>) {
    let is_here = |instance: &DynamicObject| node(instance) == Some(&host.name);
    each(&centre, is_here, |feed| {
        let (host, centre) = (host.clone(), centre.clone());
        Keeper { host, centre, feed }.keep()
    })
    .await;
}

/// Gives every instance a worker for as long as it `concerns` this host.
async fn each<F>(
    centre: &DataCentre,
    concerns: impl Fn(&DynamicObject) -> bool,
    work: impl Fn(InstanceFeed) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut feed = centre.instances.subscribe();
    let mut known: HashMap<String, watch::Sender<Arc<DynamicObject>>> = HashMap::new();
    let mut workers = JoinSet::new();
    while let Some(change) = feed.recv().await {
        match change {
            Change::Applied(instance) if concerns(&instance) => {
                let uid = instance.uid().unwrap_or_default();
                if let Some(sender) = known.get(&uid) {
                    sender.send_replace(instance);
                } else {
                    let (sender, receiver) = watch::channel(instance);
                    known.insert(uid, sender);
                    workers.spawn(work(receiver));
                }
            }
            // Gone, or moved to another host.
            Change::Applied(instance) | Change::Deleted(instance) => {
                known.remove(&instance.uid().unwrap_or_default());
            }
        }
        while workers.try_join_next().is_some() {}
    }
}

/// Looks after one instance.
struct Keeper {
    host: Arc<Host>,
    centre: Arc<DataCentre>,
    feed: InstanceFeed,
}

impl Keeper {
    async fn keep(mut self) {
        match self.phase().as_str() {
            "Scheduled" if self.boot().await => self.follow().await,
            // It has moved here.
            "Running" if self.guest_is_here() => self.follow().await,
            // It was running before this handler: the host lost power, and the machine with it.
            "Running" => drop(
                self.write(|instance| status::end(instance, false, &now()))
                    .await,
            ),
            _ => {}
        }
    }

    /// Boots the machine and writes that it runs; false when the instance is gone or ends first.
    async fn boot(&mut self) -> bool {
        loop {
            if self.is_terminating() || self.feed.has_changed().is_err() {
                return false;
            }
            let Some(pod) = self.launcher().await else {
                return false;
            };
            match self.start_machine(&pod).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(instance = self.instance().name_any(), "no boot: {error:#}");
                    let message = format!("{error:#}");
                    self.write(|instance| status::failed_sync(instance, &message, &now()))
                        .await;
                    tokio::time::sleep(BOOT_RETRY).await;
                }
            }
        }
        let claims = self.centre.claims.clone();
        let namespace = self.instance().namespace().unwrap_or_default();
        let modes = move |name: &str| {
            let claim = claims.find(&namespace, name);
            let spec = claim
                .and_then(|claim| claim.spec.clone())
                .unwrap_or_default();
            spec.access_modes.unwrap_or_default()
        };
        let address = self
            .launcher()
            .await
            .and_then(|pod| pod.status.clone()?.pod_ip);
        self.write(|instance| {
            let whole = whole(instance);
            let obstacles = migratable::obstacles(&whole, &modes);
            let migratable = migratable::conditions(&obstacles, &now());
            status::run(
                instance,
                address.as_deref().unwrap_or_default(),
                migratable,
                &now(),
            )
        })
        .await
    }

    async fn start_machine(&self, pod: &Pod) -> anyhow::Result<()> {
        let instance = self.instance();
        let namespace = instance.namespace().unwrap_or_default();
        let address = pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.as_ref());
        let address = address.and_then(|ip| ip.parse().ok());
        let address = address.ok_or_else(|| anyhow::anyhow!("the launcher has no address"))?;
        let uid = instance.uid().unwrap_or_default();
        let machine = if self.centre.on_paper(&namespace) {
            None
        } else {
            let whole = whole(&instance);
            let secrets = self.secrets(&namespace, &plan::secrets(&whole)).await?;
            let around = plan::Surroundings {
                namespace: &namespace,
                address,
                image: &|disk| self.image(disk),
                disk: &|claim| self.disk(&namespace, claim),
                secret: &|name, keys| {
                    let data = secrets.get(name)?;
                    keys.iter()
                        .find_map(|key| data.get(*key))
                        .map(|value| value.0.clone())
                },
                run: self
                    .centre
                    .run
                    .machine(&namespace, &instance.name_any(), &uid),
            };
            Some(plan::machine(&whole, &around)?)
        };
        let order = Order {
            uid,
            namespace,
            name: instance.name_any(),
            host: self.host.name.clone(),
            address,
            machine,
        };
        self.centre.guests.start(order).await.map(drop)
    }

    /// Stays with a running instance until its guest has ended, and tells how.
    async fn follow(&mut self) {
        let uid = self.instance().uid().unwrap_or_default();
        let guests = self.centre.guests.clone();
        let ended = guests.ended(&uid);
        tokio::pin!(ended);
        let ending = loop {
            if self.is_terminating() {
                let grace = self.grace();
                break guests.stop(&uid, grace).await;
            }
            tokio::select! {
                changed = self.feed.changed() => if changed.is_err() { return },
                ending = &mut ended => break ending,
            }
        };
        let well = ending != PowerState::Killed;
        self.write(|instance| status::end(instance, well, &now()))
            .await;
    }

    /// The launcher Pod of this host that runs; none when the instance goes first.
    async fn launcher(&mut self) -> Option<Arc<Pod>> {
        let uid = self.instance().uid().unwrap_or_default();
        let host = self.host.name.clone();
        let is_it = |pod: &Pod| {
            let status = pod.status.as_ref();
            pod.labels().get("kubevirt.io/created-by") == Some(&uid)
                && pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&host)
                && status.and_then(|status| status.phase.as_deref()) == Some("Running")
                && status.is_some_and(|status| status.pod_ip.is_some())
        };
        let mut pods = self.centre.pods.subscribe();
        loop {
            if let Some(pod) = self.centre.pods.list(is_it).pop() {
                return Some(pod);
            }
            tokio::select! {
                _ = pods.recv() => {}
                changed = self.feed.changed() => {
                    if changed.is_err() || self.is_terminating() { return None }
                }
            }
        }
    }

    async fn secrets(
        &self,
        namespace: &str,
        names: &[String],
    ) -> anyhow::Result<HashMap<String, std::collections::BTreeMap<String, k8s_openapi::ByteString>>>
    {
        let api: Api<Secret> = Api::namespaced(self.centre.clients.kubelet.clone(), namespace);
        let mut found = HashMap::new();
        for name in names {
            found.insert(name.clone(), api.get(name).await?.data.unwrap_or_default());
        }
        Ok(found)
    }

    /// The node image that was imported into a disk.
    fn image(&self, disk: &Path) -> anyhow::Result<NodeImage> {
        let digest = imported_image(disk)?;
        let mut images = self.centre.options.images();
        let image = images.find(|image| Some(&image.digest) == digest.as_ref());
        image
            .cloned()
            .context("the root disk has no image to boot from")
    }

    /// The folder of the disk that a claim is bound to.
    fn disk(&self, namespace: &str, claim: &str) -> Option<PathBuf> {
        let claim = self.centre.claims.find(namespace, claim)?;
        let bound = claim.status.as_ref()?.phase.as_deref() == Some("Bound");
        let volume = claim.spec.as_ref()?.volume_name.clone().filter(|_| bound)?;
        Some(self.centre.run.disk(&volume))
    }

    async fn write(&mut self, change: impl Fn(&mut DynamicObject) -> bool) -> bool {
        replace(&self.centre.clients.handler, &mut self.feed, change).await
    }

    fn guest_is_here(&self) -> bool {
        let uid = self.instance().uid().unwrap_or_default();
        self.centre.guests.is_on(&uid, &self.host.name)
    }

    fn instance(&self) -> Arc<DynamicObject> {
        self.feed.borrow().clone()
    }

    fn phase(&self) -> String {
        let instance = self.instance();
        instance
            .data
            .pointer("/status/phase")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .into()
    }

    fn is_terminating(&self) -> bool {
        self.feed.borrow().metadata.deletion_timestamp.is_some()
    }

    fn grace(&self) -> Duration {
        let instance = self.instance();
        let seconds = instance.data.pointer("/spec/terminationGracePeriodSeconds");
        Duration::from_secs(seconds.and_then(Value::as_u64).unwrap_or(DEFAULT_GRACE))
    }
}

/// Changes the instance and writes it, however long the API is away; `change` says whether
/// anything is to be written. False when the instance is gone.
async fn replace(
    client: &Client,
    feed: &mut InstanceFeed,
    change: impl Fn(&mut DynamicObject) -> bool,
) -> bool {
    loop {
        let mut instance = DynamicObject::clone(&feed.borrow_and_update());
        if !change(&mut instance) {
            return true;
        }
        let namespace = instance.namespace().unwrap_or_default();
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &namespace, &instance_resource());
        let name = instance.name_any();
        match api.replace(&name, &PostParams::default(), &instance).await {
            Ok(_) => return true,
            Err(kube::Error::Api(status)) if status.is_not_found() => return false,
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                // The newer state is on its way.
                let newer = tokio::time::timeout(RETRY, feed.changed()).await;
                if matches!(newer, Ok(Err(_))) {
                    return false;
                }
            }
            Err(error) => {
                tracing::debug!(name, %error, "instance not written");
                if feed.has_changed().is_err() {
                    return false;
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

fn node(instance: &DynamicObject) -> Option<&str> {
    instance
        .data
        .pointer("/status/nodeName")
        .and_then(Value::as_str)
}

/// The instance as one document: metadata, spec and status.
fn whole(instance: &DynamicObject) -> Value {
    let mut document = instance.data.clone();
    document["metadata"] = json!({
        "name": instance.metadata.name,
        "annotations": instance.metadata.annotations,
    });
    document
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
