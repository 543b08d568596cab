//! What Argo CD shows for a GuestCluster and a HostMaintenance, by Argo CD's own runner of health checks.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use guestcluster_infra::cache::{Cache, KeyBuilder};
use guestcluster_infra::progress::Progress;
use serde_json::{Value, json};

use crate::process;
use crate::project::Project;

const MODULE: &str = "hack/tools/argocd";
const PROGRAM: &str = "argocd-health";
const SCRIPT: &str = "config/argocd/health.lua";

/// Runs the health check over every state that a status tells apart.
pub fn check(project: &Project) -> Result<()> {
    let program = program(project)?;
    let script = project.path(SCRIPT);
    let mut wrong = Vec::new();
    for (sentence, object, expected) in cases() {
        let health = health(&program, &script, &object)?;
        if health["status"] != expected {
            wrong.push(format!("{sentence}: {health}, not {expected}"));
        }
    }
    if !wrong.is_empty() {
        bail!("{SCRIPT}: {}", wrong.join("\n  "));
    }
    Ok(())
}

/// A sentence, an object, and the health that Argo CD must show.
fn cases() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        (
            "not seen yet",
            json!({"kind": "GuestCluster", "metadata": {"generation": 1}}),
            "Progressing",
        ),
        ("serving", seen(1, &[("Ready", "True")]), "Healthy"),
        (
            "a newer specification is not seen yet",
            seen(0, &[("Ready", "True")]),
            "Progressing",
        ),
        (
            "being made",
            seen(1, &[("Ready", "False"), ("Reconciling", "True")]),
            "Progressing",
        ),
        (
            "broken and not being mended",
            seen(1, &[("Ready", "False"), ("Reconciling", "False")]),
            "Degraded",
        ),
        (
            "waiting for a person",
            seen(1, &[("Stalled", "True"), ("Ready", "True")]),
            "Degraded",
        ),
        (
            "paused",
            seen(1, &[("Paused", "True"), ("Ready", "True")]),
            "Suspended",
        ),
        (
            "not known yet",
            seen(1, &[("Ready", "Unknown")]),
            "Progressing",
        ),
        (
            "a host that is being emptied",
            maintenance("Draining", &[("Ready", "False"), ("Reconciling", "True")]),
            "Progressing",
        ),
        (
            "a maintenance that a person holds",
            maintenance("Paused", &[("Ready", "False"), ("Reconciling", "False")]),
            "Suspended",
        ),
        (
            "a host that cannot be emptied",
            maintenance("Blocked", &[("Ready", "False"), ("Stalled", "True")]),
            "Degraded",
        ),
        (
            "an empty host",
            maintenance("Done", &[("Ready", "True"), ("Stalled", "False")]),
            "Healthy",
        ),
    ]
}

/// A GuestCluster of generation 1 with conditions.
fn seen(observed_generation: i64, conditions: &[(&str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(name, status)| json!({"type": name, "status": status, "reason": "Given", "message": "given"}))
        .collect();
    json!({
        "kind": "GuestCluster",
        "metadata": {"generation": 1},
        "status": {"observedGeneration": observed_generation, "conditions": conditions},
    })
}

/// A HostMaintenance in a phase.
fn maintenance(phase: &str, conditions: &[(&str, &str)]) -> Value {
    let mut object = seen(1, conditions);
    object["kind"] = json!("HostMaintenance");
    object["status"]["phase"] = json!(phase);
    object
}

fn health(program: &Path, script: &Path, object: &Value) -> Result<Value> {
    let mut child = Command::new(program)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(object.to_string().as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("Argo CD's runner refuses {SCRIPT}");
    }
    serde_json::from_slice(&output.stdout).context("read what Argo CD's runner says")
}

/// The runner, built once.
fn program(project: &Project) -> Result<PathBuf> {
    let mut key = KeyBuilder::default();
    for name in ["go.mod", "go.sum", "main.go"] {
        let file = project.path(MODULE).join(name);
        let content = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        key = key.input(name, content);
    }
    let progress = Progress::detect();
    let folder = Cache::open()?.ensure(PROGRAM, &key.key(), &progress, |folder| {
        let step = progress.step("build Argo CD's runner of health checks");
        let mut go = Command::new("go");
        go.current_dir(project.path(MODULE)).env("CGO_ENABLED", "0");
        go.args(["build", "-trimpath", "-ldflags=-s -w", "-o"])
            .arg(folder.join(PROGRAM))
            .arg(".");
        process::quiet(&mut go)?;
        step.done("");
        Ok(())
    })?;
    Ok(folder.join(PROGRAM))
}
