//! Runs iproute2's `ip`.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::process;

/// Runs one `ip` command and returns what it printed.
pub(super) async fn ip(arguments: &[&str]) -> Result<String> {
    process::run(Command::new("ip").args(arguments)).await
}

/// Runs `ip` commands, one a line, in the network namespace `namespace`; the first that fails ends it.
///
/// One process for all of them: a machine's wire is eight commands, and starting programs is what
/// they cost.
pub(super) async fn batch(namespace: &str, script: &str) -> Result<()> {
    let mut child = Command::new("ip")
        .args(["-n", namespace, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start ip")?;
    if let Some(mut input) = child.stdin.take() {
        // If it has ended early, its exit status below tells why.
        let _ = input.write_all(script.as_bytes()).await;
    }
    let output = child.wait_with_output().await.context("lost ip")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "ip in namespace {namespace}: {}",
        said.trim()
    );
    Ok(())
}
