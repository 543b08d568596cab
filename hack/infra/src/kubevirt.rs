//! KubeVirt's own virt-controller and virt-api with everything that its operator would install:
//! definitions, RBAC, webhooks and the subresource API.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::control_plane::{flags, kubeconfig_path};
use crate::identity::Identity;
use crate::kubectl::{APPLY, Kubectl};
use crate::pki::Authority;
use crate::process::{Program, Supervisor, run};
use crate::run_dir::RunDir;
use crate::tools::KUBEVIRT_VERSION;

/// The name of virt-api among the programs.
pub const VIRT_API: &str = "virt-api";
/// The image of the launcher Pods; the kubelet stand-in knows it.
pub const LAUNCHER_IMAGE: &str = "registry.local/kubevirt/virt-launcher:v1.8.0";
/// The image of the Pods of the DaemonSet that stands for virt-handler.
pub const HANDLER_IMAGE: &str = "registry.local/kubevirt/virt-handler:v1.8.0";
const EXPORTER_IMAGE: &str = "registry.local/kubevirt/virt-exportserver:v1.8.0";

const VIRT_API_PORT: u16 = 28443;
const VIRT_API_CONSOLE_PORT: u16 = 28186;
const VIRT_CONTROLLER_PORT: u16 = 28182;

/// What KubeVirt is installed with.
pub struct KubeVirt<'a> {
    /// The run's folder.
    pub run: &'a RunDir,
    /// The folder of the programs.
    pub programs: &'a Path,
    /// The folder of CDI's definitions.
    pub cdi_crds: &'a Path,
    /// The authority of the run.
    pub authority: &'a Authority,
    /// The keeper of the programs.
    pub supervisor: &'a Supervisor,
    /// kubectl as administrator.
    pub kubectl: &'a Kubectl,
}

