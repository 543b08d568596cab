//! What kubeadm patches on a converged machine: the kubelet's configuration and static Pods.

use serde_json::{Value, json};

use crate::{Amount, Reservation, cloud_config::File};

/// Where kubeadm is told to look for patches.
pub const DIRECTORY: &str = "/etc/kubernetes/patches";

pub(crate) fn files(reservation: Reservation) -> [File; 3] {
    let patch = |target: &str, patch: &Value| {
        let path = format!("{DIRECTORY}/{target}+strategic.json");
        File::public(&path, &format!("{patch:#}\n"))
    };
    let pod = |container: &str, amount: Amount| {
        let container = json!({ "name": container, "resources": { "requests": amounts(amount) } });
        json!({ "spec": { "containers": [container] } })
    };
    [
        patch("kubeletconfiguration", &kubelet(reservation)),
        patch(
            "kube-apiserver",
            &pod("kube-apiserver", reservation.api_server),
        ),
        patch("etcd", &pod("etcd", reservation.etcd)),
    ]
}

/// The kubelet takes thresholds that are not written for none, unlike a list that is not written
/// at all: its defaults for disks are repeated (k8s.io/kubernetes, pkg/kubelet/eviction).
fn kubelet(reservation: Reservation) -> Value {
    json!({
        "kubeReserved": amounts(reservation.system),
        "evictionHard": {
            "memory.available": format!("{}Mi", reservation.eviction),
            "nodefs.available": "10%",
            "nodefs.inodesFree": "5%",
            "imagefs.available": "15%",
            "imagefs.inodesFree": "5%",
        },
    })
}

fn amounts(amount: Amount) -> Value {
    json!({
        "cpu": format!("{}m", amount.millicpu),
        "memory": format!("{}Mi", amount.mebibytes),
    })
}
