//! The alert rules, by Prometheus' own tool: they are valid, each says what to do, and each was seen
//! to fire and to keep quiet.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use guestcluster_infra::cache::{Cache, KeyBuilder};
use guestcluster_infra::progress::Progress;
use serde_json::Value;

use crate::process;
use crate::project::Project;

/// The rules, which the chart takes in as they are.
pub const RULES: &str = "charts/guestcluster-operator/files/alerts.yaml";
const TESTS: &str = "tests/alerts";
const PAGE: &str = "docs/alerts.md";

/// Debian's package of Prometheus, which is unpacked and not installed: it would start a server.
const PACKAGE: &str = "prometheus";
/// The one program of the package that is kept.
const PROGRAM: &str = "./usr/bin/promtool";

/// Runs the checks.
pub fn check(project: &Project) -> Result<()> {
    let file = project.path(RULES);
    let rules = read_yaml(&file)?;
    let alerts = alerts(&rules);
    let tests = test_files(project)?;
    let mut cases = Vec::new();
    for file in &tests {
        let groups = read_yaml(file)?;
        cases.extend(groups["tests"].as_array().into_iter().flatten().cloned());
    }
    let page = fs::read_to_string(project.path(PAGE)).with_context(|| format!("read {PAGE}"))?;
    let mut wrong = silent(&alerts);
    wrong.extend(untold(&alerts, &page));
    wrong.extend(untried(&alerts, &cases));
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n  "));
    }
    let promtool = promtool()?;
    process::quiet(Command::new(&promtool).args(["check", "rules"]).arg(&file))?;
    process::quiet(Command::new(&promtool).args(["test", "rules"]).args(tests))?;
    process::say(&format!(
        "{} alerts hold in {} tests",
        alerts.len(),
        cases.len()
    ));
    Ok(())
}

/// The alerts of a file of rules.
fn alerts(rules: &Value) -> Vec<&Value> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    groups
        .filter_map(|group| group["rules"].as_array())
        .flatten()
        .collect()
}

/// Alerts that lack what whoever is woken by them needs.
fn silent(alerts: &[&Value]) -> Vec<String> {
    let parts = [
        "/for",
        "/labels/severity",
        "/annotations/summary",
        "/annotations/description",
    ];
    let mut wrong = Vec::new();
    for alert in alerts {
        for part in parts.iter().filter(|part| alert.pointer(part).is_none()) {
            wrong.push(format!("{RULES}: {} has no {}", name(alert), &part[1..]));
        }
    }
    wrong
}

/// Alerts that the page does not explain.
fn untold(alerts: &[&Value], page: &str) -> Vec<String> {
    let told = |alert: &&&Value| page.contains(&format!("`{}`", name(alert)));
    let untold = alerts.iter().filter(|alert| !told(alert));
    untold
        .map(|alert| format!("{PAGE} does not say what {} means", name(alert)))
        .collect()
}

/// Alerts that no test saw fire, or none with data saw keep quiet.
fn untried(alerts: &[&Value], cases: &[Value]) -> Vec<String> {
    let mut seen = BTreeMap::<&str, [bool; 2]>::new();
    for case in cases {
        let series = case["input_series"].as_array().into_iter().flatten();
        let mut series = series.filter_map(|one| one["series"].as_str());
        // A test of a Prometheus that scrapes nothing shows nothing of what good data does.
        let is_measured = series.any(|one| !one.starts_with("up{"));
        for test in case["alert_rule_test"].as_array().into_iter().flatten() {
            let is_firing = test["exp_alerts"]
                .as_array()
                .is_some_and(|all| !all.is_empty());
            if let Some(alert) = test["alertname"].as_str() {
                let [fired, quiet] = seen.entry(alert).or_default();
                *fired |= is_firing;
                *quiet |= !is_firing && is_measured;
            }
        }
    }
    let mut wrong = Vec::new();
    for alert in alerts.iter().map(|alert| name(alert)) {
        let [fired, quiet] = seen.get(alert).copied().unwrap_or_default();
        if !fired {
            wrong.push(format!("{TESTS}: no test sees {alert} fire"));
        }
        if !quiet {
            wrong.push(format!(
                "{TESTS}: no test with data sees {alert} keep quiet"
            ));
        }
    }
    wrong
}