impl KubeVirt<'_> {
    /// Installs the definitions, CDI's first: virt-controller and virt-api end themselves when
    /// they appear later.
    pub async fn install_definitions(&self) -> anyhow::Result<()> {
        let own = self.objects(&["crds"]).await?;
        let importer = self.cdi_crds.display().to_string();
        let apply = [&APPLY[..], &["-f", &importer]].concat();
        tokio::try_join!(
            self.kubectl.run(&apply, String::new()),
            self.kubectl.apply_text(own)
        )?;
        let wait = [
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        ];
        self.kubectl.run(&wait, String::new()).await
    }

    /// Installs KubeVirt's RBAC and what its programs read at start.
    pub async fn install_objects(&self) -> anyhow::Result<()> {
        let namespaces = ["kube-system", "kubevirt", "cdi"].map(namespace);
        self.kubectl.apply(namespaces.into()).await?;
        let mut objects = own_objects();
        objects.push(front_proxy(&std::fs::read_to_string(
            self.authority.file(),
        )?));
        let (rbac, priority) =
            tokio::try_join!(self.objects(&["rbac"]), self.objects(&["priority-class"]))?;
        tokio::try_join!(
            self.kubectl.apply_text(rbac),
            self.kubectl.apply_text(priority),
            self.kubectl.apply(objects),
        )?;
        // Without a phase KubeVirt's programs take the object for one that is not installed yet.
        let status = json!({"status": {
            "phase": "Deployed",
            "defaultArchitecture": "amd64",
            "observedKubeVirtVersion": KUBEVIRT_VERSION,
            "targetKubeVirtVersion": KUBEVIRT_VERSION,
            "operatorVersion": KUBEVIRT_VERSION,
        }})
        .to_string();
        let patch = [
            "patch",
            "--namespace=kubevirt",
            "kubevirt/kubevirt",
            "--subresource=status",
            "--type=merge",
            "--patch",
            &status,
        ];
        self.kubectl.run(&patch, String::new()).await
    }

    /// Starts both programs and returns once webhooks and the subresource API work.
    pub async fn start(&self) -> anyhow::Result<()> {
        let controller = self.authority.issue(
            "virt-controller",
            "virt-controller",
            vec!["127.0.0.1".to_owned()],
        )?;
        let api = self.authority.issue(
            VIRT_API,
            "virt-api.kubevirt.svc",
            ["virt-api.kubevirt.svc", "localhost", "127.0.0.1"]
                .map(str::to_owned)
                .into(),
        )?;
        let (certificate, key) = (
            controller.certificate.display().to_string(),
            controller.key.display().to_string(),
        );
        self.launch(
            "virt-controller",
            &[
                ("kubeconfig", &self.kubeconfig(Identity::VirtController)),
                ("launcher-image", LAUNCHER_IMAGE),
                ("exporter-image", EXPORTER_IMAGE),
                ("listen", "127.0.0.1"),
                ("port", &VIRT_CONTROLLER_PORT.to_string()),
                ("prom-cert-file", &certificate),
                ("prom-key-file", &key),
                // A slow box must not make it lose its lease: it would end itself.
                ("leader-elect-lease-duration", "60s"),
                ("leader-elect-renew-deadline", "45s"),
                ("leader-elect-retry-period", "5s"),
            ],
        )?;
        self.launch(
            VIRT_API,
            &[
                ("kubeconfig", &self.kubeconfig(Identity::VirtApi)),
                ("listen", "127.0.0.1"),
                ("port", &VIRT_API_PORT.to_string()),
                ("console-server-port", &VIRT_API_CONSOLE_PORT.to_string()),
                ("tls-cert-file", &api.certificate.display().to_string()),
                ("tls-key-file", &api.key.display().to_string()),
                ("handler-cert-file", &certificate),
                ("handler-key-file", &key),
            ],
        )?;
        wait_for_port(VIRT_API_PORT, Duration::from_secs(60)).await?;
        self.install_endpoints().await
    }

    /// Registers webhooks and the subresource API, once virt-api answers: a registered API that
    /// does not answer makes namespace deletion hang.
    async fn install_endpoints(&self) -> anyhow::Result<()> {
        let ca = self.authority.file().display().to_string();
        let port = VIRT_API_PORT.to_string();
        let services = ["-ca", &ca, "-port", &port, "api-services"];
        let webhooks = ["-ca", &ca, "-port", &port, "webhooks"];
        let (services, webhooks) =
            tokio::try_join!(self.objects(&services), self.objects(&webhooks))?;
        tokio::try_join!(
            self.kubectl.apply_text(services),
            self.kubectl.apply_text(webhooks)
        )?;
        let wait = [
            "wait",
            "--for=condition=Available",
            "apiservice/v1.subresources.kubevirt.io",
            "--timeout=60s",
        ];
        self.kubectl.run(&wait, String::new()).await
    }

    async fn objects(&self, arguments: &[&str]) -> anyhow::Result<String> {
        run(Command::new(self.programs.join("kubevirt-objects")).args(arguments)).await
    }

    fn launch(&self, name: &'static str, pairs: &[(&str, &str)]) -> anyhow::Result<()> {
        self.supervisor.start(Program {
            name,
            executable: self.programs.join(name),
            arguments: flags(pairs),
            log: self.run.logs().join(format!("{name}.log")),
        })
    }

    fn kubeconfig(&self, identity: Identity) -> String {
        kubeconfig_path(self.run, identity).display().to_string()
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// The KubeVirt object, the DaemonSet and the Service.
///
/// virt-controller counts the DaemonSets that carry its label and fails no instance of a dead host
/// unless it finds exactly one. The Service is of type ExternalName, because the API server's
/// resolver then dials loopback, where no endpoint may point.
fn own_objects() -> Vec<Value> {
    let labels = json!({"kubevirt.io": "virt-handler"});
    vec![
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
            "spec": {"configuration": {
                "developerConfiguration": {"featureGates": ["CPUManager"]}
            }},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "virt-handler", "namespace": "kubevirt", "labels": labels},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "hostNetwork": true,
                        "automountServiceAccountToken": false,
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": "virt-handler", "image": HANDLER_IMAGE}],
                    },
                },
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "virt-api", "namespace": "kubevirt"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }),
    ]
}

/// What the API server publishes about its front proxy, which virt-api ends itself without.
///
/// The API server writes it too, but when its first try comes too early, a minute after its start.
fn front_proxy(authority: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {
            "client-ca-file": authority,
            "requestheader-client-ca-file": authority,
            "requestheader-allowed-names": r#"["front-proxy-client"]"#,
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        },
    })
}

async fn wait_for_port(port: u16, limit: Duration) -> anyhow::Result<()> {
    let answers = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(limit, answers)
        .await
        .with_context(|| format!("nothing answers on port {port}"))
}
