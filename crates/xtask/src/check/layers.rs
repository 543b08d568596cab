//! Which crate may use which: the architecture as a table.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process;
use crate::project::Project;

/// One crate of the workspace and what it may use.
struct Layer {
    /// Package name without the project's prefix.
    name: &'static str,
    /// Crates of the workspace that it may depend on.
    may_use: &'static [&'static str],
    /// Whether it decides only: no network, no runtime, no clock.
    pure: bool,
}

const fn pure(name: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer {
        name,
        may_use,
        pure: true,
    }
}

const fn acting(name: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer {
        name,
        may_use,
        pure: false,
    }
}

/// Arrows point downwards: a crate uses only crates above its own line. Crates for development come
/// last, and no shipped crate uses one.
const LAYERS: &[Layer] = &[
    pure("capacity", &[]),
    pure("placement", &["capacity"]),
    pure("pki", &[]),
    pure("bootstrap", &["pki"]),
    pure("api", &[]),
    pure("foreign", &[]),
    pure(
        "planner",
        &[
            "api",
            "bootstrap",
            "capacity",
            "foreign",
            "pki",
            "placement",
        ],
    ),
    pure(
        "bridge",
        &["api", "bootstrap", "capacity", "foreign", "planner"],
    ),
    acting("shell", &[]),
    acting(
        "operator",
        &[
            "api",
            "bootstrap",
            "bridge",
            "capacity",
            "foreign",
            "pki",
            "placement",
            "planner",
            "shell",
        ],
    ),
    acting(
        "cli",
        &[
            "api",
            "bridge",
            "capacity",
            "foreign",
            "placement",
            "planner",
            "shell",
        ],
    ),
    acting("testkit", &["api", "foreign", "planner"]),
    acting("real", &["capacity", "placement"]),
    acting("infra", &["api", "foreign"]),
    acting("paper", &["api", "infra", "pki"]),
    acting(
        "e2e",
        &[
            "api",
            "bootstrap",
            "capacity",
            "foreign",
            "infra",
            "paper",
            "pki",
            "planner",
            "testkit",
        ],
    ),
    // The planner's table of permissions becomes the chart's ClusterRole.
    acting("xtask", &["api", "infra", "planner"]),
];

/// Crates that any crate may use in its tests, on top of its table line.
const FOR_TESTS: &[&str] = &["testkit", "real", "infra"];

/// Packages that talk, run or wait: none may be in the tree of a pure crate.
const FORBIDDEN_IN_PURE: &[&str] = &[
    "kube-client",
    "kube-runtime",
    "tokio",
    "hyper",
    "tower",
    "reqwest",
];

const PREFIX: &str = "guestcluster-";

/// Fails on an edge that the table does not allow, and on a pure crate that pulls a runtime.
pub fn check(project: &Project) -> Result<()> {
    let metadata = process::output(project.cargo().args([
        "metadata",
        "--no-deps",
        "--locked",
        "--format-version=1",
    ]))?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("read `cargo metadata`")?;
    let mut wrong = violations(&metadata);
    for layer in LAYERS.iter().filter(|layer| layer.pure) {
        let pulled = pulled_by(project, layer)?;
        if !pulled.is_empty() {
            wrong.push(format!(
                "{PREFIX}{} decides only, but pulls {}: depend on less of kube (derive alone)",
                layer.name,
                pulled.join(", ")
            ));
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n  "));
    }
    Ok(())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// Absent for a normal dependency.
    kind: Option<String>,
}

/// Every edge between crates of the workspace that the table does not give.
fn violations(metadata: &Metadata) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let name = package.name.strip_prefix(PREFIX).unwrap_or(&package.name);
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
            wrong.push(format!(
                "{} has no line in the table of layers",
                package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let Some(used) = dependency.name.strip_prefix(PREFIX) else {
                continue;
            };
            let in_tests = dependency.kind.as_deref() == Some("dev");
            let allowed = layer.may_use.contains(&used) || (in_tests && FOR_TESTS.contains(&used));
            if !allowed {
                wrong.push(format!("{} may not use {}", package.name, dependency.name));
            }
        }
    }
    wrong
}

/// The forbidden packages in the tree of one crate, built alone: features that other crates of the
/// workspace switch on do not count.
fn pulled_by(project: &Project, layer: &Layer) -> Result<Vec<&'static str>> {
    let package = format!("{PREFIX}{}", layer.name);
    let tree = process::output(project.cargo().args([
        "tree",
        "--locked",
        "--package",
        &package,
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
    ]))?;
    let packages: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    Ok(FORBIDDEN_IN_PURE
        .iter()
        .copied()
        .filter(|name| packages.contains(name))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Metadata {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency {
                name: (*name).to_owned(),
                kind: kind.map(str::to_owned),
            })
            .collect();
        Metadata {
            packages: vec![Package {
                name: name.to_owned(),
                dependencies,
            }],
        }
    }

    #[test]
    fn an_edge_of_the_table_and_foreign_packages_are_fine() {
        let planner = package(
            "guestcluster-planner",
            &[("guestcluster-api", None), ("serde", None)],
        );
        assert!(violations(&planner).is_empty());
    }

    #[test]
    fn an_edge_against_the_arrows_is_named() {
        let api = package("guestcluster-api", &[("guestcluster-planner", None)]);
        assert_eq!(
            violations(&api),
            ["guestcluster-api may not use guestcluster-planner"]
        );
    }

    #[test]
    fn the_test_kit_is_for_tests_alone() {
        let tested = package(
            "guestcluster-shell",
            &[("guestcluster-testkit", Some("dev"))],
        );
        assert!(violations(&tested).is_empty());
        let shipped = package("guestcluster-shell", &[("guestcluster-testkit", None)]);
        assert_eq!(violations(&shipped).len(), 1);
    }

    #[test]
    fn a_new_crate_needs_a_line() {
        assert_eq!(violations(&package("guestcluster-new", &[])).len(), 1);
    }
}
