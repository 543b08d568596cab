//! The yardstick: the same machines on the same infrastructure without the operator. Workers start
//! as soon as the first control-plane machine answers, and control-plane machines join one after
//! another, as a careful person would do it.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use guestcluster_api::GuestCluster;
use guestcluster_api::labels::Role;
use guestcluster_bootstrap::{
    Binding, ClusterConfig, Components, Endpoint, MachineConfig, Role as Boot, Secrets, Taint,
};
use guestcluster_foreign::core::SlimService;
use guestcluster_foreign::kubevirt::VirtualMachineInstance;
use guestcluster_pki::{
    ADMIN_LIFETIME, AUTHORITY_LIFETIME, BootstrapToken, ClientProfile, ClusterPki,
    SigningAlgorithm, Validity,
};
use guestcluster_planner::Wanted;
use guestcluster_planner::render;
use guestcluster_planner::wanted::{Pool, Settings};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::{Cluster, is_ready};
use crate::stage::Stage;
use crate::wait::until;

const NAMESPACE: &str = "by-hand";

struct Hand<'a> {
    stage: &'a Stage,
    wanted: Wanted,
    pki: ClusterPki,
    token: BootstrapToken,
    endpoint: Endpoint,
    guest: Client,
}

/// How long a guest of this size takes, from its first object to its last Ready Node.
pub(super) async fn by_hand(
    stage: &Stage,
    name: &str,
    (control_plane, workers): (u32, u32),
) -> anyhow::Result<Duration> {
    Cluster::new(stage, NAMESPACE, name).namespace().await?;
    let started = Instant::now();
    let hand = Hand::prepare(stage, name, (control_plane, workers)).await?;
    let pool = |role| hand.wanted.pools.iter().find(move |pool| pool.role == role);
    let members = pool(Role::ControlPlane).context("no control plane")?;
    let machine = |pool: &Pool, n: u32| guestcluster_api::names::machine(name, &pool.name, n);
    hand.start(members, &machine(members, 1), true).await?;
    hand.nodes(1, false).await?;
    hand.connect().await?;
    if let Some(pool) = pool(Role::Worker) {
        for n in 1..=workers {
            hand.start(pool, &machine(pool, n), false).await?;
        }
    }
    for n in 2..=control_plane {
        let name = machine(members, n);
        hand.start(members, &name, false).await?;
        hand.joined(&name).await?;
    }
    hand.nodes(usize::try_from(control_plane + workers)?, true)
        .await?;
    let took = started.elapsed();
    hand.tidy(name).await?;
    Ok(took)
}

/// How long a control-plane machine and a worker take on average from their first object to their Ready
/// Node, when two and three of them join a guest of one machine, one after another, and nothing else
/// happens.
pub(super) async fn bare_joins(stage: &Stage, name: &str) -> anyhow::Result<(Duration, Duration)> {
    Cluster::new(stage, NAMESPACE, name).namespace().await?;
    let hand = Hand::prepare(stage, name, (3, 3)).await?;
    let pool = |role| hand.wanted.pools.iter().find(move |pool| pool.role == role);
    let members = pool(Role::ControlPlane).context("no control plane")?;
    let workers = pool(Role::Worker).context("no workers")?;
    let machine = |pool: &Pool, n: u32| guestcluster_api::names::machine(name, &pool.name, n);
    hand.start(members, &machine(members, 1), true).await?;
    hand.nodes(1, false).await?;
    hand.connect().await?;
    hand.keep_token().await?;
    hand.nodes(1, true).await?;
    let mut there = 1;
    let (mut of_members, mut of_workers) = (Duration::ZERO, Duration::ZERO);
    for (pool, numbers, sum) in [
        (members, 2..=3, &mut of_members),
        (workers, 1..=3, &mut of_workers),
    ] {
        for n in numbers {
            let started = Instant::now();
            let name = machine(pool, n);
            hand.start(pool, &name, false).await?;
            hand.joined(&name).await?;
            there += 1;
            hand.nodes(there, true).await?;
            *sum += started.elapsed();
        }
    }
    hand.tidy(name).await?;
    Ok((of_members / 2, of_workers / 3))
}

