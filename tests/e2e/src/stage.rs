//! Where scenarios play: a cluster with KubeVirt, kubectl and helm, and what can be broken.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use guestcluster_infra::faults::{Fault, Target};
use guestcluster_infra::up::Infra;
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Namespace of the operator.
pub const SYSTEM: &str = "guestcluster-system";
/// Helm release and name of the operator's objects.
pub const RELEASE: &str = "guestcluster-operator";

/// Which cluster.
pub enum Place {
    /// The local infrastructure, entered.
    Local(Box<Infra>),
    /// Any cluster with KubeVirt.
    Real {
        /// Its administrator's kubeconfig.
        kubeconfig: PathBuf,
        /// Guest node image.
        image: String,
    },
}

/// Starts this program again inside an infrastructure's network: from outside, nothing is ever sent
/// to its addresses.
pub fn again_inside(infra: &Infra) -> anyhow::Result<std::process::ExitStatus> {
    infra
        .command(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--inside")
        .status()
        .context("cannot enter the infrastructure's network")
}

/// Everything that a scenario needs.
pub struct Stage {
    place: Place,
    project: PathBuf,
    client: Client,
    /// Longer forms of scenarios that have one.
    pub full: bool,
}

impl Stage {
    /// Connects to the cluster.
    pub async fn set(place: Place, project: &Path, full: bool) -> anyhow::Result<Self> {
        let file = match &place {
            Place::Local(infra) => infra.run_dir().kubeconfig(),
            Place::Real { kubeconfig, .. } => kubeconfig.clone(),
        };
        let kubeconfig = kube::config::Kubeconfig::read_from(file)?;
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        Ok(Self {
            place,
            project: project.to_owned(),
            client,
            full,
        })
    }

    /// The infrastructure cluster, as its administrator.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The local infrastructure, for faults; an error on a real cluster.
    pub fn infra(&self) -> anyhow::Result<&Infra> {
        match &self.place {
            Place::Local(infra) => Ok(infra),
            Place::Real { .. } => anyhow::bail!("not on the local infrastructure"),
        }
    }

    /// Breaks or mends something.
    pub async fn fault(&self, fault: Fault) -> anyhow::Result<()> {
        self.infra()?.fault(fault).await
    }

    /// Runs a command in a machine, as on its console, and returns what it printed.
    pub async fn on_console(&self, target: Target, argv: &[&str]) -> anyhow::Result<String> {
        let output = self.infra()?.machine_exec(target, argv).await?;
        anyhow::ensure!(output.code == Some(0), "{argv:?}: {}", output.stderr);
        Ok(output.stdout)
    }

    /// `spec.image.registry` of guests.
    pub fn image(&self) -> anyhow::Result<String> {
        match &self.place {
            Place::Local(infra) => {
                let image = infra.options().image.as_ref();
                Ok(image
                    .context("the infrastructure boots no machines")?
                    .reference
                    .clone())
            }
            Place::Real { image, .. } => Ok(image.clone()),
        }
    }

    /// Version and `spec.image.registry` of the next minor.
    pub fn next_image(&self) -> anyhow::Result<(String, String)> {
        let next = self.infra()?.options().next_image.as_ref();
        let next = next.context("the infrastructure has no image of the next minor")?;
        Ok((next.kubernetes.clone(), next.reference.clone()))
    }

    /// A file of the project.
    pub fn file(&self, path: &str) -> PathBuf {
        self.project.join(path)
    }

    /// Runs kubectl and returns what it printed, or fails with what it complained of.
    pub async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.program("kubectl", arguments, "").await
    }

    /// Runs kubectl with a document on its standard input.
    pub async fn kubectl_with(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        self.program("kubectl", arguments, input).await
    }

    /// Runs helm.
    pub async fn helm(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.program("helm", arguments, "").await
    }

    /// Runs the plugin for kubectl, which is built beside this program.
    pub async fn plugin(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let program = std::env::current_exe()?.with_file_name("kubectl-guestcluster");
        self.run(&program, arguments, "").await
    }

    async fn program(&self, name: &str, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let program = match &self.place {
            Place::Local(infra) => infra.options().program(name),
            Place::Real { .. } => PathBuf::from(name),
        };
        self.run(&program, arguments, input).await
    }

    async fn run(&self, program: &Path, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let mut command = Command::new(program);
        match &self.place {
            Place::Local(infra) => {
                let programs = infra.options().programs.display().to_string();
                command
                    .env("PATH", format!("{programs}:/usr/sbin:/usr/bin:/sbin:/bin"))
                    .env("KUBECONFIG", infra.run_dir().kubeconfig());
            }
            Place::Real { kubeconfig, .. } => {
                command.env("KUBECONFIG", kubeconfig);
            }
        }
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let name = program.display();
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).await?;
        }
        let waited = tokio::time::timeout(Duration::from_secs(300), child.wait_with_output());
        let output = waited
            .await
            .with_context(|| format!("{name} {arguments:?} hangs"))??;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(
            output.status.success(),
            "{name} {}: {} {said}",
            arguments.join(" "),
            complaint.trim()
        );
        Ok(said)
    }

    /// Every GuestCluster as `namespace/name`; unknown if the API does not answer.
    pub async fn guests(&self) -> Option<BTreeSet<String>> {
        let path = "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{'\\n'}{end}";
        let names = self.kubectl(&["get", "gc", "-A", "-o", path]).await;
        Some(names.ok()?.lines().map(str::to_owned).collect())
    }

    /// Deletes every guest that was not there before; what goes wrong is printed.
    pub async fn deletes_guests_but(&self, before: &Option<BTreeSet<String>>) {
        let (Some(before), Some(now)) = (before, self.guests().await) else {
            println!("which guests are new is not known; all are left");
            return;
        };
        for (namespace, name) in now.difference(before).filter_map(|g| g.split_once('/')) {
            let arguments = ["-n", namespace, "delete", "gc", name, "--timeout=120s"];
            match self.kubectl(&arguments).await {
                Ok(_) => println!("{namespace}/{name} was deleted"),
                Err(error) => println!("{error:#}"),
            }
        }
    }

    /// Prints what a person would look at first after a failure.
    pub async fn describe_failure(&self) {
        let looks: [&[&str]; 3] = [
            &["get", "gc,vmi,pod", "-A", "-o", "wide"],
            &[
                "get",
                "gc",
                "-A",
                "-o",
                "jsonpath={range .items[*]}{.metadata.name}{'\\n'}{range .status.conditions[*]}  {.type}={.status} {.reason}: {.message}{'\\n'}{end}{end}",
            ],
            &[
                "-n",
                SYSTEM,
                "logs",
                "-l",
                "app.kubernetes.io/name=guestcluster-operator",
                "--tail=15",
                "--prefix",
            ],
        ];
        for look in looks {
            match self.kubectl(look).await {
                Ok(text) => println!("$ kubectl {}\n{text}", look.join(" ")),
                Err(error) => println!("{error:#}"),
            }
        }
    }
}
