//! First-boot documents: keys and token put in for the boot, and taken out after it.

use std::collections::BTreeMap;

use guestcluster_api::labels::{self, Role};
use guestcluster_api::spec::{self, Topology};
use guestcluster_bootstrap::{
    Binding, ClusterConfig, Components, Endpoint, MachineConfig, Role as BootRole, Secrets, Size,
    TOKEN_LIFETIME, Taint, cluster_configuration, render, scrubbed,
};
use guestcluster_pki::{BootstrapToken, ClusterPki, ServiceAccountKeys};
use guestcluster_planner::Wanted;
use guestcluster_planner::action::{Authority, FirstBoot, UserData, Victim};
use guestcluster_planner::decide::endpoint::{asked_for, server};
use guestcluster_planner::wanted::Pool;
use guestcluster_shell::clock::monotonic;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::SignedDuration;
use kube::Api;
use kube::core::PartialObjectMeta;
use rand::RngCore;
use serde_json::{Value, json};
use tracing::debug;
use zeroize::Zeroizing;

use super::super::observe::endpoint_door;
use super::super::{Context, Round};
use crate::error::Error;
use crate::secret_body::secret_body;

/// `type` of the Secrets.
const OPAQUE: &str = "Opaque";

/// kubeadm's own default, which need not be said.
const A_YEAR: SignedDuration = SignedDuration::from_hours(8760);

/// What a machine's boot is given.
enum Material {
    ControlPlane(Box<ClusterPki>),
    Worker(Box<guestcluster_pki::CertificateAuthority>),
}

impl Context {
    /// Makes a machine's first-boot Secret. A join's token is valid in the guest before the Secret
    /// exists, so that no machine ever boots with one that is not; a token whose Secret could not
    /// be made lapses by itself.
    pub(super) async fn write_user_data(
        &self,
        round: &Round<'_>,
        recipe: &UserData,
    ) -> Result<(), Error> {
        let config = machine_config(round.subject.wanted, recipe)?;
        let token = draw_token()?;
        let material = self.material(round, recipe.boot).await?;
        let secrets = match &material {
            Material::ControlPlane(pki) => Secrets::ControlPlane { pki, token: &token },
            Material::Worker(authority) => Secrets::Worker {
                authority: authority.certificate(),
                token: &token,
            },
        };
        let document = render(&config, &secrets).map_err(|error| unfit(&recipe.machine, &error))?;
        let joins = recipe.boot != FirstBoot::Init;
        if joins {
            self.create_token(round, &token, &recipe.machine).await?;
        }
        let metadata = annotated(recipe, token.id());
        let made = self
            .create_secret(round, (&metadata, OPAQUE), &document.to_secret())
            .await?;
        if !made && joins {
            self.drop_token(round, token.id()).await;
        }
        Ok(())
    }

    /// Puts a document without secrets in place of a machine's first one.
    pub(super) async fn scrub_user_data(
        &self,
        round: &Round<'_>,
        (machine, role): (&str, Role),
        secret: &Victim,
    ) -> Result<(), Error> {
        let config = restart_config(round, machine, role)?;
        let document = scrubbed(&config).map_err(|error| unfit(machine, &error))?;
        let mut metadata = json!({
            "name": secret.name,
            "uid": secret.uid,
            "resourceVersion": secret.resource_version,
            "annotations": { labels::SCRUBBED: "true" },
        });
        // What is not stated again is lost.
        let former = round.seen.secrets.get(&secret.name);
        if let Some(server) = former.and_then(|secret| secret.server.as_ref()) {
            metadata["annotations"][labels::SERVER] = json!(server);
        }
        let data = document.to_secret();
        let body = secret_body(metadata, OPAQUE, &data);
        let api = Api::<PartialObjectMeta<Secret>>::namespaced(
            self.client.clone(),
            &round.subject.key.namespace,
        );
        let written = self.writer.apply(&api, &body).await?;
        self.ledger.wrote(round.subject.key, &written, monotonic());
        Ok(())
    }

    async fn material(&self, round: &Round<'_>, boot: FirstBoot) -> Result<Material, Error> {
        let read = |authority| self.read_authority(round, authority);
        if boot == FirstBoot::JoinWorker {
            return Ok(Material::Worker(Box::new(
                read(Authority::Kubernetes).await?,
            )));
        }
        let (kubernetes, etcd, front_proxy, (secret, keys)) = futures::try_join!(
            read(Authority::Kubernetes),
            read(Authority::Etcd),
            read(Authority::FrontProxy),
            self.read_material(round, Authority::ServiceAccount),
        )?;
        let service_account = ServiceAccountKeys::from_secret(&keys)
            .map_err(|source| Error::DamagedSecret { secret, source })?;
        Ok(Material::ControlPlane(Box::new(ClusterPki {
            kubernetes,
            etcd,
            front_proxy,
            service_account,
        })))
    }

