//! Ranges, the machines' network and the guest API's endpoint.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Ranges inside the guest and how its machines are wired.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = Rule::new("self == oldSelf")
    .message("network cannot be changed: addresses are part of certificates and of every Node; create a new cluster"))]
#[x_kube(validation = Rule::new("!isCIDR(self.podCIDR) || !isCIDR(self.serviceCIDR) || (!cidr(self.podCIDR).containsIP(cidr(self.serviceCIDR).ip()) && !cidr(self.serviceCIDR).containsIP(cidr(self.podCIDR).ip()))")
    .message("podCIDR and serviceCIDR overlap: choose two ranges apart, such as 10.200.0.0/16 and 10.201.0.0/16"))]
#[x_kube(validation = Rule::new("self.machine.binding != 'Masquerade' || [self.podCIDR, self.serviceCIDR].all(r, !isCIDR(r) || !cidr(r).containsIP('10.0.2.2'))")
    .message("with binding Masquerade every machine sees itself as 10.0.2.2: choose a podCIDR and a serviceCIDR without 10.0.2.0/24"))]
#[serde(rename_all = "camelCase")]
pub struct GuestNetwork {
    /// Range of the guest's pods.
    #[serde(rename = "podCIDR", default = "pod_cidr")]
    #[schemars(length(max = 18))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self).ip().family() == 4 && cidr(self) == cidr(self).masked() && cidr(self).prefixLength() >= 8 && cidr(self).prefixLength() <= 20")
        .message("podCIDR must be an IPv4 range of /8 to /20 that starts at its first address, such as 10.200.0.0/16"))]
    pub pod_cidr: String,
    /// Range of the guest's Services.
    #[serde(rename = "serviceCIDR", default = "service_cidr")]
    #[schemars(length(max = 18))]
    #[x_kube(validation = Rule::new("isCIDR(self) && cidr(self).ip().family() == 4 && cidr(self) == cidr(self).masked() && cidr(self).prefixLength() >= 12 && cidr(self).prefixLength() <= 24")
        .message("serviceCIDR must be an IPv4 range of /12 to /24 that starts at its first address, such as 10.201.0.0/16"))]
    pub service_cidr: String,
    /// DNS domain of the guest's Services.
    #[serde(default = "dns_domain")]
    #[schemars(length(max = 100))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("dnsDomain must be a DNS name such as cluster.local"))]
    pub dns_domain: String,
    /// The machines' own network.
    #[serde(default)]
    pub machine: MachineNetwork,
}

impl Default for GuestNetwork {
    fn default() -> Self {
        Self {
            pod_cidr: pod_cidr(),
            service_cidr: service_cidr(),
            dns_domain: dns_domain(),
            machine: MachineNetwork::default(),
        }
    }
}

fn pod_cidr() -> String {
    "10.200.0.0/16".to_owned()
}

fn service_cidr() -> String {
    "10.201.0.0/16".to_owned()
}

fn dns_domain() -> String {
    "cluster.local".to_owned()
}

/// How a machine is attached to the pod network.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MachineNetwork {
    /// KubeVirt's binding: `Bridge`; or `Masquerade`, under which machines can live-migrate if each of
    /// their disks has `accessMode: ReadWriteMany`. With `Masquerade` every machine, worker or not, has
    /// a Service of its own, whose address is the Node's. Of the ports of a Node only those of that
    /// Service are reached under it: the kubelet's, the pod network's, and on control-plane machines
    /// the API server's and etcd's; NodePorts are not among them.
    #[serde(default)]
    pub binding: Binding,
}

/// KubeVirt's interface bindings.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// The machine has its Pod's address.
    #[default]
    Bridge,
    /// Every machine sees itself as 10.0.2.2 behind its Pod's address, and goes by the address of its
    /// own Service.
    Masquerade,
}

/// How the guest's API is reached.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = Rule::new("!(self.type in ['External', 'NodePort']) || has(self.host)")
    .message("endpoint of type External or NodePort needs host: the name or address under which clients reach it"))]
#[x_kube(validation = Rule::new("self.type != 'External' || self.port > 0")
    .message("endpoint of type External needs the port on which clients reach it"))]
#[x_kube(validation = Rule::new("self.type != 'NodePort' || self.port == 6443 || (self.port >= 30000 && self.port <= 32767)")
    .message("endpoint of type NodePort: port must lie in 30000-32767, or be left out to have one allocated"))]
#[x_kube(validation = Rule::new("self.type == 'LoadBalancer' || (!has(self.loadBalancerClass) && !has(self.sourceRanges))")
    .message("loadBalancerClass and sourceRanges belong to an endpoint of type LoadBalancer: remove them or change the type"))]
#[x_kube(validation = Rule::new("self.type == oldSelf.type && self.port == oldSelf.port")
    .message("type and port of the endpoint cannot be changed, since they are part of kubeconfigs of machines and people: change host, or create a new cluster"))]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// `LoadBalancer`, `NodePort`, `ClusterIP`, or `External` for a host and port of your own that
    /// forward to the Service `<cluster>-api`.
    #[serde(rename = "type", default)]
    pub type_: EndpointType,
    /// Name or address under which clients reach it: needed for External and NodePort; for
    /// LoadBalancer a DNS name of yours that points to it. It may change, if clients and machines reach
    /// the guest's API under the new one as under the old one until every machine has been replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("isIP(self) || (self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$') && !self.matches('^[0-9.]*$'))")
        .message("endpoint.host must be an IP address or a DNS name, without scheme and port"))]
    pub host: Option<String>,
    /// Port under which clients reach it.
    #[serde(default = "api_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// More names and addresses for the API server's certificate. A new one comes with new
    /// control-plane machines, one after another; one that is removed goes when they are next replaced.
    #[serde(rename = "certSANs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = Rule::new("self.all(n, isIP(n) || (n.matches('^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$') && !n.matches('^[0-9.]*$')))")
        .message("certSANs must be IP addresses or DNS names in small letters, such as api.example.com or *.example.com"))]
    pub cert_sans: Vec<String>,
    /// Annotations of the Service, for the load balancer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// `loadBalancerClass` of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 316))]
    pub load_balancer_class: Option<String>,
    /// `loadBalancerSourceRanges` of the Service: who may reach the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 43)))]
    #[x_kube(validation = Rule::new("self.all(r, isCIDR(r))")
        .message("sourceRanges must be ranges such as 203.0.113.0/24"))]
    pub source_ranges: Option<Vec<String>>,
}

impl Default for Endpoint {
    fn default() -> Self {
        Self {
            type_: EndpointType::default(),
            host: None,
            port: api_port(),
            cert_sans: Vec::new(),
            annotations: BTreeMap::new(),
            load_balancer_class: None,
            source_ranges: None,
        }
    }
}

const fn api_port() -> i32 {
    6443
}

/// Kinds of endpoint.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointType {
    /// A Service of type LoadBalancer.
    #[default]
    LoadBalancer,
    /// A Service of type NodePort, reached through `host`.
    NodePort,
    /// A Service address inside the infrastructure cluster.
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// A host and port of the user's own.
    External,
}

/// The guest's pod network.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cni {
    /// flannel over VXLAN, port 8572.
    #[default]
    Flannel,
    /// The user brings one.
    None,
}
