//! One DataVolume from its claim to Succeeded.

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::process::Command;

use super::source::{Pulled, Source, pull};
use super::{LOOK_AGAIN, create_volume, data_volume_resource, policy_of, volume_name};
use crate::data_centre::DataCentre;
use crate::machine::import_image;
use crate::process;

/// Why a DataVolume could not be worked on now; it is tried again.
#[derive(Debug)]
pub struct ImportError(anyhow::Error);

impl std::fmt::Display for ImportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for ImportError {}

/// What a DataVolume's status says.
struct Progress {
    phase: &'static str,
    bound: bool,
    /// Reason and words of the condition Running.
    running: (&'static str, String),
}

/// Brings one DataVolume a step further.
pub async fn reconcile(
    volume: Arc<DynamicObject>,
    centre: Arc<DataCentre>,
) -> Result<Action, ImportError> {
    advance(&volume, &centre).await.map_err(ImportError)
}

async fn advance(volume: &DynamicObject, centre: &DataCentre) -> anyhow::Result<Action> {
    let phase = volume
        .data
        .pointer("/status/phase")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() || phase == "Succeeded" {
        return Ok(Action::await_change());
    }
    let claim = ensure_claim(volume, centre).await?;
    if !is_owned(&claim, volume) {
        let message = format!(
            "claim {} exists and belongs to something else",
            claim.name_any()
        );
        return write(
            volume,
            centre,
            progress("Pending", ("ErrClaimNotValid", message)),
        )
        .await;
    }
    if claim
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        == Some("Bound")
    {
        let done = Progress {
            bound: true,
            ..progress("Succeeded", ("Completed", String::new()))
        };
        return write(volume, centre, done).await;
    }
    let Some(policy) = policy_of(centre, &claim).await? else {
        let class = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.storage_class_name.clone());
        let message = format!(
            "storageclass.storage.k8s.io \"{}\" not found",
            class.unwrap_or_default()
        );
        return write(
            volume,
            centre,
            progress("Pending", ("ProvisioningFailed", message)),
        )
        .await;
    };
    if let Some(waiting) = fill(volume, centre, &claim).await? {
        return write(volume, centre, waiting).await;
    }
    create_volume(centre, &claim, &policy).await?;
    // The claim's binding is the next change.
    Ok(Action::await_change())
}

fn progress(phase: &'static str, running: (&'static str, String)) -> Progress {
    Progress {
        phase,
        bound: false,
        running,
    }
}

/// Fills the disk of `claim`; says what it waits for if it cannot.
async fn fill(
    volume: &DynamicObject,
    centre: &DataCentre,
    claim: &PersistentVolumeClaim,
) -> anyhow::Result<Option<Progress>> {
    let namespace = volume.namespace().unwrap_or_default();
    let disk = centre.run.disk(&volume_name(claim));
    match Source::read(&volume.data["spec"], &namespace) {
        Source::Blank => {}
        Source::Registry(url) => {
            let images: Vec<_> = centre.options.images().collect();
            match pull(&url, &images) {
                Pulled::Image(image) => import_image(&disk, image)?,
                Pulled::OnPaper => {}
                Pulled::Unknown => {
                    let message = format!("failed to pull image: {url}: manifest unknown");
                    return Ok(Some(progress(
                        "ImportInProgress",
                        ("ImagePullFailed", message),
                    )));
                }
            }
        }
        Source::Elsewhere(kind) => {
            let message = format!("unable to connect to {kind} data source: no route to host");
            return Ok(Some(progress("ImportInProgress", ("Error", message))));
        }
        Source::Claim { namespace, name } => {
            let source = centre.claims.find(&namespace, &name);
            let bound = source.and_then(|claim| {
                let status = claim.status.as_ref()?.phase.as_deref() == Some("Bound");
                claim.spec.as_ref()?.volume_name.clone().filter(|_| status)
            });
            let Some(bound) = bound else {
                let message = format!("the source pvc {namespace}/{name} doesn't exist");
                return Ok(Some(progress(
                    "CloneScheduled",
                    ("CloneWithoutSource", message),
                )));
            };
            copy(&centre.run.disk(&bound), &disk).await?;
        }
    }
    std::fs::create_dir_all(&disk)?;
    Ok(None)
}

