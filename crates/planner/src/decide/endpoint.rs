//! Where the guest's API is reached, and how that changes while people and machines use it.
//!
//! A certificate vouches for names, a kubeconfig and a kubelet name a server. So a change of the host is
//! made in three steps, each of which leaves the old name in use:
//!
//! 1. Control-plane machines are replaced, one after another, by machines whose certificates vouch for the
//!    old name and the new one.
//! 2. Once all of them do, the new one is in use: kubeconfig, pod network, kube-proxy and joins follow.
//! 3. Workers that were told the old one are replaced, as their pools' rollouts allow.
//!
//! Which one is in use is what the kubeconfig's Secret says, so that one write makes the change.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::GuestClusterStatus;
use guestcluster_api::labels::Role;
use guestcluster_api::names::{endpoint_service, secrets};
use guestcluster_api::spec::EndpointType;

use super::{Context, Draft, Flow};
use crate::action::Action;
use crate::machines::MachineView;
use crate::observed::Observed;
use crate::wanted::Wanted;

/// `host:port` that the specification asks for, once it is known.
pub fn asked_for(wanted: &Wanted, seen: &Observed) -> Option<(String, u16)> {
    let settings = wanted.endpoint();
    let service = seen
        .services
        .get(&endpoint_service(&wanted.identity.name))?;
    let port = u16::try_from(settings.port).ok()?;
    let host = settings.host.clone();
    match settings.type_ {
        EndpointType::External => Some((host?, port)),
        EndpointType::ClusterIp => Some((service.cluster_ip.clone()?, port)),
        EndpointType::NodePort => Some((host?, service.node_port?)),
        EndpointType::LoadBalancer => {
            let given = service.load_balancer.clone()?;
            Some((host.unwrap_or(given), port))
        }
    }
}

/// `host:port` under which clients and machines reach the guest's API now: the one asked for as soon as
/// the certificate of every control-plane machine vouches for it, until then the one before.
pub(crate) fn in_use(
    wanted: &Wanted,
    seen: &Observed,
    previous: &GuestClusterStatus,
    machines: &BTreeMap<String, MachineView<'_>>,
) -> Option<(String, u16)> {
    let new = asked_for(wanted, seen)?;
    let before = || parse(previous.endpoint.as_ref()?);
    match in_kubeconfig(wanted, seen).or_else(before) {
        Some(old) if old != new && !strangers(seen, machines, &new.0).is_empty() => Some(old),
        _ => Some(new),
    }
}

/// `host:port` under which users look for the guest's API: that of the kubeconfig, or the one that it
/// will have.
pub fn told_to_users(wanted: &Wanted, seen: &Observed) -> Option<(String, u16)> {
    in_kubeconfig(wanted, seen).or_else(|| asked_for(wanted, seen))
}

fn in_kubeconfig(wanted: &Wanted, seen: &Observed) -> Option<(String, u16)> {
    let name = secrets::kubeconfig(&wanted.identity.name);
    parse(seen.secrets.get(&name)?.server.as_ref()?)
}

/// Control-plane machines whose certificates do not vouch for a host, or are not known.
pub(crate) fn strangers<'m>(
    seen: &Observed,
    machines: &'m BTreeMap<String, MachineView<'_>>,
    host: &str,
) -> Vec<&'m str> {
    let vouches = |machine: &str| {
        let certificate = seen.certificates.get(machine);
        certificate.is_some_and(|certificate| vouches_for(&certificate.names, host))
    };
    let control_planes = machines
        .values()
        .filter(|m| m.role == Role::ControlPlane && !m.is_leaving());
    control_planes
        .map(|m| m.name.as_str())
        .filter(|name| !vouches(name))
        .collect()
}

/// The first name that a certificate must vouch for and does not.
pub(super) fn missing_name(context: &Context<'_>, machine: &MachineView<'_>) -> Option<String> {
    let certificate = context.seen.certificates.get(&machine.name)?;
    let host = asked_for(context.wanted, context.seen).map(|(host, _)| host);
    let sans = &context.wanted.endpoint().cert_sans;
    let mut wanted = sans.iter().chain(&host);
    wanted
        .find(|name| !vouches_for(&certificate.names, name))
        .cloned()
}

/// The endpoint that a worker was told and that is not in use any more.
pub(super) fn former_server<'m>(
    context: &Context<'_>,
    machine: &'m MachineView<'_>,
) -> Option<&'m str> {
    // Programs of a control-plane machine ask its own API server.
    let told = machine.user_data.filter(|_| machine.role == Role::Worker)?;
    let told = told.server.as_deref()?;
    let now = server(&context.endpoint()?);
    (told != now).then_some(told)
}

/// Names for certificates to come, besides the endpoint in use: those asked for, and every host that a
/// machine was told.
pub(super) fn names(context: &Context<'_>, endpoint: &(String, u16)) -> Vec<String> {
    let told = context.machines.values().filter_map(|m| m.user_data);
    let told = told.filter_map(|secret| parse(secret.server.as_ref()?));
    let mut hosts: BTreeSet<String> = told.map(|(host, _)| host).collect();
    hosts.extend(asked_for(context.wanted, context.seen).map(|(host, _)| host));
    hosts.remove(&endpoint.0);
    let mut names = context.wanted.endpoint().cert_sans.clone();
    hosts.retain(|host| !names.contains(host));
    names.extend(hosts);
    names
}

/// Joins and kube-proxy follow the endpoint in use.
pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let guest = context.seen.guest.known().filter(|_| context.initialised());
    let told = guest.and_then(|guest| guest.server.as_ref());
    let now = context.endpoint().map(|endpoint| server(&endpoint));
    if let (Some(told), Some(server)) = (told, now)
        && *told != server
    {
        draft.act(Action::MoveEndpoint { server });
    }
    Flow::Next
}

/// As kubeconfigs write it after `https://`.
pub fn server((host, port): &(String, u16)) -> String {
    format!("{host}:{port}")
}

fn parse(server: &str) -> Option<(String, u16)> {
    let (host, port) = server.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

fn vouches_for(names: &BTreeSet<String>, name: &str) -> bool {
    names.contains(&canonical(name))
}

/// A name or address as certificates are compared by: names in small letters, addresses in the one form
/// that RFC 5952 gives them.
pub fn canonical(name: &str) -> String {
    let address = name.parse::<std::net::IpAddr>();
    address.map_or_else(|_| name.to_ascii_lowercase(), |address| address.to_string())
}