    async fn create_token(
        &self,
        round: &Round<'_>,
        token: &BootstrapToken,
        machine: &str,
    ) -> Result<(), Error> {
        self.memories.invalidate(round.subject.key);
        let door = endpoint_door(round.subject, round.seen)
            .ok_or_else(|| Error::Gone("the guest has no endpoint any more".to_owned()))?;
        self.guest_api(&door)
            .create_token(token, machine, round.now.as_second() + TOKEN_LIFETIME)
            .await
    }

    /// Takes back a token that turned out not to be needed. One that stays lapses by itself.
    async fn drop_token(&self, round: &Round<'_>, id: &str) {
        let Some(door) = endpoint_door(round.subject, round.seen) else {
            return;
        };
        if let Err(error) = self.guest_api(&door).delete_token(id).await {
            debug!(%error, "needless token not taken back");
        }
    }
}

fn unfit(machine: &str, error: &guestcluster_bootstrap::Error) -> Error {
    Error::FirstBoot {
        machine: machine.to_owned(),
        reason: error.to_string(),
    }
}

fn draw_token() -> Result<BootstrapToken, Error> {
    let mut entropy = Zeroizing::new([0_u8; BootstrapToken::ENTROPY]);
    rand::rngs::OsRng.fill_bytes(entropy.as_mut());
    BootstrapToken::from_entropy(entropy.as_ref()).map_err(Error::Minting)
}

/// Metadata of a first-boot Secret that carries a token.
fn annotated(recipe: &UserData, token: &str) -> Value {
    let mut metadata = recipe.metadata.clone();
    metadata["annotations"][labels::SERVER] = json!(server(&recipe.endpoint));
    metadata["annotations"][labels::TOKEN_ID] = json!(token);
    metadata["annotations"][labels::SCRUBBED] = json!("false");
    metadata
}

/// The inputs of a machine's first boot.
fn machine_config(wanted: &Wanted, recipe: &UserData) -> Result<MachineConfig, Error> {
    let reason = |reason: String| Error::FirstBoot {
        machine: recipe.machine.clone(),
        reason,
    };
    let pool = wanted
        .pool(&recipe.pool)
        .ok_or_else(|| reason(format!("there is no pool {}", recipe.pool)))?;
    let address = |text: &String| {
        text.parse()
            .map_err(|_| reason(format!("{text} is not an IPv4 address")))
    };
    Ok(MachineConfig {
        cluster: cluster_config(wanted, &recipe.endpoint)
            .map_err(|error| unfit(&recipe.machine, &error))?,
        name: recipe.machine.clone(),
        service_address: recipe.address.as_ref().map(address).transpose()?,
        labels: node_labels(pool),
        taints: taints(wanted, pool).map_err(|error| unfit(&recipe.machine, &error))?,
        converged: is_converged(wanted, pool).then(|| size(pool)),
        role: boot_role(wanted, pool, recipe.boot),
    })
}

/// The inputs of the document that follows the first one. A restart needs its role and address.
fn restart_config(round: &Round<'_>, machine: &str, role: Role) -> Result<MachineConfig, Error> {
    let wanted = round.subject.wanted;
    let reason = |reason: String| Error::FirstBoot {
        machine: machine.to_owned(),
        reason,
    };
    let endpoint = asked_for(wanted, round.seen)
        .ok_or_else(|| Error::Gone("the guest has no endpoint any more".to_owned()))?;
    let service_address = || {
        let service = round.seen.services.get(machine);
        let address = service.and_then(|service| service.cluster_ip.as_ref());
        address
            .and_then(|address| address.parse().ok())
            .ok_or_else(|| reason("its Service has no IPv4 address".to_owned()))
    };
    let has_address = wanted.has_service_address(role);
    Ok(MachineConfig {
        cluster: cluster_config(wanted, &endpoint).map_err(|error| unfit(machine, &error))?,
        name: machine.to_owned(),
        service_address: has_address.then(service_address).transpose()?,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        converged: None,
        role: match role {
            Role::Worker => BootRole::JoinWorker,
            Role::ControlPlane => BootRole::JoinControlPlane { etcd_disk: false },
        },
    })
}

fn cluster_config(
    wanted: &Wanted,
    endpoint: &(String, u16),
) -> Result<ClusterConfig, guestcluster_bootstrap::Error> {
    Ok(ClusterConfig {
        name: wanted.identity.name.clone(),
        version: wanted.version.parse()?,
        endpoint: Endpoint {
            host: endpoint.0.clone(),
            port: endpoint.1,
        },
        pod_cidr: wanted.network.pod_cidr.clone(),
        service_cidr: wanted.network.service_cidr.clone(),
        dns_domain: wanted.network.dns_domain.clone(),
        binding: match wanted.network.machine.binding {
            spec::Binding::Bridge => Binding::Bridge,
            spec::Binding::Masquerade => Binding::Masquerade,
        },
    })
}

