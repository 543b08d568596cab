//! What the shell promises about an API server, asked of a real one.
//!
//! Runs where `GUESTCLUSTER_TOOLS` names a folder with `etcd` and `kube-apiserver`; both listen on
//! the loopback address alone. One server serves all scenarios, each in a namespace of its own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod scenarios;
mod server;

use server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shell_keeps_its_promises_on_a_real_api_server() {
    let Some(tools) = server::tools() else {
        eprintln!("skipped: GUESTCLUSTER_TOOLS names no folder with etcd and kube-apiserver");
        return;
    };
    let server = Server::start(&tools).await;
    scenarios::run(&server).await;
}
