//! Machines as a person reads them: each beside its host, and what is odd about it.

use std::collections::BTreeMap;

use guestcluster_api::labels::{self, Role};
use guestcluster_foreign::core::HostNode;
use guestcluster_planner::chain::{Link, State};
use kube::ResourceExt;
use serde::Serialize;

use super::By;

/// One machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub tenant: String,
    pub namespace: String,
    pub guest: String,
    pub machine: String,
    pub role: String,
    pub pool: String,
    pub vm: Option<String>,
    /// Phase of its instance.
    pub instance: Option<String>,
    pub pod: Option<String>,
    pub host: Option<String>,
    pub zone: Option<String>,
    /// Hosts could be read: that there is no zone means that the host is in none.
    pub zone_known: bool,
    pub notes: Vec<String>,
}

/// A row for each link. `hosts` is `None` if they may not be read.
pub fn rows(links: &[Link], hosts: Option<&[HostNode]>, by: By) -> Vec<Row> {
    let hosts: Option<BTreeMap<_, _>> =
        hosts.map(|hosts| hosts.iter().map(|host| (host.name_any(), host)).collect());
    let mut rows: Vec<Row> = links
        .iter()
        .map(|link| row(link, notes(link, links, hosts.as_ref()), hosts.as_ref()))
        .collect();
    rows.sort_by_cached_key(|row| {
        // Ordinals count up: the shorter of two names of a pool has the smaller one.
        let guest = [
            &row.tenant,
            &row.namespace,
            &row.guest,
            &row.role,
            &row.pool,
        ]
        .map(String::clone);
        let machine = (row.machine.len(), row.machine.clone());
        let host = (by == By::Host).then(|| (row.host.is_none(), row.host.clone()));
        (host, guest, machine)
    });
    rows
}

fn row(link: &Link, notes: Vec<String>, hosts: Option<&BTreeMap<String, &HostNode>>) -> Row {
    let host = hosts.zip(link.host.as_ref());
    let host = host.and_then(|(hosts, name)| hosts.get(name));
    Row {
        tenant: link.tenant.clone(),
        namespace: link.namespace.clone(),
        guest: link.cluster.clone(),
        machine: link.machine.clone(),
        role: link.role.clone(),
        pool: link.pool.clone(),
        vm: link.vm.clone(),
        instance: link.instance.clone(),
        pod: link.pod.clone(),
        host: link.host.clone(),
        zone: host.and_then(|host| host.labels().get(labels::ZONE).cloned()),
        zone_known: hosts.is_some(),
        notes,
    }
}

/// What is odd about a machine, then about its host.
fn notes(link: &Link, all: &[Link], hosts: Option<&BTreeMap<String, &HostNode>>) -> Vec<String> {
    let mut notes = Vec::new();
    match &link.state {
        State::Off => notes.push("off".to_owned()),
        State::Waits => notes.push("no host".to_owned()),
        State::MovesTo(host) => notes.push(format!("migrates to {host}")),
        State::Runs => {}
    }
    if link.vm.is_none() {
        notes.push("its VM is gone".to_owned());
    }
    let beside: Vec<&str> = all
        .iter()
        .filter(|other| shares_host(link, other))
        .map(|other| other.machine.as_str())
        .collect();
    if !beside.is_empty() {
        notes.push(format!("shares its host with {}", beside.join(", ")));
    }
    if let (Some(host), Some(hosts)) = (&link.host, hosts) {
        notes.extend(host_notes(hosts.get(host).copied()).map(str::to_owned));
    }
    notes
}

/// Both are of the control plane of one guest and on one host.
fn shares_host(link: &Link, other: &Link) -> bool {
    let of_control_plane = |link: &Link| link.role == Role::ControlPlane.as_str();
    link.machine != other.machine
        && link.host.is_some()
        && link.host == other.host
        && (&link.namespace, &link.cluster) == (&other.namespace, &other.cluster)
        && of_control_plane(link)
        && of_control_plane(other)
}

fn host_notes(host: Option<&HostNode>) -> impl Iterator<Item = &'static str> {
    [
        host.is_none().then_some("its host is gone"),
        host.is_some_and(|host| host.spec.unschedulable)
            .then_some("host is cordoned"),
        host.is_some_and(|host| !host.is_ready())
            .then_some("host is NotReady"),
    ]
    .into_iter()
    .flatten()
}
