//! Containerized Data Importer: `cdi.kubevirt.io/v1beta1`.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use crate::kubevirt::VmCondition;

/// A DataVolume: a claim and how it is filled.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "DataVolume",
    plural = "datavolumes",
    namespaced,
    status = "DataVolumeStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSpec {}

/// What CDI reports of a DataVolume.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeStatus {
    /// `Succeeded` when the claim holds its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Progress, such as `42.0%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Conditions `Bound`, `Running` and `Ready`.
    #[serde(default)]
    pub conditions: Vec<VmCondition>,
}
