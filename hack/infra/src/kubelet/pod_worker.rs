//! A Pod of images that are there: really run, with its account's token, in its own namespaces.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::container::{ContainerDocument, Mount};
use super::container_worker::ContainerJob;
use super::environment::{environment, expand};
use super::images::Images;
use super::references::References;
use super::restarts::Policy;
use super::rights::Rights;
use super::view::{ContainerView, Doing, Phase};
use super::volumes::VolumeMaker;
use super::{Desk, RETRY};
use crate::machine::delete_disk;

pub use super::container_worker::log_file;

/// How long to wait before a Pod that could not be set up is tried again.
const SET_UP_RETRY: Duration = Duration::from_secs(2);

/// Runs the Pod to its end.
pub(super) async fn run(mut desk: Desk) {
    // Before the first report, which overwrites it.
    let starts = starts_before(&desk.pod());
    if !wait_for_images(&mut desk).await {
        return desk.release().await;
    }
    let address = match desk.centre.network.allocate_ip() {
        Ok(address) => address,
        Err(error) => {
            desk.set_containers(&ContainerView::waiting(
                "CreateContainerError",
                error.to_string(),
            ));
            return desk.hold().await;
        }
    };
    desk.view.address = Some(address);
    // The address first: variables may refer to it.
    desk.report().await;
    let sandbox = Sandbox::of(&desk, address, starts);
    if let Some(parts) = sandbox.set_up(&mut desk).await {
        live(&mut desk, &sandbox, parts).await;
    }
    sandbox.remove(&desk).await;
    let ended = matches!(desk.view.phase, Phase::Succeeded | Phase::Failed);
    if ended && !desk.is_terminating() {
        desk.report_surely().await;
        desk.bury().await;
    } else {
        desk.release().await;
    }
    // The logs stay as long as the Pod.
    remove_folder(&sandbox.folder);
}

/// Waits until every image can be pulled; false when the Pod is deleted first.
async fn wait_for_images(desk: &mut Desk) -> bool {
    let mut images = desk.centre.images.subscribe();
    while !has_all(&images.borrow_and_update(), &desk.pod()) {
        let message = "no binary is registered for the operator's image";
        desk.set_containers(&ContainerView::waiting("ImagePullBackOff", message));
        let written = desk.report().await;
        if desk.is_terminating() {
            return false;
        }
        tokio::select! {
            _ = images.changed() => {}
            changed = desk.feed.changed() => if changed.is_err() { return false },
            () = tokio::time::sleep(RETRY), if !written => {}
        }
    }
    desk.set_containers(&ContainerView::waiting("ContainerCreating", ""));
    true
}

/// Whether the images of all containers can be pulled.
fn has_all(images: &Images, pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut wanted = containers.filter_map(|container| container.image.as_deref());
    wanted.all(|image| images.find(image).is_some())
}

/// What a Pod's containers share.
struct Sandbox {
    folder: PathBuf,
    member: String,
    address: Ipv4Addr,
    /// How often each container was started before this kubelet took the Pod on.
    starts: BTreeMap<String, i32>,
}

/// What the containers are made from, once the sandbox is set up.
struct Parts {
    references: References,
    volumes: BTreeMap<String, PathBuf>,
}

impl Sandbox {
    fn of(desk: &Desk, address: Ipv4Addr, starts: BTreeMap<String, i32>) -> Self {
        let pod = desk.pod();
        let uid = pod.uid().unwrap_or_default();
        let short = uid.split('-').next().unwrap_or_default();
        Self {
            folder: desk.centre.run.pod(&uid),
            member: desk
                .centre
                .network
                .member_namespace(&format!("pod.{}.{short}", pod.name_any())),
            address,
            starts,
        }
    }

