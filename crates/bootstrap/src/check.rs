//! What can be known to be wrong before a machine exists.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use crate::{Binding, Components, Error, MachineConfig, Role};

/// Arguments that the rendering sets or relies on, by component.
const RESERVED_API_SERVER: &[&str] = &[
    "advertise-address",
    "bind-address",
    "etcd-servers",
    "secure-port",
    "service-cluster-ip-range",
];
const RESERVED_CONTROLLER_MANAGER: &[&str] = &[
    "allocate-node-cidrs",
    "cluster-cidr",
    "service-cluster-ip-range",
];
const RESERVED_ETCD: &[&str] = &[
    "advertise-client-urls",
    "client-cert-auth",
    "data-dir",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "listen-client-urls",
    "listen-peer-urls",
    "name",
    "peer-client-cert-auth",
    "peer-skip-client-san-verification",
];

/// Label keys of the `kubernetes.io` domain that the kubelet accepts for its own Node, besides
/// the prefixes below (k8s.io/kubernetes, pkg/kubelet/apis/well_known_labels.go).
const KUBELET_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const KUBELET_LABEL_PREFIXES: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

pub(crate) fn check(config: &MachineConfig) -> Result<(), Error> {
    name("machine name", &config.name)?;
    name("cluster name", &config.cluster.name)?;
    endpoint(config)?;
    ranges(config)?;
    address(config)?;
    if config.converged.is_some() && !config.role.is_control_plane() {
        return Err(Error::ConvergedWorker(config.name.clone()));
    }
    config
        .labels
        .iter()
        .try_for_each(|(key, value)| label(key, value))?;
    config.taints.iter().try_for_each(|taint| {
        label_key("taint key", &taint.key)?;
        label_value("taint value", taint.value.as_deref().unwrap_or_default())
    })?;
    match &config.role {
        Role::Init { components, .. } => components_fit(components),
        Role::JoinControlPlane { .. } | Role::JoinWorker => Ok(()),
    }
}

fn bad(what: &'static str, value: &str, expected: &'static str) -> Error {
    Error::BadValue {
        what,
        value: value.to_owned(),
        expected,
    }
}

fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A DNS name as Kubernetes takes it: labels of small letters, digits and inner dashes (RFC 1123).
pub fn is_domain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

fn name(what: &'static str, name: &str) -> Result<(), Error> {
    if is_label(name) {
        Ok(())
    } else {
        Err(Error::BadName {
            what,
            name: name.to_owned(),
        })
    }
}

fn endpoint(config: &MachineConfig) -> Result<(), Error> {
    let endpoint = &config.cluster.endpoint;
    // A name of digits and dots that is no address is a mistyped address, not a host.
    let like_address = endpoint
        .host
        .bytes()
        .all(|c| c.is_ascii_digit() || c == b'.');
    let fits = if like_address {
        endpoint.host.parse::<Ipv4Addr>().is_ok()
    } else {
        is_domain(&endpoint.host)
    };
    if !fits {
        return Err(bad(
            "endpoint host",
            &endpoint.host,
            "an IPv4 address or a host name",
        ));
    }
    if endpoint.port == 0 {
        return Err(bad("endpoint port", "0", "a port from 1 to 65535"));
    }
    if is_domain(&config.cluster.dns_domain) {
        Ok(())
    } else {
        Err(bad(
            "DNS domain",
            &config.cluster.dns_domain,
            "a domain such as cluster.local",
        ))
    }
}

/// First address and prefix length, if the text is a range written by its first address.
fn range(text: &str) -> Option<(u32, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    let length: u8 = prefix
        .parse()
        .ok()
        .filter(|length| (1..=32).contains(length))?;
    let canonical = length.to_string() == prefix && address & !mask(length) == 0;
    canonical.then_some((address, length))
}

/// Of 1 to 32 bits.
const fn mask(length: u8) -> u32 {
    u32::MAX << (32 - length)
}

