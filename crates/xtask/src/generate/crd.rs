//! The CustomResourceDefinitions, each alone and as a template of the chart.

use anyhow::{Context, Result};
use guestcluster_api::{GuestCluster, HostMaintenance};
use kube::CustomResourceExt;
use serde_json::{Value, json};

const NOTE: &str = "# Written by `cargo xtask gen` from crates/api; do not edit.\n";

/// The definition of GuestCluster.
pub fn guest_cluster() -> Result<Value> {
    serde_json::to_value(GuestCluster::crd()).context("write the definition of GuestCluster")
}

/// The definition of HostMaintenance.
pub fn host_maintenance() -> Result<Value> {
    serde_json::to_value(HostMaintenance::crd()).context("write the definition of HostMaintenance")
}

/// As YAML.
pub fn plain(crd: &Value) -> Result<String> {
    Ok(format!("{NOTE}{}", yaml(crd)?))
}

/// As a template. Helm never upgrades what lies in a chart's `crds/`, so the definition is an
/// ordinary template; `keep` saves every guest from an uninstall.
pub fn chart_template(crd: &Value) -> Result<String> {
    let mut crd = crd.clone();
    crd["metadata"]["annotations"] = json!({ "helm.sh/resource-policy": "keep" });
    Ok(format!(
        "{NOTE}{{{{- if .Values.crds.install }}}}\n{}{{{{- end }}}}\n",
        yaml(&crd)?
    ))
}

/// YAML without folded lines: a sentence of a user-facing message stays on one line, where `grep`
/// finds it.
pub fn yaml(value: &Value) -> Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).context("write YAML")
}