impl<'a> Hand<'a> {
    /// `kubeadm init` makes the token valid for a minute, and joins one after another take longer.
    async fn keep_token(&self) -> anyhow::Result<()> {
        let end = Timestamp::now().as_second() + guestcluster_bootstrap::TOKEN_LIFETIME;
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": self.token.secret_name(), "namespace": "kube-system" },
            "stringData": { "expiration": BootstrapToken::expiration(end)? },
        });
        self.apply(&self.guest, &secret).await
    }

    /// Gives the guest its pod network.
    async fn connect(&self) -> anyhow::Result<()> {
        let endpoint = (&*self.endpoint.host, self.endpoint.port);
        for object in render::flannel(&self.wanted, endpoint) {
            self.apply(&self.guest, &object).await?;
        }
        Ok(())
    }

    async fn prepare(
        stage: &'a Stage,
        name: &str,
        (control_plane, workers): (u32, u32),
    ) -> anyhow::Result<Self> {
        let cluster = Cluster::new(stage, NAMESPACE, name);
        let spec = json!({ "controlPlane": { "replicas": control_plane } });
        let mut object: GuestCluster = serde_json::from_str(&cluster.document(workers, &spec)?)?;
        object.metadata.uid = Some(format!("hand-{name}"));
        let wanted = Wanted::parse(&object, &Settings::default())?;
        let now = Timestamp::now().as_second();
        let pki = ClusterPki::generate(
            Validity::starting(now, AUTHORITY_LIFETIME),
            SigningAlgorithm::Es256,
        )?;
        let entropy: Vec<u8> = std::fs::File::open("/dev/urandom").and_then(|mut file| {
            let mut bytes = vec![0; BootstrapToken::ENTROPY];
            std::io::Read::read_exact(&mut file, &mut bytes).map(|()| bytes)
        })?;
        let token = BootstrapToken::from_entropy(&entropy)?;
        apply_to(
            &stage.client(),
            &without_owner(render::golden(&wanted).body),
        )
        .await?;
        let service = render::endpoint_service(&wanted);
        apply_to(&stage.client(), &without_owner(service.body)).await?;
        let services = Api::<SlimService>::namespaced(stage.client(), NAMESPACE);
        let host = until(
            "the endpoint has an address",
            Duration::from_secs(30),
            || async {
                let service = services.get(&service.name).await?;
                let ingress = service.status.load_balancer.ingress;
                Ok(ingress.first().and_then(|ingress| ingress.ip.clone()))
            },
        )
        .await?;
        let endpoint = Endpoint { host, port: 6443 };
        let guest = guest_client(&pki, &endpoint, now)?;
        Ok(Self {
            stage,
            wanted,
            pki,
            token,
            endpoint,
            guest,
        })
    }

    async fn start(&self, pool: &Pool, machine: &str, first: bool) -> anyhow::Result<()> {
        let client = self.stage.client();
        let mut address = None;
        if pool.role == Role::ControlPlane {
            let service = render::address_service(&self.wanted, pool, machine);
            apply_to(&client, &without_owner(service.body)).await?;
            let services = Api::<SlimService>::namespaced(client.clone(), NAMESPACE);
            let given = services
                .get(machine)
                .await?
                .spec
                .cluster_ip
                .context("no ClusterIP")?;
            address = Some(given.parse()?);
        }
        let disk = render::root_disk(&self.wanted, pool, machine);
        apply_to(&client, &without_owner(disk.body)).await?;
        let config = self.config(pool, (machine, address), first)?;
        let secrets = match pool.role {
            Role::ControlPlane => Secrets::ControlPlane {
                pki: &self.pki,
                token: &self.token,
            },
            Role::Worker => Secrets::Worker {
                authority: self.pki.kubernetes.certificate(),
                token: &self.token,
            },
        };
        let document = guestcluster_bootstrap::render(&config, &secrets)?;
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": guestcluster_api::names::user_data_secret(machine),
                "namespace": NAMESPACE,
                "labels": { "guestcluster.dev/cluster": self.wanted.identity.name },
            },
            "stringData": { guestcluster_bootstrap::USER_DATA_KEY: document.expose() },
        });
        apply_to(&client, &secret).await?;
        let vm = render::vm(&self.wanted, pool, (machine, None));
        apply_to(&client, &without_owner(vm.body)).await?;
        if pool.role == Role::ControlPlane {
            self.lead_to(pool, machine).await?;
        }
        Ok(())
    }

    fn config(
        &self,
        pool: &Pool,
        (machine, address): (&str, Option<std::net::Ipv4Addr>),
        first: bool,
    ) -> anyhow::Result<MachineConfig> {
        let role = match (pool.role, first) {
            (Role::Worker, _) => Boot::JoinWorker,
            (Role::ControlPlane, true) => Boot::Init {
                etcd_disk: false,
                components: Components::default(),
            },
            (Role::ControlPlane, false) => Boot::JoinControlPlane { etcd_disk: false },
        };
        let is_control_plane = pool.role == Role::ControlPlane;
        Ok(MachineConfig {
            cluster: ClusterConfig {
                name: self.wanted.identity.name.clone(),
                version: self.wanted.version.parse()?,
                endpoint: self.endpoint.clone(),
                pod_cidr: self.wanted.network.pod_cidr.clone(),
                service_cidr: self.wanted.network.service_cidr.clone(),
                dns_domain: self.wanted.network.dns_domain.clone(),
                binding: Binding::Bridge,
            },
            name: machine.to_owned(),
            service_address: address,
            labels: std::collections::BTreeMap::new(),
            taints: if is_control_plane {
                vec![Taint::control_plane()]
            } else {
                Vec::new()
            },
            converged: None,
            role,
        })
    }

    /// Waits for the machine's address and leads its Service there.
    async fn lead_to(&self, pool: &Pool, machine: &str) -> anyhow::Result<()> {
        let instances = Api::<VirtualMachineInstance>::namespaced(self.stage.client(), NAMESPACE);
        let address = until(
            "the machine has an address",
            Duration::from_secs(60),
            || async {
                let status = instances.get(machine).await?.status.unwrap_or_default();
                Ok(status
                    .interfaces
                    .first()
                    .and_then(|interface| interface.ip_address.clone()))
            },
        )
        .await?;
        let slice = render::address_slice(&self.wanted, pool, machine, Some(&address));
        apply_to(&self.stage.client(), &without_owner(slice.body)).await
    }

    async fn apply(&self, client: &Client, object: &Value) -> anyhow::Result<()> {
        until(
            "the guest takes an object",
            Duration::from_secs(30),
            || async { apply_to(client, object).await.map(Some) },
        )
        .await
    }

    async fn nodes(&self, count: usize, ready: bool) -> anyhow::Result<()> {
        let api = Api::<Node>::all(self.guest.clone());
        until(
            &format!("{count} Nodes"),
            Duration::from_secs(240),
            || async {
                let nodes = api.list(&ListParams::default()).await?.items;
                let good = nodes.iter().filter(|node| !ready || is_ready(node)).count();
                anyhow::ensure!(good >= count, "{good} of {}", nodes.len());
                Ok(Some(()))
            },
        )
        .await
    }

    /// Joined means what the console says: only then is the next one started.
    async fn joined(&self, machine: &str) -> anyhow::Result<()> {
        let target = guestcluster_infra::faults::Target::new(NAMESPACE, machine);
        let sentinel = "/run/cluster-api/bootstrap-success.complete";
        until(
            &format!("{machine} has joined"),
            Duration::from_secs(240),
            || async {
                self.stage
                    .on_console(target.clone(), &["test", "-e", sentinel])
                    .await
                    .map(Some)
            },
        )
        .await
        .map(drop)
    }

    async fn tidy(&self, name: &str) -> anyhow::Result<()> {
        let selector = format!("guestcluster.dev/cluster={name}");
        for kinds in ["vm", "vmi", "dv", "svc,secret,endpointslice"] {
            let mut arguments = vec!["-n", NAMESPACE, "delete", kinds, "-l", &selector];
            arguments.extend(["--wait=true", "--timeout=180s", "--ignore-not-found"]);
            self.stage.kubectl(&arguments).await?;
        }
        Ok(())
    }
}