/// Copies a disk; one that was never booted from is an empty folder.
async fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    let content = from.join(".");
    let arguments = ["--archive", "--reflink=auto", "--no-target-directory"];
    process::run(Command::new("cp").args(arguments).arg(content).arg(to))
        .await
        .map(drop)
}

/// The DataVolume's claim, made if it is missing.
async fn ensure_claim(
    volume: &DynamicObject,
    centre: &DataCentre,
) -> anyhow::Result<PersistentVolumeClaim> {
    let namespace = volume.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(centre.clients.storage.clone(), &namespace);
    if let Some(claim) = claims.get_opt(&volume.name_any()).await? {
        return Ok(claim);
    }
    match claims.create(&PostParams::default(), &claim(volume)?).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            Ok(claims.get(&volume.name_any()).await?)
        }
        other => Ok(other?),
    }
}

fn claim(volume: &DynamicObject) -> anyhow::Result<PersistentVolumeClaim> {
    let spec = &volume.data["spec"];
    let wanted = if spec["storage"].is_object() {
        &spec["storage"]
    } else {
        &spec["pvc"]
    };
    let mut modes = wanted["accessModes"].clone();
    if modes.as_array().is_none_or(Vec::is_empty) {
        modes = json!(["ReadWriteOnce"]);
    }
    let source = if spec["source"]["pvc"].is_object() {
        "VolumeCloneSource"
    } else {
        "VolumeImportSource"
    };
    let uid = volume.uid().unwrap_or_default();
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": volume.name_any(),
            "namespace": volume.namespace(),
            "labels": {"app": "containerized-data-importer"},
            "annotations": {"cdi.kubevirt.io/storage.usePopulator": "true"},
            "ownerReferences": [{
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                "name": volume.name_any(), "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "accessModes": modes,
            "volumeMode": wanted["volumeMode"].as_str().unwrap_or("Filesystem"),
            "storageClassName": wanted["storageClassName"],
            "resources": {"requests": wanted["resources"]["requests"]},
            "dataSourceRef": {
                "apiGroup": "cdi.kubevirt.io",
                "kind": source,
                "name": format!("{}-{uid}", source.to_lowercase()),
            },
        },
    }))?)
}

fn is_owned(claim: &PersistentVolumeClaim, volume: &DynamicObject) -> bool {
    claim
        .owner_references()
        .iter()
        .any(|owner| Some(&owner.uid) == volume.metadata.uid.as_ref())
}

/// Writes the status if it says something new; looks again later unless all is done.
async fn write(
    volume: &DynamicObject,
    centre: &DataCentre,
    progress: Progress,
) -> anyhow::Result<Action> {
    let next = if progress.phase == "Succeeded" {
        Action::await_change()
    } else {
        Action::requeue(LOOK_AGAIN)
    };
    let (reason, message) = &progress.running;
    let said = volume
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let is_said = said.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|c| c["reason"] == *reason && c["message"] == **message)
    });
    if is_said && volume.data["status"]["phase"] == progress.phase {
        return Ok(next);
    }
    let done = progress.phase == "Succeeded";
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str, truth: bool, reason: &str, message: &str| {
        json!({
            "type": kind, "status": if truth { "True" } else { "False" },
            "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let binding = if progress.bound { "Bound" } else { "Pending" };
    let status = json!({"status": {
        "phase": progress.phase,
        "claimName": volume.name_any(),
        "progress": if done { "100.0%" } else { "N/A" },
        "conditions": [
            condition("Bound", progress.bound, binding, ""),
            condition("Ready", done, "", ""),
            condition("Running", false, reason, message),
        ],
    }});
    let api: Api<DynamicObject> = Api::namespaced_with(
        centre.clients.storage.clone(),
        &volume.namespace().unwrap_or_default(),
        &data_volume_resource(),
    );
    let patch = Patch::Merge(status);
    match api
        .patch_status(&volume.name_any(), &PatchParams::default(), &patch)
        .await
    {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Action::await_change()),
        other => Ok(other.map(|_| next)?),
    }
}
