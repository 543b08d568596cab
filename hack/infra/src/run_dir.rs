//! Where the local infrastructure keeps its state while it runs.

use std::path::{Path, PathBuf};

/// The longest name: it becomes part of interface and network namespace names.
const MAX_NAME: usize = 12;

/// Where the folders lie: not `/tmp`, because the disks of the machines must not lie in memory.
pub const PARENT: &str = "/var/tmp";

/// The folder of one local infrastructure, `/var/tmp/guestcluster-<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    name: String,
    root: PathBuf,
}

impl RunDir {
    /// The folder of the infrastructure called `name`; says what is wrong with a bad name.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let valid = !name.is_empty()
            && name.len() <= MAX_NAME
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        anyhow::ensure!(
            valid,
            "\"{name}\" is not a usable name: write 1 to {MAX_NAME} characters of a-z, 0-9 and -"
        );
        Ok(Self {
            name: name.to_owned(),
            root: Path::new(PARENT).join(format!("guestcluster-{name}")),
        })
    }

    /// The name of the infrastructure.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Log files of every process, one each.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Certificates and keys.
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// Kubeconfigs of the components, one each.
    pub fn kubeconfigs(&self) -> PathBuf {
        self.root.join("kubeconfigs")
    }

    /// The administrator's kubeconfig; its server answers only inside the network namespace.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// The socket on which the runner takes commands.
    pub fn control_socket(&self) -> PathBuf {
        self.root.join("control.sock")
    }

    /// The process id, outside, of the parent of the runner's first process.
    pub fn pid_file(&self) -> PathBuf {
        self.root.join("runner.pid")
    }

    /// What `up` asked the runner for.
    pub fn options(&self) -> PathBuf {
        self.root.join("options.json")
    }

    /// The audit log of the infrastructure's API server.
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }

    /// The log of the runner itself.
    pub fn runner_log(&self) -> PathBuf {
        self.logs().join("runner.log")
    }

    /// The folder of the disk behind the persistent volume `volume`.
    pub fn disk(&self, volume: &str) -> PathBuf {
        self.root.join("disks").join(volume)
    }

    /// The folder of one run of a machine: console, what it is started with.
    ///
    /// Each instance of a virtual machine has its own, so that a launcher's log is not its
    /// predecessor's.
    pub fn machine(&self, namespace: &str, instance: &str, uid: &str) -> PathBuf {
        let short = uid.split('-').next().unwrap_or_default();
        self.root
            .join("machines")
            .join(format!("{namespace}.{instance}.{short}"))
    }

    /// The folder of one Pod that is really run.
    pub fn pod(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::RunDir;

    #[test]
    fn a_name_becomes_a_folder() {
        let run = RunDir::new("infra").unwrap();
        assert_eq!(run.root().to_str(), Some("/var/tmp/guestcluster-infra"));
    }

    #[test]
    fn a_name_that_could_leave_the_folder_is_refused() {
        for name in ["", "../etc", "Upper", "much-too-long-a-name"] {
            assert!(RunDir::new(name).is_err(), "{name}");
        }
    }
}
