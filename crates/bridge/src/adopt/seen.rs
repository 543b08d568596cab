//! All that an adoption is decided from: read once, as documents of other programs.
//!
//! What was asked and not answered is told apart from what is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use guestcluster_api::labels;
use guestcluster_planner::observed::Probe;
use k8s_openapi::api::core::v1::{self as core, ConfigMap, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::capi;
use crate::import::value::text;

/// Kinds of which every object in the Cluster's namespace is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Cluster API's Cluster.
    Cluster,
    /// The control plane that kubeadm makes.
    KubeadmControlPlane,
    /// A pool of workers.
    MachineDeployment,
    /// One generation of a pool.
    MachineSet,
    /// One Node.
    Machine,
    /// A pool that the infrastructure counts.
    MachinePool,
    /// Who is replaced, and when.
    MachineHealthCheck,
    /// First boot of one Machine.
    KubeadmConfig,
    /// First boot of a pool's Machines.
    KubeadmConfigTemplate,
    /// CAPK's endpoint.
    KubevirtCluster,
    /// CAPK's machine.
    KubevirtMachine,
    /// What CAPK's machines are made from.
    KubevirtMachineTemplate,
    /// KubeVirt's machine.
    VirtualMachine,
    /// One run of it.
    VirtualMachineInstance,
    /// Kubernetes' Service.
    Service,
    /// Ours.
    GuestCluster,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Cluster,
        Self::KubeadmControlPlane,
        Self::MachineDeployment,
        Self::MachineSet,
        Self::Machine,
        Self::MachinePool,
        Self::MachineHealthCheck,
        Self::KubeadmConfig,
        Self::KubeadmConfigTemplate,
        Self::KubevirtCluster,
        Self::KubevirtMachine,
        Self::KubevirtMachineTemplate,
        Self::VirtualMachine,
        Self::VirtualMachineInstance,
        Self::Service,
        Self::GuestCluster,
    ];

    /// Group and version that are read. Cluster API has had `v1beta2` since v1.11.
    pub const fn group_version(self) -> (&'static str, &'static str) {
        match self {
            Self::Cluster
            | Self::MachineDeployment
            | Self::MachineSet
            | Self::Machine
            | Self::MachinePool
            | Self::MachineHealthCheck => (capi::CORE, "v1beta2"),
            Self::KubeadmControlPlane => (capi::CONTROL_PLANE, "v1beta2"),
            Self::KubeadmConfig | Self::KubeadmConfigTemplate => (capi::BOOTSTRAP, "v1beta2"),
            Self::KubevirtCluster | Self::KubevirtMachine | Self::KubevirtMachineTemplate => {
                (capi::INFRASTRUCTURE, "v1alpha1")
            }
            Self::VirtualMachine | Self::VirtualMachineInstance => ("kubevirt.io", "v1"),
            Self::Service => ("", "v1"),
            Self::GuestCluster => (labels::GROUP, "v1alpha1"),
        }
    }

    /// The kind as objects name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::KubeadmControlPlane => "KubeadmControlPlane",
            Self::MachineDeployment => "MachineDeployment",
            Self::MachineSet => "MachineSet",
            Self::Machine => "Machine",
            Self::MachinePool => "MachinePool",
            Self::MachineHealthCheck => "MachineHealthCheck",
            Self::KubeadmConfig => "KubeadmConfig",
            Self::KubeadmConfigTemplate => "KubeadmConfigTemplate",
            Self::KubevirtCluster => "KubevirtCluster",
            Self::KubevirtMachine => "KubevirtMachine",
            Self::KubevirtMachineTemplate => "KubevirtMachineTemplate",
            Self::VirtualMachine => "VirtualMachine",
            Self::VirtualMachineInstance => "VirtualMachineInstance",
            Self::Service => "Service",
            Self::GuestCluster => "GuestCluster",
        }
    }
}

/// One reading of a Cluster and of all that belongs to it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The Cluster's namespace.
    pub namespace: String,
    /// The Cluster's name.
    pub name: String,
    /// Objects of the namespace, whosever they are, with `kind` and `apiVersion`. A kind that the API
    /// server does not know has none.
    pub objects: BTreeMap<Kind, Probe<Vec<Value>>>,
    /// Secrets of the namespace, without their values.
    pub secrets: Probe<Vec<Secret>>,
    /// Labels of the namespace.
    pub namespace_labels: Probe<BTreeMap<String, String>>,
    /// The guest, asked with the kubeconfig that its control plane publishes.
    pub guest: Probe<Guest>,
}

impl Seen {
    /// Objects of a kind as far as they were read, whosever they are.
    pub fn all(&self, kind: Kind) -> &[Value] {
        let read = self.objects.get(&kind).and_then(Probe::known);
        read.map(Vec::as_slice).unwrap_or_default()
    }

    /// The object of that kind and name.
    pub fn named(&self, kind: Kind, name: &str) -> Option<&Value> {
        let mut all = self.all(kind).iter();
        all.find(|object| self::name(object) == name)
    }

    /// The Cluster itself.
    pub fn cluster(&self) -> Option<&Value> {
        self.named(Kind::Cluster, &self.name)
    }

    /// Objects of a kind that say that they are of this Cluster.
    pub fn own(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.all(kind).iter().filter(|object| {
            let said = object["spec"]["clusterName"].as_str();
            let labelled = label(object, capi::CLUSTER_NAME);
            said.or(labelled) == Some(&*self.name)
        })
    }

