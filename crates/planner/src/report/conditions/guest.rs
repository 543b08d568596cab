//! Conditions of the guest itself: control plane, etcd, workers.

use guestcluster_api::Reason;
use guestcluster_api::labels::Role;
use guestcluster_api::spec::Topology;

use super::foundation::counted;
use super::{Facts, Truth, Verdict, held, no, yes};
use crate::machines::{MachineView, Phase};
use crate::observed::{Etcd, Probe};
use crate::render;

pub(super) fn control_plane(facts: &Facts<'_>) -> Verdict {
    if !facts.status.initialised {
        return held(facts, &[Reason::BootstrapFailed])
            .or_else(|| image_trouble(facts))
            .unwrap_or_else(|| no(Reason::NotInitialised, first_machine(facts)));
    }
    let ready = facts.status.control_plane.ready;
    let wanted = facts.wanted.control_plane_size();
    let message = format!("{ready} of {wanted} control-plane machines are ready");
    match &facts.seen.guest {
        Probe::Unreachable(why) => no(
            Reason::GuestUnreachable,
            format!("the guest API does not answer: {why}"),
        ),
        Probe::Known(_) | Probe::NotAsked if u32::try_from(ready).is_ok_and(|r| r >= wanted) => {
            yes(
                Reason::Available,
                message + &closed_to_pods(facts, Role::ControlPlane),
            )
        }
        Probe::Known(_) => {
            let (reason, detail) = not_ready(facts, Role::ControlPlane);
            yes(reason, format!("{message}{detail}"))
        }
        Probe::NotAsked => (Truth::Unknown, Reason::Pending, message),
    }
}

fn first_machine(facts: &Facts<'_>) -> String {
    let first = facts
        .machines
        .values()
        .find(|m| m.role == Role::ControlPlane && m.vm.is_some());
    match first {
        None => "the first control-plane machine is not there yet".to_owned(),
        Some(machine) => state(machine),
    }
}

/// What a machine does, and what keeps it from doing more.
fn state(machine: &MachineView<'_>) -> String {
    let phase = machine.phase().as_str().to_lowercase();
    let trouble = machine.trouble().map(|why| format!(" ({why})"));
    format!("{} is {phase}{}", machine.name, trouble.unwrap_or_default())
}

fn image_trouble(facts: &Facts<'_>) -> Option<Verdict> {
    let name = render::golden_name(facts.wanted);
    let image = facts.seen.disks.get(&name)?;
    let why = image
        .message
        .as_ref()
        .filter(|_| image.phase.as_deref() != Some("Succeeded"))?;
    Some(no(
        Reason::ImagePending,
        format!("DataVolume {name} is not imported: {why}"),
    ))
}

pub(super) fn etcd(facts: &Facts<'_>) -> Verdict {
    if let Some(verdict) = held(facts, &[Reason::QuorumLost]) {
        return verdict;
    }
    let etcd = match &facts.seen.etcd {
        Probe::Known(etcd) => etcd,
        Probe::Unreachable(why) => {
            return (
                Truth::Unknown,
                Reason::GuestUnreachable,
                format!("etcd does not answer: {why}"),
            );
        }
        Probe::NotAsked if facts.wanted.identity.deleting => {
            let message = "a cluster that is being deleted is not asked";
            return (Truth::Unknown, Reason::DeletingObjects, message.to_owned());
        }
        Probe::NotAsked if facts.status.initialised => {
            let message = "no control-plane machine runs that could be asked for etcd";
            return (Truth::Unknown, Reason::GuestUnreachable, message.to_owned());
        }
        Probe::NotAsked => {
            let message = "etcd was not asked yet";
            return (Truth::Unknown, Reason::Pending, message.to_owned());
        }
    };
    let sick: Vec<String> = members_in_trouble(etcd).chain(no_members(facts)).collect();
    match (etcd.leader, sick.is_empty()) {
        (None, _) => no(Reason::EtcdUnhealthy, "etcd has no leader"),
        (Some(_), true) => yes(
            Reason::Settled,
            format!("{} healthy", counted(etcd.members.len(), "member")),
        ),
        (Some(_), false) => no(Reason::EtcdUnhealthy, sick.join(", ")),
    }
}