    /// Network and volumes; none when the Pod is deleted meanwhile.
    async fn set_up(&self, desk: &mut Desk) -> Option<Parts> {
        loop {
            match self.try_set_up(desk).await {
                Ok(parts) => return Some(parts),
                Err(error) => {
                    let message = format!("{error:#}");
                    desk.set_containers(&ContainerView::waiting("ContainerCreating", message));
                    desk.report().await;
                }
            }
            // Neither attached nor half filled at the next try.
            self.remove(desk).await;
            if desk.is_terminating() || desk.feed.has_changed().is_err() {
                return None;
            }
            tokio::time::sleep(SET_UP_RETRY).await;
        }
    }

    async fn try_set_up(&self, desk: &Desk) -> anyhow::Result<Parts> {
        let pod = desk.pod();
        let references = References::read(&desk.centre.clients.kubelet, &pod).await?;
        std::fs::create_dir_all(&self.folder)?;
        let volumes = VolumeMaker {
            pod: &pod,
            client: &desk.centre.clients.kubelet,
            references: &references,
            folder: &self.folder.join("volumes"),
        }
        .make()
        .await?;
        desk.centre
            .network
            .attach(&self.member, self.address, None)
            .await?;
        Ok(Parts {
            references,
            volumes,
        })
    }

    async fn remove(&self, desk: &Desk) {
        if let Err(error) = desk.centre.network.detach(&self.member).await {
            tracing::warn!(member = self.member, "not detached: {error:#}");
        }
        for folder in ["volumes", "roots"] {
            remove_folder(&self.folder.join(folder));
        }
    }

    fn job(
        &self,
        desk: &Desk,
        parts: &Parts,
        (index, container): (usize, &Container),
    ) -> anyhow::Result<ContainerJob> {
        let pod = desk.pod();
        let spec = pod.spec.clone().unwrap_or_default();
        let variables = environment(&pod, container, &parts.references)?;
        let root = self.folder.join("roots").join(&container.name);
        std::fs::create_dir_all(&root)?;
        let given = |words: &Option<Vec<String>>| {
            words
                .iter()
                .flatten()
                .map(|word| expand(word, &variables))
                .collect::<Vec<_>>()
        };
        let mut argv = given(&container.command);
        if argv.is_empty() {
            let image = container.image.as_deref().unwrap_or_default();
            let images = desk.centre.images.borrow();
            argv.extend(images.find(image).map(|image| image.entry_point.clone()));
        }
        argv.extend(given(&container.args));
        let rights = Rights::read(&spec, container)?;
        let document = ContainerDocument {
            network: Path::new("/run/netns").join(&self.member),
            hostname: pod.name_any(),
            root,
            read_only_root: rights.read_only_root,
            mounts: mounts(container, &parts.volumes)?,
            argv,
            environment: variables,
            folder: container
                .working_dir
                .clone()
                .unwrap_or_else(|| "/".to_owned())
                .into(),
            user: rights.user,
            group: rights.group,
            groups: rights.groups,
        };
        let grace = spec.termination_grace_period_seconds.unwrap_or(30);
        Ok(ContainerJob {
            index,
            spec: container.clone(),
            document,
            folder: self.folder.clone(),
            address: self.address,
            restarts: self.starts.get(&container.name).copied().unwrap_or(0),
            policy: Policy::read(spec.restart_policy.as_deref()),
            grace: Duration::from_secs(grace.try_into().unwrap_or(0)),
            images: desk.centre.images.subscribe(),
        })
    }
}

fn remove_folder(folder: &Path) {
    if let Err(error) = delete_disk(folder) {
        tracing::warn!("not removed: {error:#}");
    }
}

