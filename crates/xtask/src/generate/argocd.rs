//! Argo CD's settings for our kinds.

use std::fs;

use anyhow::{Context, Result};

use crate::project::Project;

const HEALTH: &str = "config/argocd/health.lua";

/// A patch of the ConfigMap `argocd-cm` that holds the health check of each kind.
pub fn settings(project: &Project) -> Result<String> {
    let lua = fs::read_to_string(project.path(HEALTH)).with_context(|| format!("read {HEALTH}"))?;
    let script: String = lua
        .lines()
        .map(|line| format!("    {line}\n").replace("    \n", "\n"))
        .collect();
    let checks = ["GuestCluster", "HostMaintenance"].map(|kind| {
        format!("  resource.customizations.health.guestcluster.dev_{kind}: |\n{script}")
    });
    Ok(format!(
        "# Written by `cargo xtask gen` from {HEALTH}; do not edit.
# kubectl -n argocd patch configmap argocd-cm --patch-file=config/argocd/argocd-cm.yaml
data:
{}",
        checks.concat()
    ))
}
