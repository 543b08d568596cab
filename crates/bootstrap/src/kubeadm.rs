//! kubeadm's configuration documents.

use std::collections::BTreeMap;

use guestcluster_pki::BootstrapToken;
use serde_json::{Value, json};

use crate::{
    API_SERVER_PORT, Binding, ClusterConfig, Components, Error, MachineConfig, Role, Secrets,
    patches,
};

/// Keys of certificates. Ten are made at init; with RSA that is a second of CPU or more.
pub const ENCRYPTION_ALGORITHM: &str = "ECDSA-P256";

const API_VERSION: &str = "kubeadm.k8s.io/v1beta4";

/// How long the token of a join is valid, in seconds; whoever makes it extends it while its machine
/// is on its way.
pub const TOKEN_LIFETIME: i64 = 15 * 60;

/// How long the token of `kubeadm init` lives. Nobody uses it: kubeadm would make one of its own,
/// valid for a day, if none were given.
const INIT_TOKEN_LIFETIME: &str = "1m0s";

/// How long a join waits for the endpoint to answer and to vouch for itself. This wait comes
/// before anything is changed on the machine, so it may be long.
const DISCOVERY_TIMEOUT: &str = "10m0s";

/// How long a control-plane join waits for etcd. etcd takes one learner at a time, so two
/// machines that join at once wait for each other.
const ETCD_TIMEOUT: &str = "5m0s";

/// Arguments that let etcd live behind a Service address: connections arrive at the machine's own
/// address, which is not known beforehand, and leave from it, so that a peer's source address is
/// never one of its certificate's names. Peers still need a certificate of the etcd authority.
const ETCD_ARGUMENTS: [(&str, &str); 3] = [
    ("listen-client-urls", "https://0.0.0.0:2379"),
    ("listen-peer-urls", "https://0.0.0.0:2380"),
    ("peer-skip-client-san-verification", "true"),
];

/// The file for `kubeadm init --config` or `kubeadm join --config`: YAML documents, each JSON.
pub(crate) fn documents(config: &MachineConfig, secrets: &Secrets<'_>) -> Result<String, Error> {
    let documents = match (&config.role, secrets) {
        (Role::Init { components, .. }, Secrets::ControlPlane { token, .. }) => {
            vec![init(config, token), cluster(&config.cluster, components)]
        }
        (Role::JoinControlPlane { .. }, Secrets::ControlPlane { pki, token }) => {
            let hash = pki.kubernetes.certificate().public_key_hash().to_string();
            vec![join(config, token, &hash)]
        }
        (Role::JoinWorker, Secrets::Worker { authority, token }) => {
            vec![join(
                config,
                token,
                &authority.public_key_hash().to_string(),
            )]
        }
        (Role::Init { .. } | Role::JoinControlPlane { .. }, Secrets::Worker { .. })
        | (Role::JoinWorker, Secrets::ControlPlane { .. }) => {
            return Err(Error::WrongSecrets(config.name.clone()));
        }
    };
    let texts: Vec<String> = documents
        .iter()
        .map(serde_json::to_string_pretty)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::Unwritable(error.to_string()))?;
    Ok(texts.join("\n---\n") + "\n")
}

/// kubeadm's ClusterConfiguration, as `kubeadm-config` in the guest holds it for later joins.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn cluster_configuration(
    config: &ClusterConfig,
    components: &Components,
) -> Result<String, Error> {
    serde_json::to_string_pretty(&cluster(config, components))
        .map_err(|error| Error::Unwritable(error.to_string()))
}

fn init(config: &MachineConfig, token: &BootstrapToken) -> Value {
    let mut document = json!({
        "apiVersion": API_VERSION,
        "kind": "InitConfiguration",
        "bootstrapTokens": [{
            "token": token.expose().as_str(),
            "ttl": INIT_TOKEN_LIFETIME,
            "usages": ["signing", "authentication"],
            "groups": [BootstrapToken::GROUP],
        }],
        "localAPIEndpoint": local_endpoint(config),
        "nodeRegistration": node_registration(config),
    });
    if config.converged.is_some() {
        converge(&mut document, "mark-control-plane");
    }
    document
}

fn cluster(cluster: &ClusterConfig, components: &Components) -> Value {
    let mut etcd = components.etcd.clone();
    etcd.extend(ETCD_ARGUMENTS.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let mut document = json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": cluster.version.to_string(),
        "clusterName": cluster.name,
        "controlPlaneEndpoint": cluster.endpoint.to_string(),
        "encryptionAlgorithm": ENCRYPTION_ALGORITHM,
        "networking": {
            "podSubnet": cluster.pod_cidr,
            "serviceSubnet": cluster.service_cidr,
            "dnsDomain": cluster.dns_domain,
        },
        "apiServer": {
            "certSANs": components.cert_sans,
            "extraArgs": arguments(&components.api_server),
        },
        "controllerManager": { "extraArgs": arguments(&components.controller_manager) },
        "scheduler": { "extraArgs": arguments(&components.scheduler) },
        "etcd": { "local": { "extraArgs": arguments(&etcd) } },
    });
    if let Some(period) = &components.certificate_validity_period {
        document["certificateValidityPeriod"] = json!(period);
    }
    document
}

fn join(config: &MachineConfig, token: &BootstrapToken, authority_hash: &str) -> Value {
    let mut document = json!({
        "apiVersion": API_VERSION,
        "kind": "JoinConfiguration",
        "discovery": { "bootstrapToken": {
            "apiServerEndpoint": config.cluster.endpoint.to_string(),
            "token": token.expose().as_str(),
            "caCertHashes": [authority_hash],
        }},
        "nodeRegistration": node_registration(config),
        "timeouts": { "discovery": DISCOVERY_TIMEOUT, "etcdAPICall": ETCD_TIMEOUT },
    });
    if config.role.is_control_plane() {
        document["controlPlane"] = json!({ "localAPIEndpoint": local_endpoint(config) });
    }
    if config.converged.is_some() {
        converge(&mut document, "control-plane-join/mark-control-plane");
    }
    document
}

/// Besides the taint, kubeadm would give the Node a label that keeps load balancers off it; where
/// every Node has that, a Service of type `LoadBalancer` reaches none. Roles are labelled once the
/// Node exists.
fn converge(document: &mut Value, mark: &str) {
    document["patches"] = json!({ "directory": patches::DIRECTORY });
    document["skipPhases"] = json!([mark]);
}

/// kubeadm writes this address into static pods, etcd members and certificates: it must outlive
/// restarts, which only the Service address does.
fn local_endpoint(config: &MachineConfig) -> Value {
    json!({ "advertiseAddress": config.service_address, "bindPort": API_SERVER_PORT })
}

fn node_registration(config: &MachineConfig) -> Value {
    let mut kubelet = BTreeMap::new();
    kubelet.insert(
        "provider-id".to_owned(),
        format!("kubevirt://{}", config.name),
    );
    if !config.labels.is_empty() {
        let labels: Vec<String> = config
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        kubelet.insert("node-labels".to_owned(), labels.join(","));
    }
    if let (Binding::Masquerade, Some(address)) = (config.cluster.binding, config.service_address) {
        kubelet.insert("node-ip".to_owned(), address.to_string());
    }
    json!({
        "name": config.name,
        "kubeletExtraArgs": arguments(&kubelet),
        "taints": config.taints,
    })
}

fn arguments(map: &BTreeMap<String, String>) -> Value {
    map.iter()
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect()
}