/// Runs the containers until all of them rest or the Pod is deleted.
async fn live(desk: &mut Desk, sandbox: &Sandbox, parts: Parts) {
    let (stop, stopped) = watch::channel(false);
    let (reports, mut reported) = mpsc::unbounded_channel();
    let mut containers = JoinSet::new();
    let pod = desk.pod();
    let spec = pod.spec.clone().unwrap_or_default();
    for at in spec.containers.iter().enumerate() {
        match sandbox.job(desk, &parts, at) {
            Ok(job) => drop(containers.spawn(job.run(reports.clone(), stopped.clone()))),
            Err(error) => {
                let view =
                    ContainerView::waiting("CreateContainerConfigError", format!("{error:#}"));
                if let Some(container) = desk.view.containers.get_mut(at.0) {
                    *container = view;
                }
            }
        }
    }
    desk.set_phase(Phase::Running);
    let maker = VolumeMaker {
        pod: &pod,
        client: &desk.centre.clients.kubelet.clone(),
        references: &parts.references,
        folder: &sandbox.folder.join("volumes"),
    };
    let refresh = maker.refresh_tokens();
    tokio::pin!(refresh);
    loop {
        let written = desk.report().await;
        if desk.is_terminating() {
            stop.send_replace(true);
        }
        tokio::select! {
            Some((index, view)) = reported.recv() => {
                if let Some(container) = desk.view.containers.get_mut(index) {
                    *container = view;
                }
            }
            ended = containers.join_next(), if reported.is_empty() => if ended.is_none() {
                desk.set_phase(phase_of(&desk.view.containers));
                return;
            },
            changed = desk.feed.changed() => if changed.is_err() {
                // Removed by force: dropping the containers kills them.
                return;
            },
            () = &mut refresh => {}
            () = tokio::time::sleep(RETRY), if !written => {}
        }
    }
}

/// The phase of a Pod all of whose containers rest.
fn phase_of(containers: &[ContainerView]) -> Phase {
    let failed = |view: &ContainerView| match view.doing {
        Doing::Ended { code, .. } => code != 0,
        Doing::Waiting(..) | Doing::Running(_) => true,
    };
    if containers.iter().any(failed) {
        Phase::Failed
    } else {
        Phase::Succeeded
    }
}

/// How often the containers of `pod` were started already: they ran before their host lost power.
fn starts_before(pod: &Pod) -> BTreeMap<String, i32> {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| &status.container_statuses);
    statuses
        .flatten()
        .filter(|status| status.container_id.is_some())
        .map(|status| (status.name.clone(), status.restart_count + 1))
        .collect()
}

fn mounts(
    container: &Container,
    volumes: &BTreeMap<String, PathBuf>,
) -> anyhow::Result<Vec<Mount>> {
    let mounts = container.volume_mounts.iter().flatten().map(|mount| {
        let folder = volumes.get(&mount.name);
        let folder = folder.with_context(|| format!("no volume \"{}\"", mount.name))?;
        let source = match &mount.sub_path {
            Some(path) => folder.join(path),
            None => folder.clone(),
        };
        anyhow::Ok(Mount {
            source,
            target: mount.mount_path.clone().into(),
            read_only: mount.read_only.unwrap_or(false),
        })
    });
    mounts.collect()
}

#[cfg(test)]
mod tests {
    use super::{phase_of, starts_before};
    use crate::kubelet::view::{ContainerView, Doing, Phase};
    use k8s_openapi::jiff::Timestamp;

    fn ended(code: i32) -> ContainerView {
        let at = Timestamp::UNIX_EPOCH;
        ContainerView {
            doing: Doing::Ended {
                code,
                started: at,
                finished: at,
            },
            ..ContainerView::running(at)
        }
    }

    #[test]
    fn a_pod_fails_when_one_of_its_containers_did() {
        assert_eq!(phase_of(&[ended(0), ended(0)]), Phase::Succeeded);
        assert_eq!(phase_of(&[ended(0), ended(1)]), Phase::Failed);
    }

    #[test]
    fn a_container_that_ran_before_a_power_loss_counts_as_restarted() {
        let pod = serde_json::from_value(serde_json::json!({"status": {"containerStatuses": [
            {"name": "ran", "containerID": "stand-in://ran", "restartCount": 2,
             "image": "", "imageID": "", "ready": true},
            {"name": "waited", "restartCount": 0, "image": "", "imageID": "", "ready": false},
        ]}}))
        .unwrap();
        assert_eq!(starts_before(&pod), [("ran".to_owned(), 3)].into());
    }
}
