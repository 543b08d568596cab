//! Real programs for tests of single crates: an API server with its etcd, and a scheduler.
//!
//! They are there where `GUESTCLUSTER_TOOLS` names a folder with them, as `cargo xtask test` does,
//! and listen on the loopback address alone.

#![allow(
    clippy::unwrap_used,
    reason = "only tests use it, and a test fails by panicking"
)]

mod scheduler;
mod server;

pub use server::{Server, tools};

use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

/// Starts a program that ends with the value.
fn spawn(mut command: Command, log: &Path) -> Child {
    let log = std::fs::File::create(log).unwrap();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}