fn members_in_trouble(etcd: &Etcd) -> impl Iterator<Item = String> {
    let sick = etcd.members.iter().filter(|m| !m.healthy || m.learner);
    sick.map(|member| {
        let name = if member.name.is_empty() {
            "a new member"
        } else {
            &member.name
        };
        let state = if member.learner {
            "is a learner"
        } else {
            "does not answer"
        };
        format!("{name} ({:x}) {state}", member.id)
    })
}

/// Control-plane machines that etcd does not know any more.
fn no_members<'a>(facts: &Facts<'a>) -> impl Iterator<Item = String> + 'a {
    let lost = |m: &&MachineView<'_>| {
        let stays = m.joined_before() && m.leaves().is_none();
        m.role == Role::ControlPlane && stays && m.member.is_none()
    };
    let lost = facts.machines.values().filter(lost);
    lost.map(|machine| format!("{} is no member", machine.name))
}

pub(super) fn workers(facts: &Facts<'_>) -> Verdict {
    let (role, ready, wanted) = match facts.wanted.topology {
        Topology::Dedicated => {
            let ready = facts.status.workers.iter().map(|pool| pool.ready).sum();
            (Role::Worker, ready, facts.wanted.worker_count())
        }
        // Its control-plane machines are its workers.
        Topology::Converged => {
            let ready = facts.status.control_plane.ready;
            (Role::ControlPlane, ready, facts.wanted.control_plane_size())
        }
    };
    let message = format!("{ready} of {wanted} workers are ready");
    if u32::try_from(ready).is_ok_and(|ready| ready >= wanted) {
        return yes(Reason::Available, message + &closed_to_pods(facts, role));
    }
    let (reason, detail) = not_ready(facts, role);
    let pending = reason == Reason::Degraded && !facts.status.initialised;
    let reason = if pending {
        Reason::Provisioning
    } else {
        reason
    };
    no(reason, format!("{message}{detail}"))
}

/// Which machines of a role do not serve, and what they do instead.
fn not_ready(facts: &Facts<'_>, role: Role) -> (Reason, String) {
    let others = || {
        let of_role = facts.machines.values().filter(|m| m.role == role);
        of_role.filter(|m| m.phase() != Phase::Ready)
    };
    let reason = if others().any(|m| m.phase() == Phase::Failed) {
        Reason::BootstrapFailed
    } else {
        Reason::Degraded
    };
    let words: Vec<String> = others().map(state).collect();
    let detail = if words.is_empty() {
        String::new()
    } else {
        format!("; {}", words.join(", "))
    };
    (reason, detail)
}

/// Machines of a role that serve and whose kubelet takes no Pod, since it is short of something
/// (<https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/>).
fn closed_to_pods(facts: &Facts<'_>, role: Role) -> String {
    let of_role = facts.machines.values().filter(|m| m.role == role);
    let short = of_role.filter_map(|machine| {
        let taints = machine.node?.taints.iter();
        let of = taints.filter_map(|taint| match taint.as_str() {
            "node.kubernetes.io/disk-pressure" => Some("disk"),
            "node.kubernetes.io/memory-pressure" => Some("memory"),
            "node.kubernetes.io/pid-pressure" => Some("process IDs"),
            _ => None,
        });
        let of: Vec<&str> = of.collect();
        (!of.is_empty()).then(|| format!("{} is short of {}", machine.name, of.join(" and ")))
    });
    let short: Vec<String> = short.collect();
    if short.is_empty() {
        return String::new();
    }
    format!("; new Pods are kept off: {}", short.join(", "))
}
