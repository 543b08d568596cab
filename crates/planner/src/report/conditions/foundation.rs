//! Conditions of what a guest stands on: specification, hosts, authorities, endpoint.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::Reason;
use guestcluster_api::labels::{self, Role};
use guestcluster_api::names;
use guestcluster_api::spec::Profile;

use super::{Facts, Truth, Verdict, capacity, devices, held, no, yes};
use crate::action::Authority;
use crate::decide::{MIGRATION_LIMIT, endpoint, objection};
use crate::machines::MachineView;
use crate::observed::{Migratable, Probe};
use crate::render;
use crate::wanted::Pool;

pub(super) fn accepted(facts: &Facts<'_>) -> Verdict {
    if let Some(objection) = objection(facts.wanted, facts.seen, facts.status) {
        return no(objection.reason, objection.message);
    }
    let infra = &facts.seen.infra;
    let settings = &facts.wanted.settings;
    let pods_known = !infra.pod_ranges.is_empty() || !settings.infra_pod_ranges.is_empty();
    let services_known =
        !infra.service_ranges.is_empty() || !settings.infra_service_ranges.is_empty();
    if !(pods_known && services_known) {
        return yes(
            Reason::InfraRangesUnknown,
            "the infrastructure cluster does not tell its pod or Service ranges, so that overlaps \
             are not checked: set infra.podCIDRs and infra.serviceCIDRs in the chart's values",
        );
    }
    yes(Reason::Settled, "the specification can be carried out here")
}

pub(super) fn placement(facts: &Facts<'_>) -> Verdict {
    if let Some(verdict) = held(facts, &[Reason::TooFewHosts]) {
        return verdict;
    }
    let mut hosts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for machine in facts
        .machines
        .values()
        .filter(|m| m.role == Role::ControlPlane)
    {
        if let Some(host) = machine.host() {
            hosts.entry(host).or_default().push(&machine.name);
        }
    }
    let lab = facts.wanted.profile == Profile::Lab;
    let shared = hosts.iter().find(|(_, names)| names.len() > 1 && !lab);
    if let Some((host, names)) = shared {
        return held(facts, &[Reason::HostShared]).unwrap_or_else(|| {
            let together = names.join(", ");
            let message =
                format!("{together} stand on one host, {host}: its loss would take them all");
            no(Reason::HostShared, message)
        });
    }
    if let Some(verdict) = capacity::crowded(facts) {
        return verdict;
    }
    let homeless = facts.machines.values().find_map(|m| {
        let why = m
            .instance
            .and_then(|instance| instance.unschedulable.as_ref())?;
        let nowhere = devices::offered_nowhere(facts, m);
        let nowhere = nowhere.map(|what| format!("; {what}"));
        let nowhere = nowhere.unwrap_or_default();
        Some(format!("{} has no host: {why}{nowhere}", m.name))
    });
    if let Some(message) = homeless {
        return no(Reason::Unschedulable, message);
    }
    if hosts.is_empty() {
        return (
            Truth::Unknown,
            Reason::Pending,
            "no machine has a host yet".to_owned(),
        );
    }
    if lab {
        return yes(Reason::LabProfile, at_risk(facts, hosts.keys().copied()));
    }
    let zones = zones(facts, hosts.keys().copied());
    yes(
        Reason::Spread,
        format!(
            "{} on {}{zones}",
            counted(hosts.values().map(Vec::len).sum(), "control-plane machine"),
            counted(hosts.len(), "host")
        ),
    )
}

/// Of machines without devices. Numbers of machines are not told: they would change with every
/// machine that boots.
pub(super) fn live_migratable(facts: &Facts<'_>) -> Verdict {
    let judged = || {
        let holds = |m: &MachineView<'_>| facts.wanted.pool(&m.pool).is_some_and(Pool::has_devices);
        let machines = facts.machines.values().filter(move |m| !holds(m));
        machines.filter_map(|machine| Some((machine, &machine.instance?.migratable)))
    };
    let tied = judged().find_map(|(machine, word)| match word {
        Migratable::No(why) => Some((&machine.name, why)),
        Migratable::Yes | Migratable::Unknown => None,
    });
    if let Some((name, why)) = tied {
        return no(
            Reason::NotMigratable,
            format!(
                "{name} cannot move to another host while it runs ({why}): where its host is \
                 emptied, it is shut down and starts elsewhere. Live migration needs binding \
                 Masquerade, and accessMode ReadWriteMany on every disk"
            ),
        );
    }
    if judged().any(|(_, word)| *word == Migratable::Yes) {
        return slow(facts).unwrap_or_else(|| yes(Reason::Migratable, movable(facts)));
    }
    let message = "KubeVirt has judged no machine yet";
    (Truth::Unknown, Reason::Pending, message.to_owned())
}

