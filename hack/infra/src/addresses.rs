//! The address plan inside the network namespace of the local infrastructure.
//!
//! Nothing of it exists on the network of the box itself, so two infrastructures can stand side by
//! side with the same addresses.

use std::net::Ipv4Addr;

/// Pods, and with them the guest machines. This range and that of Services are the defaults of kind
/// and kubeadm, so that what works here does not clash there.
pub const POD_RANGE: &str = "10.244.0.0/16";
/// The bridge of the namespace: default gateway of every Pod, and address of the API server.
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);
/// ClusterIPs of the infrastructure cluster.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
/// The ClusterIP of the Service `kubernetes`: the first address of the range.
pub const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The port of the API server, on the router and on loopback.
pub const API_PORT: u16 = 6443;
/// The port on which every host's kubelet serves logs.
pub const KUBELET_PORT: u16 = 10250;
/// The most hosts that the plan has addresses for.
pub const MAX_HOSTS: u8 = 250;

/// The addresses of the load balancer.
pub const LOAD_BALANCER_RANGE: &str = "10.79.0.0/24";

/// The address of the kubelet of host number `host`, counted from 1.
pub fn kubelet(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, host)
}

/// Load balancer address number `index`, counted from 1 (`10.79.0.0/24`).
pub fn load_balancer(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 79, 0, index)
}
