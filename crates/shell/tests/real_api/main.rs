//! What the shell promises about an API server, asked of a real one.
//!
//! Runs where `GUESTCLUSTER_TOOLS` names a folder with the programs. One server serves all scenarios,
//! each in a namespace of its own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod scenarios;

use std::path::Path;

use guestcluster_real::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shell_keeps_its_promises_on_a_real_api_server() {
    let Some(tools) = guestcluster_real::tools() else {
        eprintln!("skipped: GUESTCLUSTER_TOOLS names no folder with the programs");
        return;
    };
    let server = Server::start(&tools, Path::new(env!("CARGO_TARGET_TMPDIR"))).await;
    scenarios::run(&server).await;
}
