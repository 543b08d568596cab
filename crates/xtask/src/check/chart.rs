//! The chart: it lints, renders with its defaults and with everything switched on, and refuses
//! values that mean nothing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use guestcluster_infra::progress::Progress;
use guestcluster_infra::tools;
use serde_json::Value;

use super::alerts::{RULES, read_yaml};
use crate::process;
use crate::project::Project;

const CHART: &str = "charts/guestcluster-operator";

/// Values with which every template renders.
const EVERYTHING: &[&str] = &[
    "serviceMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "prometheusRule.labels.release=prometheus",
    "admission.guests=Audit",
    "capkProvider.enabled=true",
    "podAntiAffinity=preferred",
    "infra.podCIDRs={10.244.0.0/16,fd00::/48}",
    "infra.serviceCIDRs={10.96.0.0/12}",
    "nodeSelector.example=management",
    "priorityClassName=",
];

/// Values that the chart's schema must refuse.
const NONSENSE: &[&str] = &[
    "replicas=0",
    "image.digest=latest",
    "infra.podCIDRs={10.244.0.0}",
    "replica=3",
    "admission.guests=Warn",
    "prometheusRule.labels.release=1",
];

/// Runs the checks with the Helm that the local infrastructure uses.
pub fn check(project: &Project) -> Result<()> {
    let helm = tools::ensure(&Progress::detect())?.programs.path("helm");
    process::quiet(
        Command::new(&helm)
            .args(["lint", "--strict"])
            .arg(project.path(CHART)),
    )?;
    let alerts = read_yaml(&project.path(RULES))?;
    for values in [&[], EVERYTHING] {
        let rendered = process::output(&mut template(project, &helm, values))?;
        let objects = serde_saphyr::from_multiple::<Value>(&rendered)
            .context("what the chart renders is no YAML")?;
        let rules: Vec<_> = objects
            .iter()
            .filter(|object| object["kind"] == "PrometheusRule")
            .map(|object| &object["spec"])
            .collect();
        let wanted = if values.is_empty() {
            vec![]
        } else {
            vec![&alerts]
        };
        if rules != wanted {
            bail!("the chart must render a PrometheusRule only on demand, and with {RULES} in it");
        }
    }
    for value in NONSENSE {
        if process::quiet(&mut template(project, &helm, &[value])).is_ok() {
            bail!("the chart takes `{value}`, which its schema must refuse");
        }
    }
    Ok(())
}

fn template(project: &Project, helm: &Path, values: &[&str]) -> Command {
    let mut command = Command::new(helm);
    command
        .args(["template", "guestcluster-operator"])
        .arg(project.path(CHART));
    command.args(["--namespace", "guestcluster-system"]);
    for value in values {
        command.args(["--set", value]);
    }
    command
}