/// kubeadm's own limits: each Node gets a /24 of the pod range and at most 2^16 Nodes fit; the
/// service range has at most 20 bits and at least 10 addresses.
fn ranges(config: &MachineConfig) -> Result<(), Error> {
    let (pods, services) = (&config.cluster.pod_cidr, &config.cluster.service_cidr);
    let (pod_base, pod_length) = range(pods)
        .filter(|(_, length)| (8..=24).contains(length))
        .ok_or_else(|| {
            bad(
                "pod range",
                pods,
                "an IPv4 range from /8 to /24, written by its first address",
            )
        })?;
    let (service_base, service_length) = range(services)
        .filter(|(_, length)| (12..=28).contains(length))
        .ok_or_else(|| {
            bad(
                "service range",
                services,
                "an IPv4 range from /12 to /28, written by its first address",
            )
        })?;
    let common = mask(pod_length.min(service_length));
    if pod_base & common == service_base & common {
        return Err(Error::OverlappingRanges {
            pods: pods.clone(),
            services: services.clone(),
        });
    }
    Ok(())
}

fn address(config: &MachineConfig) -> Result<(), Error> {
    let wanted = config.role.is_control_plane() || config.cluster.binding == Binding::Masquerade;
    match config.service_address {
        None if wanted => Err(Error::MissingServiceAddress(config.name.clone())),
        Some(_) if !wanted => Err(Error::NeedlessServiceAddress(config.name.clone())),
        Some(address) if address.is_loopback() || address.is_unspecified() => Err(bad(
            "service address",
            &address.to_string(),
            "the cluster address of a Service",
        )),
        Some(_) | None => Ok(()),
    }
}

/// Whether a kubelet may give its own Node a label of that key.
pub fn is_kubelet_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let within = |suffix: &str| {
        domain == suffix
            || domain
                .strip_suffix(suffix)
                .is_some_and(|rest| rest.ends_with('.'))
    };
    let reserved = within("kubernetes.io") || within("k8s.io");
    let allowed =
        KUBELET_LABELS.contains(&key) || KUBELET_LABEL_PREFIXES.iter().any(|prefix| within(prefix));
    !reserved || allowed
}

fn label(key: &str, value: &str) -> Result<(), Error> {
    label_key("label key", key)?;
    label_value("label value", value)?;
    if is_kubelet_label(key) {
        Ok(())
    } else {
        Err(Error::ForbiddenLabel(key.to_owned()))
    }
}

fn is_qualified(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let ends = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().copied().all(inner)
        && ends(bytes.first())
        && ends(bytes.last())
}

fn label_key(what: &'static str, key: &str) -> Result<(), Error> {
    let fits = match key.split_once('/') {
        None => is_qualified(key),
        Some((domain, rest)) => is_domain(domain) && is_qualified(rest),
    };
    if fits {
        Ok(())
    } else {
        Err(bad(what, key, "a qualified name such as example.com/pool"))
    }
}

fn label_value(what: &'static str, value: &str) -> Result<(), Error> {
    if value.is_empty() || is_qualified(value) {
        Ok(())
    } else {
        Err(bad(
            what,
            value,
            "at most 63 letters, digits, `-`, `_` or `.`",
        ))
    }
}

fn components_fit(components: &Components) -> Result<(), Error> {
    for san in &components.cert_sans {
        let wildcard = san.strip_prefix("*.").unwrap_or(san);
        if san.parse::<IpAddr>().is_err() && !is_domain(wildcard) {
            return Err(bad("certificate name", san, "an IP address or a host name"));
        }
    }
    arguments(
        "kube-apiserver",
        &components.api_server,
        RESERVED_API_SERVER,
    )?;
    arguments(
        "kube-controller-manager",
        &components.controller_manager,
        RESERVED_CONTROLLER_MANAGER,
    )?;
    arguments("kube-scheduler", &components.scheduler, &[])?;
    arguments("etcd", &components.etcd, RESERVED_ETCD)
}

fn arguments(
    component: &'static str,
    given: &BTreeMap<String, String>,
    reserved: &[&str],
) -> Result<(), Error> {
    for (argument, value) in given {
        let lower = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c);
        if argument.is_empty() || argument.starts_with('-') || !argument.bytes().all(lower) {
            return Err(bad(
                "argument",
                argument,
                "the name of an argument without leading dashes",
            ));
        }
        if reserved.contains(&argument.as_str()) {
            return Err(Error::ReservedArgument {
                component,
                argument: argument.clone(),
            });
        }
        if value.chars().any(char::is_control) {
            return Err(bad("argument value", value, "one line of text"));
        }
    }
    Ok(())
}
