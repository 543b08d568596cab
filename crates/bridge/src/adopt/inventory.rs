//! Which virtual machine is which Machine, Node and member of etcd.
//!
//! References are followed; that names are equal is a finding, never an assumption.

use guestcluster_api::labels::Role;
use guestcluster_planner::observed::Probe;
use serde::Serialize;
use serde_json::Value;

use super::seen::{Kind, Seen, label, name};
use crate::capi;
use crate::import::value::text;

/// One machine of the Cluster, from Machine to member of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The Machine.
    pub machine: String,
    /// `control-plane` or `worker`.
    pub role: &'static str,
    /// Its KubeadmControlPlane or MachineDeployment; none if it stands alone.
    pub pool: Option<String>,
    /// Its KubevirtMachine.
    pub infrastructure: String,
    /// Its KubeadmConfig, if kubeadm's provider boots it.
    pub bootstrap: Option<String>,
    /// The Secret from which its VM boots, if there is to be one.
    pub user_data: Option<String>,
    /// Its VM, if it is there.
    pub vm: Option<String>,
    /// Phase of its instance, if there is one.
    pub instance: Option<String>,
    /// UID of its instance: the same before and after, if it did not restart.
    pub instance_uid: Option<String>,
    /// Host that it runs on.
    pub host: Option<String>,
    /// Its Node, as the Machine says.
    pub node: Option<String>,
    /// Its member of etcd.
    pub etcd: Option<String>,
    /// The guest answered: that it has no member means that it is none.
    pub etcd_known: bool,
}

impl Member {
    /// Whether it is of the control plane.
    pub fn is_control_plane(&self) -> bool {
        self.role == Role::ControlPlane.as_str()
    }
}

/// All machines of the Cluster: the control plane's first, then by pool and name.
pub fn inventory(seen: &Seen) -> Vec<Member> {
    let mut members: Vec<_> = seen
        .own(Kind::Machine)
        .map(|one| member(seen, one))
        .collect();
    members.sort_by_key(|one| {
        (
            !one.is_control_plane(),
            one.pool.clone(),
            one.machine.clone(),
        )
    });
    members
}

fn member(seen: &Seen, machine: &Value) -> Member {
    let infrastructure = text(machine, "/spec/infrastructureRef/name").unwrap_or_default();
    let is_control_plane = label(machine, capi::CONTROL_PLANE_MACHINE).is_some();
    let of_kubeadm = machine["spec"]["bootstrap"]["configRef"]["kind"] == "KubeadmConfig";
    let vm = seen.named(Kind::VirtualMachine, &infrastructure);
    let instance = seen.named(Kind::VirtualMachineInstance, &infrastructure);
    let of_instance = |path: &str| instance.and_then(|one| text(one, path));
    let node = text(machine, "/status/nodeRef/name");
    let guest = seen.guest.known();
    let etcd = guest.and_then(|guest| {
        let pod = guest
            .etcd
            .iter()
            .find(|pod| Some(&pod.node) == node.as_ref());
        pod?.member.clone()
    });
    Member {
        machine: name(machine).to_owned(),
        role: if is_control_plane {
            Role::ControlPlane.as_str()
        } else {
            Role::Worker.as_str()
        },
        pool: pool(machine, is_control_plane),
        bootstrap: text(machine, "/spec/bootstrap/configRef/name").filter(|_| of_kubeadm),
        user_data: text(machine, "/spec/bootstrap/dataSecretName")
            .map(|secret| capi::user_data_secret(&secret)),
        vm: vm.map(|vm| name(vm).to_owned()),
        instance: of_instance("/status/phase"),
        instance_uid: of_instance("/metadata/uid"),
        host: of_instance("/status/nodeName"),
        node,
        etcd,
        etcd_known: matches!(seen.guest, Probe::Known(_)),
        infrastructure,
    }
}

/// Who counts the Machine.
fn pool(machine: &Value, is_control_plane: bool) -> Option<String> {
    if !is_control_plane {
        return label(machine, capi::DEPLOYMENT).map(str::to_owned);
    }
    let owners = machine["metadata"]["ownerReferences"].as_array()?;
    let owner = owners
        .iter()
        .find(|owner| owner["kind"] == Kind::KubeadmControlPlane.as_str())?;
    text(owner, "/name")
}