fn guest_client(pki: &ClusterPki, endpoint: &Endpoint, now: i64) -> anyhow::Result<Client> {
    let validity = Validity::starting(now, ADMIN_LIFETIME);
    let identity = pki
        .kubernetes
        .issue_client(ClientProfile::Admin, validity)?;
    let encode =
        |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "g", "cluster": {
            "server": format!("https://{}:{}", endpoint.host, endpoint.port),
            "certificate-authority-data": encode(pki.kubernetes.certificate().pem()),
        }}],
        "users": [{ "name": "g", "user": {
            "client-certificate-data": encode(identity.certificate.pem()),
            "client-key-data": encode(identity.key.expose_pem()),
        }}],
        "contexts": [{ "name": "g", "context": { "cluster": "g", "user": "g" } }],
        "current-context": "g",
    });
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&config.to_string())?;
    let options = kube::config::KubeConfigOptions::default();
    let mut config =
        futures::executor::block_on(kube::Config::from_custom_kubeconfig(kubeconfig, &options))?;
    config.connect_timeout = Some(Duration::from_secs(2));
    config.read_timeout = Some(Duration::from_secs(5));
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// There is no GuestCluster that could own it: garbage collection would take the object away.
fn without_owner(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("ownerReferences");
    }
    object
}

/// Applies an object of any kind that we render.
async fn apply_to(client: &Client, object: &Value) -> anyhow::Result<()> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let version = text("/apiVersion").context("no apiVersion")?;
    let kind = text("/kind").context("no kind")?;
    let plural = match kind {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    let root = if version.contains('/') { "apis" } else { "api" };
    let scope = text("/metadata/namespace")
        .map(|ns| format!("/namespaces/{ns}"))
        .unwrap_or_default();
    let name = text("/metadata/name").context("no name")?;
    let uri = format!("/{root}/{version}{scope}/{plural}/{name}?fieldManager=hand&force=true");
    let request = http::Request::patch(uri)
        .header("Content-Type", "application/apply-patch+yaml")
        .body(serde_json::to_vec(object)?)?;
    client
        .request::<Value>(request)
        .await
        .with_context(|| format!("apply {kind} {name}"))?;
    Ok(())
}
