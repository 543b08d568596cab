//! etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kube-proxy of the
//! infrastructure cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use kube::Client;

use crate::addresses::{API_PORT, KUBERNETES_SERVICE, POD_RANGE, ROUTER, SERVICE_RANGE};
use crate::identity::{Identity, Tokens};
use crate::pki::{Authority, api_server_names, service_account_keys};
use crate::process::{Program, Supervisor};
use crate::run_dir::RunDir;

/// The name of the API server among the programs.
pub const API_SERVER: &str = "kube-apiserver";

/// Writes only, each with user, verb and object but without bodies. Leases and Events are left
/// out: they are the machinery's noise, and write counts do not include them.
const AUDIT_POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources:
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: "", resources: [events]}
  - {group: events.k8s.io, resources: [events]}
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
"#;

/// What the programs of the control plane are started with.
pub struct ControlPlane<'a> {
    /// The run's folder.
    pub run: &'a RunDir,
    /// The folder of the programs.
    pub programs: &'a Path,
    /// The authority of the run.
    pub authority: &'a Authority,
    /// The bearer tokens of the run.
    pub tokens: &'a Tokens,
    /// The keeper of the programs.
    pub supervisor: &'a Supervisor,
}

impl ControlPlane<'_> {
    /// Starts etcd and the API server and returns once it is ready.
    pub async fn start_api(&self, admin: &Client) -> anyhow::Result<()> {
        let (signing, public) = service_account_keys(&self.run.pki())?;
        self.start("etcd", self.etcd_arguments())?;
        let arguments = self.api_server_arguments(&signing, &public)?;
        self.start(API_SERVER, arguments)?;
        wait_ready(admin, Duration::from_secs(120)).await
    }

    /// Starts the controllers that every cluster has.
    pub fn start_controllers(&self) -> anyhow::Result<()> {
        let signing = self.run.pki().join("sa.key");
        self.start(
            "kube-controller-manager",
            flags(&[
                ("kubeconfig", &self.kubeconfig(Identity::ControllerManager)),
                (
                    "authentication-kubeconfig",
                    &self.kubeconfig(Identity::ControllerManager),
                ),
                (
                    "authorization-kubeconfig",
                    &self.kubeconfig(Identity::ControllerManager),
                ),
                ("bind-address", "127.0.0.1"),
                ("leader-elect", "false"),
                ("use-service-account-credentials", "true"),
                ("service-account-private-key-file", &text(&signing)),
                ("root-ca-file", &text(&self.authority.file())),
                ("allocate-node-cidrs", "false"),
            ]),
        )?;
        self.start(
            "kube-scheduler",
            flags(&[
                ("kubeconfig", &self.kubeconfig(Identity::Scheduler)),
                (
                    "authentication-kubeconfig",
                    &self.kubeconfig(Identity::Scheduler),
                ),
                (
                    "authorization-kubeconfig",
                    &self.kubeconfig(Identity::Scheduler),
                ),
                ("bind-address", "127.0.0.1"),
                ("leader-elect", "false"),
            ]),
        )
    }

    /// Starts the one kube-proxy, on behalf of the host `host`.
    ///
    /// One is enough, since all hosts share the network namespace; the conntrack limits can be
    /// written in the box's first network namespace only, so it must leave them alone.
    pub fn start_proxy(&self, host: &str) -> anyhow::Result<()> {
        let file = self.run.root().join("kube-proxy.yaml");
        let config = format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
             mode: iptables\nclusterCIDR: {POD_RANGE}\nhostnameOverride: {host}\n\
             clientConnection: {{kubeconfig: \"{}\"}}\n\
             conntrack: {{maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}\n\
             iptables: {{syncPeriod: 60s, minSyncPeriod: 100ms}}\n\
             healthzBindAddress: 127.0.0.1:10256\nmetricsBindAddress: 127.0.0.1:10249\n",
            self.kubeconfig(Identity::Proxy)
        );
        std::fs::write(&file, config)?;
        self.start("kube-proxy", flags(&[("config", &text(&file))]))
    }

    /// Starts the name server of Pods and machines, which knows no name. Where none listens, a
    /// question is refused by ICMP at first and then, the kernel sends such answers seldom, not at
    /// all: whoever asks waits for seconds, as on no real network.
    pub fn start_name_server(&self) -> anyhow::Result<()> {
        let file = self.run.root().join("Corefile");
        let config = format!(
            ". {{\n    bind {ROUTER}\n    template ANY ANY {{\n        rcode NXDOMAIN\n    }}\n}}\n"
        );
        std::fs::write(&file, config)?;
        let conf = text(&file);
        self.start("coredns", vec!["-conf".to_owned(), conf])
    }

    fn start(&self, name: &'static str, arguments: Vec<String>) -> anyhow::Result<()> {
        self.supervisor.start(Program {
            name,
            executable: self.programs.join(name),
            arguments,
            log: self.run.logs().join(format!("{name}.log")),
        })
    }

    fn kubeconfig(&self, identity: Identity) -> String {
        text(&kubeconfig_path(self.run, identity))
    }

    fn etcd_arguments(&self) -> Vec<String> {
        let mut arguments = flags(&[
            ("data-dir", &text(&self.run.root().join("etcd"))),
            ("listen-client-urls", "http://127.0.0.1:2379"),
            ("advertise-client-urls", "http://127.0.0.1:2379"),
            ("listen-peer-urls", "http://127.0.0.1:2380"),
            ("initial-advertise-peer-urls", "http://127.0.0.1:2380"),
            ("initial-cluster", "default=http://127.0.0.1:2380"),
        ]);
        // Its state is thrown away at the end of the run.
        arguments.push("--unsafe-no-fsync".to_owned());
        arguments
    }

    fn api_server_arguments(&self, signing: &Path, public: &Path) -> anyhow::Result<Vec<String>> {
        let authority = self.authority;
        let serving = authority.issue("api-server", "kube-apiserver", api_server_names())?;
        let kubelet = authority.issue("kubelet-client", "kube-apiserver-kubelet-client", vec![])?;
        let proxy = authority.issue("front-proxy", "front-proxy-client", vec![])?;
        let (policy, tokens) = (
            self.run.root().join("audit-policy.yaml"),
            self.run.pki().join("tokens.csv"),
        );
        std::fs::write(&policy, AUDIT_POLICY)?;
        std::fs::write(&tokens, self.tokens.auth_file())?;
        let ca = text(&authority.file());
        Ok(flags(&[
            ("etcd-servers", "http://127.0.0.1:2379"),
            ("secure-port", &API_PORT.to_string()),
            ("advertise-address", &ROUTER.to_string()),
            ("tls-cert-file", &text(&serving.certificate)),
            ("tls-private-key-file", &text(&serving.key)),
            ("client-ca-file", &ca),
            ("token-auth-file", &text(&tokens)),
            ("authorization-mode", "RBAC"),
            ("allow-privileged", "true"),
            ("service-cluster-ip-range", SERVICE_RANGE),
            ("service-account-issuer", "https://kubernetes.default.svc"),
            ("service-account-key-file", &text(public)),
            ("service-account-signing-key-file", &text(signing)),
            ("requestheader-client-ca-file", &ca),
            ("requestheader-allowed-names", "front-proxy-client"),
            ("requestheader-username-headers", "X-Remote-User"),
            ("requestheader-group-headers", "X-Remote-Group"),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
            ("proxy-client-cert-file", &text(&proxy.certificate)),
            ("proxy-client-key-file", &text(&proxy.key)),
            ("kubelet-certificate-authority", &ca),
            ("kubelet-client-certificate", &text(&kubelet.certificate)),
            ("kubelet-client-key", &text(&kubelet.key)),
            ("kubelet-preferred-address-types", "InternalIP"),
            ("audit-policy-file", &text(&policy)),
            ("audit-log-path", &text(&self.run.audit_log())),
        ]))
    }
}

/// Where the kubeconfig of `identity` lies.
pub fn kubeconfig_path(run: &RunDir, identity: Identity) -> PathBuf {
    match identity {
        Identity::Admin => run.kubeconfig(),
        other => run.kubeconfigs().join(other.file_name()),
    }
}

/// Waits until the API server says that it is ready.
pub async fn wait_ready(client: &Client, limit: Duration) -> anyhow::Result<()> {
    let ready = async {
        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            match client.request_text(request).await {
                Ok(_) => return anyhow::Ok(()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(limit, ready)
        .await
        .with_context(|| format!("the API server at {KUBERNETES_SERVICE} is not ready"))?
}

/// `--name=value` for each pair.
pub fn flags(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
