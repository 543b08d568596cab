//! Objects that the set-up applies with the infrastructure's own kubectl.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Applies server-side, and leaves the check of the fields to the server: the client's own would
/// download every schema first, with each call.
pub const APPLY: [&str; 4] = [
    "apply",
    "--server-side",
    "--force-conflicts",
    "--validate=false",
];

/// kubectl as the administrator of the infrastructure.
#[derive(Debug, Clone)]
pub struct Kubectl {
    /// The program.
    pub program: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
}

impl Kubectl {
    /// Applies `objects` server-side, taking the fields over from whoever has them.
    pub async fn apply(&self, objects: Vec<Value>) -> anyhow::Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.apply_text(list.to_string()).await
    }

    /// Creates `objects`, with the status that they carry.
    pub async fn create(&self, objects: Vec<Value>) -> anyhow::Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.run(&["create", "--validate=false", "-f", "-"], list.to_string())
            .await
    }

    /// Applies a document, YAML or JSON, server-side.
    pub async fn apply_text(&self, document: String) -> anyhow::Result<()> {
        self.run(&[&APPLY[..], &["-f", "-"]].concat(), document)
            .await
    }

    /// Runs kubectl with `arguments` and `input` on its standard input.
    pub async fn run(&self, arguments: &[&str], input: String) -> anyhow::Result<()> {
        let mut child = Command::new(&self.program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).await?;
        }
        let output = child.wait_with_output().await?;
        anyhow::ensure!(
            output.status.success(),
            "kubectl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }
}