/// kubeadm's configuration as control-plane joins read it.
pub(super) fn configuration(
    wanted: &Wanted,
    endpoint: &(String, u16),
    names: &[String],
) -> Result<String, Error> {
    let unfit = |error| unfit("a control-plane machine", &error);
    let cluster = cluster_config(wanted, endpoint).map_err(unfit)?;
    let components = Components {
        cert_sans: names.to_vec(),
        ..components(wanted)
    };
    cluster_configuration(&cluster, &components).map_err(unfit)
}

/// Labels that a kubelet may give its own Node. Those of Kubernetes' own domains, which it may
/// not, are set once the Node exists.
fn node_labels(pool: &Pool) -> BTreeMap<String, String> {
    let reserved = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        domain.ends_with("kubernetes.io") || domain.ends_with("k8s.io")
    };
    let own = [(labels::NODE_POOL.to_owned(), pool.name.clone())];
    pool.node_labels
        .iter()
        .filter(|(key, _)| !reserved(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .chain(own)
        .collect()
}

fn is_converged(wanted: &Wanted, pool: &Pool) -> bool {
    pool.role == Role::ControlPlane && wanted.topology == Topology::Converged
}

fn size(pool: &Pool) -> Size {
    Size {
        cpus: u32::try_from(pool.machine.cpu).unwrap_or_default(),
        memory: u64::try_from(pool.memory().ceil()).unwrap_or_default(),
    }
}

fn taints(wanted: &Wanted, pool: &Pool) -> Result<Vec<Taint>, guestcluster_bootstrap::Error> {
    let apart = pool.role == Role::ControlPlane && !is_converged(wanted, pool);
    let control_plane = apart.then(|| Ok(Taint::control_plane()));
    let own = pool.node_taints.iter().map(|taint| {
        Ok(Taint {
            key: taint.key.clone(),
            value: taint.value.clone(),
            effect: taint.effect.parse()?,
        })
    });
    control_plane.into_iter().chain(own).collect()
}

fn boot_role(wanted: &Wanted, pool: &Pool, boot: FirstBoot) -> BootRole {
    let etcd_disk = pool.machine.etcd_disk.is_some();
    match boot {
        FirstBoot::Init => BootRole::Init {
            etcd_disk,
            components: components(wanted),
        },
        FirstBoot::JoinControlPlane => BootRole::JoinControlPlane { etcd_disk },
        FirstBoot::JoinWorker => BootRole::JoinWorker,
    }
}

fn components(wanted: &Wanted) -> Components {
    let control_plane = &wanted.control_plane;
    Components {
        certificate_validity_period: (wanted.certificate_life != A_YEAR)
            .then(|| control_plane.certificate_validity_period.clone()),
        cert_sans: control_plane.endpoint.cert_sans.clone(),
        api_server: control_plane.api_server.extra_args.clone(),
        controller_manager: control_plane.controller_manager.extra_args.clone(),
        scheduler: control_plane.scheduler.extra_args.clone(),
        etcd: control_plane.etcd.extra_args.clone(),
    }
}

#[cfg(test)]
mod tests {
    use guestcluster_planner::wanted::Settings;

    use super::*;

    fn first_boot(topology: &str) -> MachineConfig {
        first_boot_of(&json!({ "topology": topology }))
    }

    fn first_boot_of(fields: &Value) -> MachineConfig {
        let mut spec = json!({
            "version": "v1.36.3",
            "image": { "pvc": { "name": "image" } },
        });
        let fields = fields.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(fields);
        let cluster = serde_json::from_value(json!({
            "apiVersion": "guestcluster.dev/v1alpha1", "kind": "GuestCluster",
            "metadata": { "namespace": "n", "name": "a", "uid": "ours" },
            "spec": spec,
        }))
        .unwrap();
        let wanted = Wanted::parse(&cluster, &Settings::default()).unwrap();
        let recipe = UserData {
            machine: "a-cp-1".to_owned(),
            pool: "cp".to_owned(),
            boot: FirstBoot::Init,
            endpoint: ("10.79.0.5".to_owned(), 6443),
            address: Some("10.98.0.11".to_owned()),
            metadata: Value::Null,
        };
        machine_config(&wanted, &recipe).unwrap()
    }

    #[test]
    fn a_converged_machine_has_no_taint_and_its_size_is_told() {
        let converged = first_boot("Converged");
        assert_eq!(converged.taints, []);
        let (cpus, memory) = (4, 8 << 30);
        assert_eq!(converged.converged, Some(Size { cpus, memory }));
    }

    #[test]
    fn a_machine_boots_for_the_binding_that_it_has() {
        let masquerade = json!({ "network": { "machine": { "binding": "Masquerade" } } });
        let binding = |fields| first_boot_of(&fields).cluster.binding;
        assert_eq!(binding(masquerade), Binding::Masquerade);
        assert_eq!(binding(json!({})), Binding::Bridge);
    }

    #[test]
    fn a_dedicated_control_plane_is_tainted() {
        let dedicated = first_boot("Dedicated");
        assert_eq!(dedicated.taints, [Taint::control_plane()]);
        assert_eq!(dedicated.converged, None);
    }
}
