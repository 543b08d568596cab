//! `cargo xtask gen`: files that are written from the code and committed, so that a reader sees them
//! and a diff shows what a change of the code means to users.

mod argocd;
mod crd;
mod rbac;
mod reference;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::project::Project;

/// A generated file.
struct Generated {
    /// Its place in the checkout.
    path: &'static str,
    content: String,
}

fn all(project: &Project) -> Result<Vec<Generated>> {
    let crd = crd::guest_cluster()?;
    let maintenance = crd::host_maintenance()?;
    Ok(vec![
        Generated {
            path: "config/crd/guestcluster.dev_guestclusters.yaml",
            content: crd::plain(&crd)?,
        },
        Generated {
            path: "charts/guestcluster-operator/templates/crd-guestclusters.yaml",
            content: crd::chart_template(&crd)?,
        },
        Generated {
            path: "config/crd/guestcluster.dev_hostmaintenances.yaml",
            content: crd::plain(&maintenance)?,
        },
        Generated {
            path: "charts/guestcluster-operator/templates/crd-hostmaintenances.yaml",
            content: crd::chart_template(&maintenance)?,
        },
        Generated {
            path: "charts/guestcluster-operator/templates/roles.yaml",
            content: rbac::chart_template()?,
        },
        Generated {
            path: "config/argocd/argocd-cm.yaml",
            content: argocd::settings(project)?,
        },
        Generated {
            path: "docs/reference/permissions.md",
            content: rbac::page()?,
        },
        Generated {
            path: "docs/reference/guestcluster.md",
            content: reference::guest_cluster(&crd)?,
        },
        Generated {
            path: "docs/reference/hostmaintenance.md",
            content: reference::host_maintenance(&maintenance)?,
        },
    ])
}

/// Writes every file whose content differs.
pub fn write(project: &Project) -> Result<ExitCode> {
    for Generated { path, content } in all(project)? {
        let file = project.path(path);
        if fs::read_to_string(&file).is_ok_and(|present| present == content) {
            continue;
        }
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        fs::write(&file, content).with_context(|| format!("write {path}"))?;
        println!("wrote {path}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails when a committed file is not what would be written.
pub fn check(project: &Project) -> Result<()> {
    let mut stale = Vec::new();
    for Generated { path, content } in all(project)? {
        if !fs::read_to_string(project.path(path)).is_ok_and(|present| present == content) {
            stale.push(path);
        }
    }
    if !stale.is_empty() {
        bail!(
            "not what the code says: {}; run `cargo xtask gen` and commit",
            stale.join(", ")
        );
    }
    Ok(())
}
