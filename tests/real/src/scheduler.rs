//! A scheduler with the default filters.

use std::path::Path;

use serde_json::json;
use tokio::process::{Child, Command};

use crate::spawn;

pub(crate) fn start(tools: &Path, folder: &Path, server: &http::Uri, token: &str) -> Child {
    let kubeconfig = folder.join("kubeconfig.json");
    let access = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "clusters": [{ "name": "c", "cluster": {
            "server": server.to_string(), "insecure-skip-tls-verify": true,
        }}],
        "users": [{ "name": "u", "user": { "token": token } }],
    });
    let configuration = folder.join("kube-scheduler.json");
    let options = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": { "leaderElect": false },
        "clientConnection": { "kubeconfig": kubeconfig, "qps": 1000, "burst": 1000 },
    });
    for (file, content) in [(&kubeconfig, access), (&configuration, options)] {
        std::fs::write(file, content.to_string()).unwrap();
    }
    let mut command = Command::new(tools.join("kube-scheduler"));
    // Nobody asks for its health, so it needs no port.
    command
        .args(["--bind-address", "127.0.0.1", "--secure-port", "0"])
        .arg("--config")
        .arg(configuration);
    spawn(command, &folder.join("kube-scheduler.log"))
}
