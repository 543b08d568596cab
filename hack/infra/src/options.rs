//! What the runner of a local infrastructure is asked for.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::addresses::MAX_HOSTS;
use crate::node_image::NodeImage;
use crate::run_dir::RunDir;

/// Everything that the runner needs to know, written by `up` and read by the runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerOptions {
    /// The name of the infrastructure.
    pub name: String,
    /// How many hosts.
    pub hosts: u8,
    /// Boot nothing: an instance runs as soon as its handler sees it.
    pub paper: bool,
    /// The folder of the programs.
    pub programs: PathBuf,
    /// The folder of CDI's definitions.
    pub cdi_crds: PathBuf,
    /// The node image of the infrastructure's own Kubernetes; none on paper.
    pub image: Option<NodeImage>,
    /// The node image of the minor after it, to upgrade guests to; none on paper.
    pub next_image: Option<NodeImage>,
    /// The helper that starts machines.
    pub machine_helper: PathBuf,
    /// The static binary that Pods of the operator's image run.
    pub operator_binary: Option<PathBuf>,
}

impl RunnerOptions {
    /// Reads what `up` wrote.
    pub fn read(run: &RunDir) -> anyhow::Result<Self> {
        let file = run.options();
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("cannot parse {}", file.display()))
    }

    /// Writes them for the runner.
    pub fn write(&self, run: &RunDir) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(run.options(), text).context("cannot write the runner's options")
    }

    /// Says what is wrong with them.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            (1..=MAX_HOSTS).contains(&self.hosts),
            "the number of hosts must be 1 to {MAX_HOSTS}"
        );
        anyhow::ensure!(
            self.paper || self.image.is_some(),
            "machines need a node image; without one only paper machines are possible"
        );
        Ok(())
    }

    /// Every node image that can be pulled; none on paper.
    pub fn images(&self) -> impl Iterator<Item = &NodeImage> {
        self.image.iter().chain(&self.next_image)
    }

    /// The path of one of the programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Whether the folder of the programs has them all.
    pub fn missing_program(&self) -> Option<&'static str> {
        PROGRAMS
            .into_iter()
            .find(|name| !exists(&self.programs.join(name)))
    }
}

/// The programs that the infrastructure cluster is made of.
pub const PROGRAMS: [&str; 9] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubevirt-objects",
    "virt-api",
    "virt-controller",
];

fn exists(path: &Path) -> bool {
    path.try_exists().unwrap_or(false)
}
