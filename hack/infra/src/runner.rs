//! The process that is the local infrastructure: it brings everything up, keeps it alive and takes
//! commands. Everything that belongs to the infrastructure lives in its process, mount and network
//! namespaces, and ends with it.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use anyhow::Context;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns};
use nix::sys::wait::{WaitStatus, wait};
use tokio::net::UnixListener;
use tokio::sync::watch;

use crate::control::StartUp;
use crate::control_plane::{ControlPlane, kubeconfig_path};
use crate::data_centre::{Clients, DataCentre};
use crate::guests::Guests;
use crate::hosts::{Host, Hosts};
use crate::identity::{Identity, Tokens};
use crate::kubectl::Kubectl;
use crate::kubelet::server::ServerTls;
use crate::kubevirt::KubeVirt;
use crate::machine::MachineHost;
use crate::network::Network;
use crate::options::RunnerOptions;
use crate::pki::Authority;
use crate::process::Supervisor;
use crate::run_dir::RunDir;
use crate::{load_balancer, storage};

mod service;

/// The first process of the namespace: starts the runner and collects what dies, until the runner
/// does. Its own end ends every process of the infrastructure.
pub fn init(name: &str) -> anyhow::Result<ExitCode> {
    // What `up` started, even when its file has been built anew meanwhile.
    let runner = Command::new("/proc/self/exe")
        .arg0("guestcluster-infra")
        .args(["run", name])
        .spawn()?;
    loop {
        // The runner waits for its own children; here end those whose parents are gone.
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw().cast_unsigned() == runner.id() => {
                return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
            }
            Ok(WaitStatus::Signaled(pid, ..)) if pid.as_raw().cast_unsigned() == runner.id() => {
                return Ok(ExitCode::FAILURE);
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Runs the infrastructure `name` as its options say; returns only when it cannot go on.
pub fn run(name: &str) -> anyhow::Result<()> {
    let run = RunDir::new(name)?;
    let options = RunnerOptions::read(&run)?;
    own_mounts()?;
    let network = create_network(&options)?;
    // Before there are other threads: each would have to enter by itself.
    enter(&network)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(run, options, network))
}

/// Nothing that is mounted here is seen outside, and what `ip netns` keeps under /run is gone with
/// the runner.
fn own_mounts() -> anyhow::Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("private /")?;
    mount(
        Some("tmpfs"),
        "/run",
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=755"),
    )
    .context("mount /run")
}

fn create_network(options: &RunnerOptions) -> anyhow::Result<Network> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(Network::create(&options.name, options.hosts))
}

fn enter(network: &Network) -> anyhow::Result<()> {
    let file = Path::new("/run/netns").join(network.namespace());
    let namespace = File::open(&file).with_context(|| format!("open {}", file.display()))?;
    setns(namespace, CloneFlags::CLONE_NEWNET).context("enter the network namespace")
}

async fn serve(run: RunDir, options: RunnerOptions, network: Network) -> anyhow::Result<()> {
    let listener = UnixListener::bind(run.control_socket()).context("the control socket")?;
    std::fs::set_permissions(run.control_socket(), std::fs::Permissions::from_mode(0o600))?;
    let progress = watch::Sender::new(vec![StartUp::Step("network".to_owned())]);
    let steps = progress.subscribe();
    let (parts, site) = watch::channel(None);
    let service = tokio::spawn(service::serve(listener, steps, site));
    let set_up = SetUp {
        run,
        options,
        progress: progress.clone(),
    };
    match set_up.bring_up(network).await {
        Ok(site) => {
            parts.send_replace(Some(Arc::new(site)));
            progress.send_modify(|steps| steps.push(StartUp::Ready));
            tracing::info!("ready");
        }
        Err(error) => {
            tracing::error!("{error:#}");
            let failed = StartUp::Failed(format!("{error:#}"));
            progress.send_modify(|steps| steps.push(failed));
        }
    }
    service.await?
}

