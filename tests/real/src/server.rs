//! An API server with its etcd, for as long as the value lives.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::{Client, Config};
use tokio::process::{Child, Command};

use crate::{scheduler, spawn};

/// How long the server may take to become ready; three seconds are usual.
const READY: Duration = Duration::from_secs(90);

/// Who may do anything.
const ALL: &str = "all";
/// Two people: one who may do anything, one who may do nothing.
const TOKENS: &str = "all,admin,1,\"system:masters\"\nnone,nobody,2,\n";

/// The folder with the programs, if `GUESTCLUSTER_TOOLS` names one that has them.
pub fn tools() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("GUESTCLUSTER_TOOLS")?);
    let programs = ["etcd", "kube-apiserver", "kube-scheduler"];
    let all = programs
        .iter()
        .all(|program| folder.join(program).is_file());
    all.then_some(folder)
}

/// A running API server. Dropping it ends all its processes.
///
/// No controller runs beside it: nobody makes service accounts, sets a Node's taints or takes them
/// off.
pub struct Server {
    url: http::Uri,
    tools: PathBuf,
    folder: PathBuf,
    processes: Vec<Child>,
}

impl Server {
    /// Starts etcd and the API server, which keep their files below `scratch`, and waits until the
    /// API is ready. A test's own scratch folder is `CARGO_TARGET_TMPDIR`.
    ///
    /// # Panics
    /// If they do not start; their logs are kept then.
    pub async fn start(tools: &Path, scratch: &Path) -> Self {
        let folder = scratch.join(format!("real-api-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [client, peer, api] = free_ports();
        let etcd = etcd(tools, &folder, client, peer);
        let apiserver = apiserver(tools, &folder, client, api);
        let url = format!("https://127.0.0.1:{api}").parse().unwrap();
        let server = Self {
            url,
            tools: tools.to_owned(),
            folder,
            processes: vec![etcd, apiserver],
        };
        server.wait_until_ready().await;
        server
    }

    /// Starts the scheduler, which decides about Pods from what is there when it starts.
    ///
    /// # Panics
    /// If it does not start.
    pub fn run_scheduler(&mut self) {
        let scheduler = scheduler::start(&self.tools, &self.folder, &self.url, ALL);
        self.processes.push(scheduler);
    }

    /// A client that may do anything.
    pub fn admin(&self) -> Client {
        self.client(ALL)
    }

    /// A client that may do nothing.
    pub fn nobody(&self) -> Client {
        self.client("none")
    }

    fn client(&self, token: &str) -> Client {
        let mut config = Config::new(self.url.clone());
        // The server makes its own certificate at each start.
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(token.to_owned().into());
        Client::try_from(config).unwrap()
    }

    async fn wait_until_ready(&self) {
        let client = self.admin();
        let poll = async {
            let request = || http::Request::get("/readyz").body(Vec::new()).unwrap();
            while client.request_text(request()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let ready = tokio::time::timeout(READY, poll).await;
        assert!(
            ready.is_ok(),
            "not ready; logs in {}",
            self.folder.display()
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // What is left behind lies in the build folder and is in nobody's way.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn etcd(tools: &Path, folder: &Path, client: u16, peer: u16) -> Child {
    let url = |port| format!("http://127.0.0.1:{port}");
    let mut command = Command::new(tools.join("etcd"));
    command
        .arg("--data-dir")
        .arg(folder.join("etcd"))
        .args([
            "--listen-client-urls",
            &url(client),
            "--advertise-client-urls",
            &url(client),
        ])
        .args([
            "--listen-peer-urls",
            &url(peer),
            "--initial-advertise-peer-urls",
            &url(peer),
        ])
        .args(["--initial-cluster", &format!("default={}", url(peer))])
        .args(["--log-level", "warn", "--unsafe-no-fsync"]);
    spawn(command, &folder.join("etcd.log"))
}

fn apiserver(tools: &Path, folder: &Path, etcd: u16, port: u16) -> Child {
    let file = |name: &str, content: &str| {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let key = rcgen::KeyPair::generate().unwrap();
    let mut command = Command::new(tools.join("kube-apiserver"));
    command
        .args([
            "--bind-address",
            "127.0.0.1",
            "--advertise-address",
            "127.0.0.1",
        ])
        .args(["--secure-port", &port.to_string()])
        .args([
            "--endpoint-reconciler-type",
            "none",
            "--authorization-mode",
            "RBAC",
        ])
        // A Node that no kubelet reports on would never get rid of its first taint.
        .args(["--disable-admission-plugins", "TaintNodesByCondition"])
        .args(["--etcd-servers", &format!("http://127.0.0.1:{etcd}")])
        .args(["--service-cluster-ip-range", "10.98.0.0/16"])
        .args(["--service-account-issuer", "https://127.0.0.1"])
        .arg("--service-account-signing-key-file")
        .arg(file("sa.key", &key.serialize_pem()))
        .arg("--service-account-key-file")
        .arg(file("sa.pub", &key.public_key_pem()))
        .arg("--token-auth-file")
        .arg(file("tokens.csv", TOKENS))
        .arg("--cert-dir")
        .arg(folder.join("certs"));
    spawn(command, &folder.join("kube-apiserver.log"))
}

/// Ports that were free a moment ago.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
