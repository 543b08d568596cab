//! What stands against an adoption, what is only to be known, and that a plan names all it would write.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod edits;
mod world;

use std::collections::BTreeSet;

use edits::{Edit, edits, edits_with_others, warnings};
use guestcluster_bridge::adopt::plan::Change;
use guestcluster_bridge::adopt::{Adoption, Finding, Guest, Kind, Reason, adopt};
use serde_json::{Value, json};
use world::{all, at_rest, first};

fn edited(edit: Edit) -> Adoption {
    let mut seen = at_rest();
    edit(&mut seen);
    adopt(&seen)
}

fn reasons(findings: &[Finding]) -> BTreeSet<Reason> {
    findings.iter().map(|one| one.reason).collect()
}

fn shown(findings: &[Finding]) -> String {
    let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn a_cluster_at_rest_can_be_adopted() {
    let adoption = adopt(&at_rest());
    let against = &adoption.verdict.reasons;
    assert!(against.is_empty(), "{}", shown(against));
    assert_eq!(
        reasons(&adoption.verdict.warnings),
        [Reason::AddressOfPod].into()
    );
}

#[test]
fn each_reason_stands_against_an_adoption_by_itself() {
    for (number, (reason, edit)) in edits().into_iter().enumerate() {
        let Adoption { verdict, plan, .. } = edited(edit);
        let against = shown(&verdict.reasons);
        assert_eq!(
            reasons(&verdict.reasons),
            [reason].into(),
            "{number}: {against}"
        );
        assert!(plan.is_none() && !verdict.is_accepted(), "{number}");
    }
}

#[test]
fn what_brings_other_things_about_is_told_too() {
    for (number, (reason, edit)) in edits_with_others().into_iter().enumerate() {
        let verdict = edited(edit).verdict;
        assert!(
            reasons(&verdict.reasons).contains(&reason),
            "{number} {reason:?}: {}",
            shown(&verdict.reasons)
        );
    }
}

#[test]
fn what_is_only_to_be_known_stands_against_nothing() {
    for (reason, edit) in warnings() {
        let verdict = edited(edit).verdict;
        assert!(
            verdict.is_accepted(),
            "{reason:?}: {}",
            shown(&verdict.reasons)
        );
        assert!(reasons(&verdict.warnings).contains(&reason), "{reason:?}");
    }
}

/// Two control-plane machines on one host; that there are two is another matter.
#[test]
fn control_plane_machines_on_one_host_are_told_of() {
    let mut seen = at_rest();
    let worker = &mut all(&mut seen, Kind::Machine)[1]["metadata"]["labels"];
    worker["cluster.x-k8s.io/control-plane"] = json!("");
    all(&mut seen, Kind::VirtualMachineInstance)[1]["status"]["nodeName"] = json!("host-0");
    assert!(reasons(&adopt(&seen).verdict.warnings).contains(&Reason::SharesHost));
}

/// Reasons count up, so that their numbers tell whether one was never tried.
#[test]
fn no_reason_is_untried() {
    let tables = [edits(), edits_with_others(), warnings()];
    let mut tried: BTreeSet<usize> = tables.iter().flatten().map(|one| one.0 as usize).collect();
    // Each has a test of its own above.
    tried.extend([Reason::AddressOfPod as usize, Reason::SharesHost as usize]);
    let all: BTreeSet<usize> = (0..=Reason::ForeignEndpoint as usize).collect();
    assert_eq!(tried, all);
}

#[test]
fn references_are_followed_where_names_differ() {
    let members = adopt(&at_rest()).inventory;
    let found: Vec<_> = members
        .iter()
        .map(|one| {
            let names =
                [&one.vm, &one.node, &one.etcd].map(|name| name.clone().unwrap_or_default());
            (one.machine.as_str(), names)
        })
        .collect();
    let own = |name: &str| name.to_owned();
    assert_eq!(
        found,
        [
            (
                "prod-x1",
                [own("prod-cp-abc"), own("prod-cp-abc"), own("prod-cp-abc")]
            ),
            (
                "prod-w-y1",
                [own("prod-w-def"), own("prod-w-def"), String::new()]
            ),
        ]
    );
}

/// Every object of Cluster API goes, each after what refers to it, and nothing that runs does.
#[test]
fn a_plan_names_every_object_and_lets_leaves_go_first() {
    let plan = adopt(&at_rest()).plan.unwrap();
    let changes: Vec<_> = plan.steps.iter().flat_map(|step| &step.changes).collect();
    let removed: Vec<_> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Remove { object, .. } => Some(object.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        removed,
        [
            "KubevirtMachine prod-cp-abc",
            "KubevirtMachine prod-w-def",
            "KubeadmConfig prod-x1",
            "KubeadmConfig prod-w-y1",
            "Machine prod-x1",
            "Machine prod-w-y1",
            "MachineSet prod-w-5x",
            "MachineDeployment prod-w",
            "KubeadmControlPlane prod",
            "KubevirtMachineTemplate prod",
            "KubevirtMachineTemplate prod-w",
            "KubeadmConfigTemplate prod-w",
            "KubevirtCluster prod",
            "Cluster prod",
        ]
    );
    let lines: Vec<_> = changes.iter().map(ToString::to_string).collect();
    let text = lines.join("\n");
    for kept in [
        "prod-ca",
        "prod-etcd",
        "prod-proxy",
        "prod-sa",
        "prod-kubeconfig",
        "prod-ssh-keys",
    ] {
        assert!(
            text.contains(&format!("Secret {kept}: take off its owner")),
            "{kept}\n{text}"
        );
    }
    for marked in [
        "VirtualMachine prod-w-def",
        "Secret prod-x1-userdata",
        "Service prod-lb",
    ] {
        assert!(
            text.contains(&format!("{marked}: label ")),
            "{marked}\n{text}"
        );
    }
}

#[test]
fn all_can_be_undone_until_cluster_apis_objects_go() {
    let plan = adopt(&at_rest()).plan.unwrap();
    let removes = |change: &Change| matches!(change, Change::Remove { .. });
    for step in &plan.steps {
        assert_eq!(
            step.undo.is_none(),
            step.changes.iter().any(removes),
            "{}",
            step.title
        );
    }
}

/// Applied before its time it does no harm, and it is reached where the guest is reached now.
#[test]
fn the_guest_cluster_is_paused_and_keeps_endpoint_and_ranges() {
    let mut seen = at_rest();
    first(&mut seen, Kind::Cluster)["spec"]["clusterNetwork"] = Value::Null;
    let adoption = adopt(&seen);
    let spec = adoption.guest_cluster.unwrap().spec;
    assert!(spec.paused);
    let endpoint = &spec.control_plane.endpoint;
    assert_eq!(
        (endpoint.host.as_deref(), endpoint.port),
        (Some("203.0.113.7"), 6443)
    );
    assert_eq!(spec.network.pod_cidr, "10.243.0.0/16");
    assert_eq!(spec.network.service_cidr, "10.95.0.0/16");
    let unread = adoption.unread.iter();
    let mut unread = unread.filter(|one| one.path.contains("controlPlaneEndpoint"));
    assert_eq!(unread.next(), None);
}

#[test]
fn no_value_of_a_secret_is_kept() {
    let seen = at_rest();
    assert!(!format!("{seen:?}").contains("c2VjcmV0"));
}

#[test]
fn a_guest_is_read_from_what_kubeadm_left_in_it() {
    let node = json!({
        "metadata": { "name": "a" },
        "spec": { "providerID": "kubevirt://a", "unschedulable": true },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "nodeInfo": {
                "kubeletVersion": "v1.36.3", "architecture": "", "bootID": "", "kernelVersion": "",
                "containerRuntimeVersion": "", "kubeProxyVersion": "", "machineID": "",
                "operatingSystem": "", "osImage": "", "systemUUID": "",
            },
        },
    });
    let etcd = json!({ "name": "etcd", "command": ["etcd", "--data-dir=/x", "--name=a"] });
    let pod = json!({
        "spec": { "nodeName": "a", "containers": [etcd] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    let mut map = json!({ "data": {
        "ClusterConfiguration": "networking:\n  podSubnet: 10.243.0.0/16\n",
    } });
    let read = |map: &Value| {
        Guest::read(
            "a:1".to_owned(),
            &[serde_json::from_value(node.clone()).unwrap()],
            &[serde_json::from_value(pod.clone()).unwrap()],
            Some(&serde_json::from_value(map.clone()).unwrap()),
        )
    };
    let guest = read(&map).unwrap();
    let of_node = &guest.nodes["a"];
    assert!(of_node.ready && of_node.cordoned);
    assert_eq!(of_node.provider_id.as_deref(), Some("kubevirt://a"));
    assert_eq!(of_node.kubelet, "v1.36.3");
    assert_eq!(guest.etcd[0].node, "a");
    assert_eq!(guest.etcd[0].member.as_deref(), Some("a"));
    assert!(guest.etcd[0].ready);
    assert_eq!(
        guest.configuration["networking"]["podSubnet"],
        json!("10.243.0.0/16")
    );
    map["data"]["ClusterConfiguration"] = json!("a: [");
    assert!(read(&map).unwrap_err().contains("kubeadm-config"));
}
