//! Members of etcd and control-plane machines are the same.
//!
//! KubeadmControlPlane asks etcd itself, compares its members with the Machines, and says what it found
//! in `EtcdClusterHealthy`; the guest shows the Pods that members run in. Either alone is not enough:
//! a condition may be old, and a Pod does not tell who votes.

use std::collections::BTreeSet;

use super::shape::unknown;
use super::{Case, Reason, Verdict};
use crate::adopt::seen::{EtcdPod, condition, title};
use crate::import::value::text;

const CONDITION: &str = "EtcdClusterHealthy";

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    condition_of_control_plane(case, verdict);
    if let Some(why) = unknown(&case.seen.guest) {
        verdict.say(
            Reason::GuestUnknown,
            format!("Cluster {}", case.seen.name),
            format!("Nodes and members of etcd were not checked, since {why}"),
            format!(
                "run this where the guest's API is reached, with the right to get Secret {}",
                crate::capi::kubeconfig_secret(&case.seen.name)
            ),
        );
        return;
    }
    pods(case, verdict);
}

fn condition_of_control_plane(case: &Case<'_>, verdict: &mut Verdict) {
    let Some(kubeadm) = case.seen.control_plane() else {
        return;
    };
    let found = condition(kubeadm, CONDITION);
    if found.is_some_and(|found| found["status"] == "True") {
        return;
    }
    let said = found.and_then(|found| text(found, "/message"));
    let said = said.filter(|said| !said.is_empty());
    verdict.say(
        Reason::EtcdUnhealthy,
        title(kubeadm),
        match said {
            Some(said) => format!("{CONDITION} is not True: {said}"),
            None => format!("it does not say {CONDITION}, so members of etcd are not known"),
        },
        "wait until Cluster API finds every member healthy, and ask again",
    );
}

fn pods(case: &Case<'_>, verdict: &mut Verdict) {
    let Some(guest) = case.seen.guest.known() else {
        return;
    };
    let machines = case.members.iter().filter(|one| one.is_control_plane());
    let nodes: BTreeSet<_> = machines.filter_map(|one| one.node.as_deref()).collect();
    let mut differs = |about: String, what: String| {
        let cure = "bring etcd and the control plane in line first, and ask again";
        verdict.say(Reason::EtcdMembers, about, what, cure);
    };
    let by_node = |node: &str| guest.etcd.iter().find(|pod| pod.node == node);
    for node in &nodes {
        match by_node(node).map(trouble) {
            None => differs(format!("Node {node}"), "no Pod of it runs etcd".to_owned()),
            Some(Some(what)) => differs(format!("Pod etcd-{node}"), what),
            Some(None) => {}
        }
    }
    for pod in guest.etcd.iter().filter(|pod| !nodes.contains(&*pod.node)) {
        differs(
            format!("Pod etcd-{}", pod.node),
            "it runs etcd on no control-plane machine of this Cluster".to_owned(),
        );
    }
}

fn trouble(pod: &EtcdPod) -> Option<String> {
    if pod.member.as_deref() != Some(&*pod.node) {
        return Some(format!(
            "its member goes by {:?} and not by its Node's name",
            pod.member.as_deref().unwrap_or_default()
        ));
    }
    (!pod.ready).then(|| "it is not ready".to_owned())
}