/// The infrastructure once it is up.
pub struct Site {
    centre: Arc<DataCentre>,
    hosts: Hosts,
    supervisor: Supervisor,
    authority: Authority,
    kubectl: Kubectl,
}

struct SetUp {
    run: RunDir,
    options: RunnerOptions,
    progress: watch::Sender<Vec<StartUp>>,
}

impl SetUp {
    async fn bring_up(&self, network: Network) -> anyhow::Result<Site> {
        self.step("API server");
        let authority = Authority::create(&self.run.pki())?;
        let tokens = Tokens::generate();
        self.write_kubeconfigs(&tokens, &authority)?;
        let clients = Clients::new(&tokens, &authority)?;
        let supervisor = Supervisor::default();
        let control_plane = ControlPlane {
            run: &self.run,
            programs: &self.options.programs,
            authority: &authority,
            tokens: &tokens,
            supervisor: &supervisor,
        };
        control_plane.start_api(&clients.admin).await?;

        self.step("definitions");
        let kubectl = self.kubectl();
        let kubevirt = KubeVirt {
            run: &self.run,
            programs: &self.options.programs,
            cdi_crds: &self.options.cdi_crds,
            authority: &authority,
            supervisor: &supervisor,
            kubectl: &kubectl,
        };
        kubevirt.install_definitions().await?;
        kubevirt.install_objects().await?;

        self.step("hosts");
        let hosts = Host::all(self.options.hosts);
        kubectl
            .create(hosts.iter().map(Host::node).collect())
            .await?;
        kubectl.apply(storage::objects()).await?;
        control_plane.start_controllers()?;
        let first = hosts
            .first()
            .map(|host| host.name.clone())
            .unwrap_or_default();
        control_plane.start_proxy(&first)?;
        control_plane.start_name_server()?;
        let centre = self.data_centre(network, clients.clone())?;
        let hosts = Hosts::start(
            centre.clone(),
            Self::kubelet_tls(&authority, &hosts)?,
            hosts,
        );
        tokio::spawn(storage::run(centre.clone()));
        tokio::spawn(load_balancer::run(centre.clone()));

        self.step("KubeVirt");
        kubevirt.start().await?;
        Ok(Site {
            centre,
            hosts,
            supervisor,
            authority,
            kubectl,
        })
    }

    fn step(&self, what: &str) {
        tracing::info!(what, "step");
        self.progress
            .send_modify(|steps| steps.push(StartUp::Step(what.to_owned())));
    }

    fn kubectl(&self) -> Kubectl {
        Kubectl {
            program: self.options.program("kubectl"),
            kubeconfig: self.run.kubeconfig(),
        }
    }

    fn write_kubeconfigs(&self, tokens: &Tokens, authority: &Authority) -> anyhow::Result<()> {
        for identity in Identity::ALL {
            let file = kubeconfig_path(&self.run, identity);
            std::fs::write(&file, tokens.kubeconfig(identity, &authority.file()))?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        }
        Ok(())
    }

    fn kubelet_tls(authority: &Authority, hosts: &[Host]) -> anyhow::Result<ServerTls> {
        let addresses = hosts.iter().map(|host| host.address.to_string()).collect();
        let leaf = authority.issue("kubelet-server", "kubelet", addresses)?;
        ServerTls::new(authority, &leaf)
    }

    fn data_centre(&self, network: Network, clients: Clients) -> anyhow::Result<Arc<DataCentre>> {
        let network = Arc::new(network);
        let machine_host = match self.options.image {
            Some(_) => Some(MachineHost::new(
                network.clone(),
                &self.options.machine_helper,
            )?),
            None => None,
        };
        let guests = Guests::new(machine_host, network.clone());
        let (run, options) = (self.run.clone(), self.options.clone());
        Ok(DataCentre::new(run, options, clients, (network, guests)))
    }
}