/// A pool whose machines could move if they were allowed to send more in a second.
fn slow(facts: &Facts<'_>) -> Option<Verdict> {
    let bandwidth = facts.wanted.migration_bandwidth.as_ref()?;
    let mut pools = facts.wanted.pools.iter();
    let is_slow = |pool: &&Pool| !render::passes_within(facts.wanted, pool, MIGRATION_LIMIT);
    let pool = pools.find(is_slow)?;
    Some(no(
        Reason::NotMigratable,
        format!(
            "at {bandwidth} a second the {} of a machine of pool {} do not pass within {} minutes: \
             where its host is emptied, it is shut down and starts elsewhere. Raise \
             spec.maintenance.migration.bandwidthPerMigration",
            pool.machine.memory,
            pool.name,
            MIGRATION_LIMIT.as_mins()
        ),
    ))
}

/// That machines can move, and whether what limits them is in force.
fn movable(facts: &Facts<'_>) -> String {
    let mut message = "machines can move to another host while they run".to_owned();
    let is_limited = facts.wanted.migration_bandwidth.is_some();
    if is_limited && facts.seen.migration_policies.is_none() {
        message.push_str(
            "; spec.maintenance.migration.bandwidthPerMigration is not in force, because KubeVirt \
             has no MigrationPolicy here: install its CustomResourceDefinition",
        );
    }
    message
}

/// What the guest loses with which host, in plain words: nobody must take it for highly available.
fn at_risk<'a>(facts: &Facts<'_>, control_plane: impl Iterator<Item = &'a str>) -> String {
    let machines = facts.machines.values().filter_map(MachineView::host);
    let count = machines.clone().count();
    let hosts: BTreeSet<&str> = machines.collect();
    format!(
        "as profile Lab has it, this guest does not survive the loss of {}, which carries its \
         control plane; {} on {}",
        control_plane.collect::<Vec<_>>().join(" or "),
        counted(count, "machine"),
        hosts.into_iter().collect::<Vec<_>>().join(", ")
    )
}

fn zones<'a>(facts: &Facts<'_>, hosts: impl Iterator<Item = &'a str>) -> String {
    let named: BTreeSet<&str> = hosts.collect();
    let zones: BTreeSet<&String> = facts
        .seen
        .infra
        .hosts
        .iter()
        .filter(|host| named.contains(host.name.as_str()))
        .filter_map(|host| host.labels.get(labels::ZONE))
        .collect();
    if zones.is_empty() {
        String::new()
    } else {
        format!(" in {}", counted(zones.len(), "zone"))
    }
}

pub(super) fn counted(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

pub(super) fn certificates(facts: &Facts<'_>) -> Verdict {
    if let Some(verdict) = held(facts, &[Reason::CertificateDamaged]) {
        return verdict;
    }
    let cluster = &facts.wanted.identity.name;
    let mut names: Vec<String> = Authority::ALL.iter().map(|a| a.secret(cluster)).collect();
    names.push(names::secrets::kubeconfig(cluster));
    match names
        .iter()
        .find(|name| !facts.seen.secrets.contains_key(*name))
    {
        None => yes(Reason::Settled, "all authorities and the kubeconfig exist"),
        Some(name) => no(
            Reason::CertificatesPending,
            format!("Secret {name} is not there yet"),
        ),
    }
}

pub(super) fn endpoint_ready(facts: &Facts<'_>) -> Verdict {
    let (Some(new), Some(now)) = (
        endpoint::asked_for(facts.wanted, facts.seen),
        facts.status.endpoint.as_deref(),
    ) else {
        return held(facts, &[Reason::EndpointPending]).unwrap_or_else(|| {
            no(
                Reason::EndpointPending,
                "the endpoint Service is not there yet",
            )
        });
    };
    if let Probe::Unreachable(why) = &facts.seen.endpoint {
        return (
            Truth::Unknown,
            Reason::EndpointUnreachable,
            format!(
                "the guest serves, but no connection comes about to {now}, which its users and \
                 workers use: {why}"
            ),
        );
    }
    let next = endpoint::server(&new);
    if next == now {
        return yes(Reason::Settled, format!("the guest API is at {now}"));
    }
    let strangers = endpoint::strangers(facts.seen, facts.machines, &new.0);
    yes(
        Reason::Outdated,
        format!(
            "the guest API is at {now}, and at {next} once certificates of the whole control plane \
             vouch for {}: not yet {}",
            new.0,
            strangers.join(", ")
        ),
    )
}