    /// The object of `kind` to which the Cluster's reference at `field` leads.
    pub fn referred(&self, field: &str, kind: Kind) -> Option<&Value> {
        let reference = &self.cluster()?["spec"][field];
        let name = reference["name"].as_str()?;
        (reference["kind"] == kind.as_str()).then(|| self.named(kind, name))?
    }

    /// The control plane that kubeadm makes, if there is one.
    pub fn control_plane(&self) -> Option<&Value> {
        self.referred("controlPlaneRef", Kind::KubeadmControlPlane)
    }

    /// CAPK's object, if there is one.
    pub fn infrastructure(&self) -> Option<&Value> {
        self.referred("infrastructureRef", Kind::KubevirtCluster)
    }

    /// The Service before the API servers.
    pub fn endpoint_service(&self) -> Option<&Value> {
        self.named(Kind::Service, &capi::endpoint_service(&self.name))
    }

    /// The Secret of that name, if Secrets were read and it is there.
    pub fn secret(&self, name: &str) -> Option<&Secret> {
        let mut all = self.secrets.known()?.iter();
        all.find(|secret| secret.metadata.name.as_deref() == Some(name))
    }
}

/// A Secret without its values: what is under a key is dropped while it is read.
#[derive(Resource, Deserialize, Clone, Debug, Default)]
#[resource(inherit = core::Secret)]
pub struct Secret {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Keys.
    #[serde(default, deserialize_with = "keys")]
    pub data: BTreeSet<String>,
}

/// Keys of a map whose values are skipped.
#[derive(Default)]
struct Keys(BTreeSet<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(data: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Keys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = BTreeSet::new();
                while let Some((key, IgnoredAny)) = map.next_entry()? {
                    keys.insert(key);
                }
                Ok(Keys(keys))
            }
        }
        data.deserialize_map(Reader)
    }
}

fn keys<'de, D: Deserializer<'de>>(data: D) -> Result<BTreeSet<String>, D::Error> {
    let data = Option::<Keys>::deserialize(data)?;
    Ok(data.unwrap_or_default().0)
}

/// What the guest says of itself.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    /// `host:port` under which it was asked.
    pub server: String,
    /// Nodes by name.
    pub nodes: BTreeMap<String, GuestNode>,
    /// Members of etcd as kubeadm's static Pods run them.
    pub etcd: Vec<EtcdPod>,
    /// kubeadm's ClusterConfiguration; null if there is none.
    pub configuration: Value,
}

/// A Node of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestNode {
    /// The kubelet says that it is ready.
    pub ready: bool,
    /// Takes no new Pods.
    pub cordoned: bool,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// The kubelet's version.
    pub kubelet: String,
}

/// A Pod that runs a member of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EtcdPod {
    /// Its Node.
    pub node: String,
    /// The member's name, as its arguments say.
    pub member: Option<String>,
    /// The member answers its kubelet.
    pub ready: bool,
}

impl Guest {
    /// Reads what a guest answered: its Nodes, its Pods of etcd, and kubeadm's configuration.
    ///
    /// # Errors
    /// If kubeadm's configuration is no YAML.
    pub fn read(
        server: String,
        nodes: &[Node],
        pods: &[Pod],
        configuration: Option<&ConfigMap>,
    ) -> Result<Self, String> {
        let document = configuration
            .and_then(|map| map.data.as_ref()?.get("ClusterConfiguration"))
            .map(|text| serde_saphyr::from_str(text))
            .transpose()
            .map_err(|error| format!("kube-system/kubeadm-config cannot be read: {error}"))?;
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        Ok(Self {
            server,
            nodes: nodes.iter().map(|one| (name(one), node(one))).collect(),
            etcd: pods.iter().map(etcd_pod).collect(),
            configuration: document.unwrap_or(Value::Null),
        })
    }
}

fn node(node: &Node) -> GuestNode {
    let spec = node.spec.clone().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    GuestNode {
        ready: conditions
            .iter()
            .any(|one| one.type_ == "Ready" && one.status == "True"),
        cordoned: spec.unschedulable == Some(true),
        provider_id: spec.provider_id,
        kubelet: status
            .node_info
            .map(|info| info.kubelet_version)
            .unwrap_or_default(),
    }
}

fn etcd_pod(pod: &Pod) -> EtcdPod {
    let spec = pod.spec.clone().unwrap_or_default();
    let mut arguments = spec.containers.iter().flat_map(|container| {
        let command = container.command.iter().flatten();
        command.chain(container.args.iter().flatten())
    });
    let member = arguments.find_map(|argument| argument.strip_prefix("--name="));
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    EtcdPod {
        node: spec.node_name.clone().unwrap_or_default(),
        member: member.map(str::to_owned),
        ready: conditions
            .iter()
            .any(|one| one.type_ == "Ready" && one.status == "True"),
    }
}

/// An object's name.
pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// An object as people name it.
pub(super) fn title(object: &Value) -> String {
    let kind = text(object, "/kind").unwrap_or_default();
    format!("{kind} {}", name(object))
}

/// A label's value.
pub(super) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}

/// An annotation's value.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// A condition.
pub(super) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == type_)
}

/// Whether a condition has that status.
pub(super) fn says(object: &Value, type_: &str, status: &str) -> bool {
    condition(object, type_).is_some_and(|one| one["status"] == status)
}
