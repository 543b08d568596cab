//! How other processes talk to the runner: JSON lines over a socket in the run's folder.
//!
//! A socket in the file system is reached from outside the network namespace, and by root only.

use std::path::PathBuf;

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::cluster_api::Order;
use crate::faults::{Fault, Target};
use crate::run_dir::RunDir;

/// A question to the runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// What it has done so far: every step, the newest last; answers again with each step.
    Follow,
    /// Hosts, guests, programs.
    Status,
    /// Break or mend something.
    Fault(Fault),
    /// From now on Pods of the operator's image run this binary; present ones when they restart.
    OperatorBinary(PathBuf),
    /// Install Cluster API.
    ClusterApi(Order),
    /// Run a program inside a machine.
    MachineExec(Target, Vec<String>),
}

/// How a start goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartUp {
    /// A step is being done.
    Step(String),
    /// Everything is up.
    Ready,
    /// It cannot be brought up.
    Failed(String),
}

/// What a program in a machine said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutput {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// One line of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The answer.
    Ok(Value),
    /// Why there is none.
    Error(String),
}

impl Answer {
    /// The answer that carries this result.
    pub fn of<T: Serialize>(result: anyhow::Result<T>) -> Self {
        match result.and_then(|value| Ok(serde_json::to_value(value)?)) {
            Ok(value) => Self::Ok(value),
            Err(error) => Self::Error(format!("{error:#}")),
        }
    }
}

/// A connection to a runner.
pub struct Control {
    stream: BufReader<UnixStream>,
}

impl Control {
    /// Connects to the runner of `run`; an error says that it is not up.
    pub async fn connect(run: &RunDir) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(run.control_socket())
            .await
            .with_context(|| format!("the local infrastructure \"{}\" is not up", run.name()))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// The process id of the runner, as seen from here.
    pub fn runner_pid(&self) -> anyhow::Result<i32> {
        let peer = self.stream.get_ref().peer_cred()?;
        peer.pid().context("the runner has no process id here")
    }

    /// Asks and waits for the answer.
    pub async fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> anyhow::Result<T> {
        self.send(request).await?;
        self.next()
            .await?
            .context("the runner ended before it answered")
    }

    /// Sends a question whose answers are read with [`Control::next`].
    pub async fn send(&mut self, request: &Request) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).await?;
        Ok(())
    }

    /// The next line of the answer; none when the runner has closed the connection.
    pub async fn next<T: DeserializeOwned>(&mut self) -> anyhow::Result<Option<T>> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        match serde_json::from_str(&line).context("the runner answered what is no answer")? {
            Answer::Ok(value) => Ok(Some(serde_json::from_value(value)?)),
            Answer::Error(message) => anyhow::bail!("{message}"),
        }
    }
}
