//! The stand-in for storage: a provisioner whose disks are folders, and CDI's importer on top.
//!
//! As with CDI's own populators, the claim of a DataVolume stays Pending until its content is
//! there; the claim, and with it the disk, goes when its DataVolume goes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::data_centre::DataCentre;
use crate::informer::{Change, Informer};
use crate::machine::delete_disk;

mod import;
mod source;

/// The class that claims get when they name none.
pub const STORAGE_CLASS: &str = "standard";
/// The provisioner of every class whose disks the stand-in makes.
pub const PROVISIONER: &str = "disks.guestcluster.dev";

/// How long to wait before something is looked at again that nothing tells of.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How many DataVolumes are worked on at a time.
const CONCURRENCY: u16 = 8;

/// The objects that storage needs before it starts.
pub fn objects() -> Vec<Value> {
    vec![json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    })]
}

/// Provisions, imports and removes disks until it is dropped.
pub async fn run(centre: Arc<DataCentre>) {
    tokio::join!(
        provision(centre.clone()),
        reclaim(centre.clone()),
        import_all(centre)
    );
}

/// Makes a disk for every claim of a class of ours that has no populator.
async fn provision(centre: Arc<DataCentre>) {
    let mut feed = centre.claims.subscribe();
    while let Some(change) = feed.recv().await {
        let Change::Applied(claim) = change else {
            continue;
        };
        if !waits_for_disk(&claim) || is_populated(&claim) {
            continue;
        }
        while let Err(error) = provide(&centre, &claim).await {
            tracing::warn!(claim = claim.name_any(), "no disk: {error:#}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// Makes an empty disk for the claim, if its class is one of ours.
async fn provide(centre: &DataCentre, claim: &PersistentVolumeClaim) -> anyhow::Result<()> {
    if let Some(policy) = policy_of(centre, claim).await? {
        let volume = volume_name(claim);
        std::fs::create_dir_all(centre.run.disk(&volume))?;
        create_volume(centre, claim, &policy).await?;
    }
    Ok(())
}

fn waits_for_disk(claim: &PersistentVolumeClaim) -> bool {
    let spec = claim.spec.as_ref();
    claim.metadata.deletion_timestamp.is_none()
        && spec.is_some_and(|spec| spec.volume_name.as_deref().unwrap_or_default().is_empty())
}

/// A claim with a data source is provided by whoever fills it.
fn is_populated(claim: &PersistentVolumeClaim) -> bool {
    claim
        .spec
        .as_ref()
        .is_some_and(|spec| spec.data_source_ref.is_some())
}

/// The reclaim policy of the claim's class; none when the class is missing or not ours.
async fn policy_of(
    centre: &DataCentre,
    claim: &PersistentVolumeClaim,
) -> anyhow::Result<Option<String>> {
    let name = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.clone());
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let classes: Api<StorageClass> = Api::all(centre.clients.storage.clone());
    let class = classes
        .get_opt(&name)
        .await?
        .filter(|class| class.provisioner == PROVISIONER);
    Ok(class.map(|class| class.reclaim_policy.unwrap_or_else(|| "Delete".to_owned())))
}

/// The name of the volume that is made for a claim.
fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.uid().unwrap_or_default())
}

/// Writes the volume that stands for the claim's disk; binding is Kubernetes' own affair.
async fn create_volume(
    centre: &DataCentre,
    claim: &PersistentVolumeClaim,
    policy: &str,
) -> anyhow::Result<()> {
    let name = volume_name(claim);
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec
        .resources
        .and_then(|resources| resources.requests)
        .unwrap_or_default();
    let volume: PersistentVolume = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        },
        "spec": {
            "accessModes": spec.access_modes,
            "capacity": {"storage": requests.get("storage")},
            "volumeMode": spec.volume_mode,
            "storageClassName": spec.storage_class_name,
            "persistentVolumeReclaimPolicy": policy,
            "csi": {"driver": PROVISIONER, "volumeHandle": name},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid(),
            },
        },
    }))?;
    let volumes: Api<PersistentVolume> = Api::all(centre.clients.storage.clone());
    match volumes.create(&PostParams::default(), &volume).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Removes the disk of every volume that was released and whose policy says so.
async fn reclaim(centre: Arc<DataCentre>) {
    let volumes: Api<PersistentVolume> = Api::all(centre.clients.storage.clone());
    let mut feed = Informer::start(volumes.clone()).subscribe();
    while let Some(change) = feed.recv().await {
        let Change::Applied(volume) = change else {
            continue;
        };
        if !is_to_be_removed(&volume) {
            continue;
        }
        let name = volume.name_any();
        if let Err(error) = delete_folder(&centre.run.disk(&name)).await {
            tracing::warn!(name, "disk not removed: {error:#}");
        }
        // A volume that could not be deleted now is met again with its next change.
        if let Err(error) = volumes.delete(&name, &DeleteParams::default()).await {
            tracing::debug!(name, %error, "volume not deleted");
        }
    }
}

fn is_to_be_removed(volume: &PersistentVolume) -> bool {
    let phase = volume
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let policy = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    phase == Some("Released")
        && policy == Some("Delete")
        && volume.metadata.deletion_timestamp.is_none()
        && volume
            .annotations()
            .get("pv.kubernetes.io/provisioned-by")
            .map(String::as_str)
            == Some(PROVISIONER)
}

async fn delete_folder(folder: &Path) -> anyhow::Result<()> {
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || delete_disk(&folder)).await?
}

/// Fills the claims of DataVolumes.
async fn import_all(centre: Arc<DataCentre>) {
    let client = centre.clients.storage.clone();
    let resource = data_volume_resource();
    let volumes: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let config = Config::default().concurrency(CONCURRENCY);
    Controller::new_with(volumes, watcher::Config::default(), resource)
        .with_config(config)
        .owns(
            Api::<PersistentVolumeClaim>::all(client),
            watcher::Config::default(),
        )
        .run(
            import::reconcile,
            |_, _, _| Action::requeue(LOOK_AGAIN),
            centre,
        )
        .for_each(|outcome| async move {
            if let Err(error) = outcome {
                tracing::debug!("DataVolume: {error:#}");
            }
        })
        .await;
}

/// The API of DataVolumes.
fn data_volume_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "DataVolume");
    ApiResource::from_gvk_with_plural(&kind, "datavolumes")
}

#[cfg(test)]
mod tests {
    use super::{is_populated, is_to_be_removed, waits_for_disk};
    use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
    use serde_json::json;

    #[test]
    fn a_claim_waits_until_it_has_a_volume() {
        let claim = |spec| -> PersistentVolumeClaim {
            serde_json::from_value(json!({"spec": spec})).unwrap()
        };
        assert!(waits_for_disk(&claim(json!({}))));
        assert!(!waits_for_disk(&claim(json!({"volumeName": "pv"}))));
        let source = json!({"dataSourceRef": {"kind": "VolumeImportSource", "name": "x"}});
        assert!(is_populated(&claim(source)));
    }

    #[test]
    fn a_retained_disk_is_kept() {
        let volume = |policy: &str| -> PersistentVolume {
            serde_json::from_value(json!({
                "metadata": {"annotations":
                    {"pv.kubernetes.io/provisioned-by": "disks.guestcluster.dev"}},
                "spec": {"persistentVolumeReclaimPolicy": policy},
                "status": {"phase": "Released"},
            }))
            .unwrap()
        };
        assert!(is_to_be_removed(&volume("Delete")));
        assert!(!is_to_be_removed(&volume("Retain")));
    }
}