fn name(alert: &Value) -> &str {
    alert["alert"].as_str().unwrap_or("a rule without a name")
}

fn test_files(project: &Project) -> Result<Vec<PathBuf>> {
    let folder = project.path(TESTS);
    let all = project.files(".yaml")?;
    let files: Vec<_> = all.into_iter().filter(|f| f.starts_with(&folder)).collect();
    if files.is_empty() {
        bail!("{TESTS} holds no test");
    }
    Ok(files)
}

/// A YAML file as a value.
pub fn read_yaml(file: &Path) -> Result<Value> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{} is no YAML", file.display()))
}

/// Prometheus' tool, fetched once.
fn promtool() -> Result<PathBuf> {
    let key = KeyBuilder::default()
        .input("package", PACKAGE)
        .input("program", PROGRAM)
        .key();
    let progress = Progress::detect();
    let folder = Cache::open()?.ensure("promtool", &key, &progress, |folder| {
        let step = progress.step("fetch promtool");
        process::quiet(Command::new("apt-get").args(["-q", "update"]))?;
        let mut fetch = Command::new("apt-get");
        fetch.args(["-q", "download", PACKAGE]).current_dir(folder);
        process::quiet(&mut fetch)?;
        let mut files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        let package = files.next().context("apt-get downloaded no package")?;
        unpack(&package, folder)?;
        fs::remove_file(&package).with_context(|| format!("remove {}", package.display()))?;
        step.done("");
        Ok(())
    })?;
    Ok(folder.join(PROGRAM))
}

/// Takes the one program out of a package.
fn unpack(package: &Path, folder: &Path) -> Result<()> {
    let archive = folder.join("files.tar");
    let file =
        fs::File::create(&archive).with_context(|| format!("create {}", archive.display()))?;
    process::run(
        Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(package)
            .stdout(file),
    )?;
    process::quiet(
        Command::new("tar")
            .arg("--extract")
            .arg("--file")
            .arg(&archive)
            .arg("--directory")
            .arg(folder)
            .arg(PROGRAM),
    )?;
    fs::remove_file(&archive).with_context(|| format!("remove {}", archive.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case(series: &str, alert: &str, fires: bool) -> Value {
        let expected = if fires { vec![json!({})] } else { vec![] };
        json!({
            "input_series": [{"series": series, "values": "1"}],
            "alert_rule_test": [{"alertname": alert, "exp_alerts": expected}],
        })
    }

    #[test]
    fn an_alert_must_be_seen_to_fire_and_to_keep_quiet_on_data() {
        let alert = json!({"alert": "A"});
        let alerts = [&alert];
        let fires = case("m{}", "A", true);
        let unmeasured = case("up{}", "A", false);
        assert_eq!(untried(&alerts, &[]).len(), 2);
        assert_eq!(untried(&alerts, &[fires.clone(), unmeasured]).len(), 1);
        assert!(untried(&alerts, &[fires, case("m{}", "A", false)]).is_empty());
    }

    #[test]
    fn an_alert_must_say_how_bad_it_is_and_what_to_do() {
        let alert = json!({"alert": "A", "for": "5m", "labels": {"severity": "warning"}});
        assert_eq!(
            silent(&[&alert]),
            [
                format!("{RULES}: A has no annotations/summary"),
                format!("{RULES}: A has no annotations/description"),
            ]
        );
        assert!(untold(&[&alert], "| `A` | means |").is_empty());
        assert_eq!(untold(&[&alert], "An A").len(), 1);
    }
}
