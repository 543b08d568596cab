//! What is done to a cluster, one after another in its life.

use std::time::Duration;

use guestcluster_foreign::kubevirt::VirtualMachine;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::wait::until;

/// The longest that one operation may take, whatever goes wrong.
pub const LIMIT: Duration = Duration::from_secs(120);

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A cluster of one control-plane machine and one worker.
    Create,
    /// The control plane becomes three.
    Grow,
    /// A person deletes the VM of a control-plane machine.
    Repair,
    /// The worker is replaced by one of another size.
    RenewWorker,
    /// All of the control plane is replaced by machines of another size.
    RenewControlPlane,
    /// The control plane becomes one.
    Shrink,
    /// The cluster goes.
    Delete,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Create,
        Self::Grow,
        Self::Repair,
        Self::RenewWorker,
        Self::RenewControlPlane,
        Self::Shrink,
        Self::Delete,
    ];

    /// A life. In all lives the same is left after an operation.
    pub const SHORT: &[Self] = &[
        Self::Create,
        Self::Grow,
        Self::Repair,
        Self::RenewWorker,
        Self::Shrink,
        Self::Delete,
    ];

    /// One with the replacement of a whole control plane, which takes as long as all the rest.
    pub const LONG: &[Self] = &[
        Self::Create,
        Self::Grow,
        Self::Repair,
        Self::RenewWorker,
        Self::RenewControlPlane,
        Self::Delete,
    ];

    /// One without what takes long.
    pub const BRIEF: &[Self] = &[Self::Create, Self::Grow, Self::Repair, Self::Delete];

    /// For the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create 1+1",
            Self::Grow => "scale 1 to 3",
            Self::RenewWorker => "renew worker",
            Self::Repair => "repair",
            Self::RenewControlPlane => "renew 3 of 3",
            Self::Shrink => "scale 3 to 1",
            Self::Delete => "delete",
        }
    }

    /// How many machines there are after it.
    const fn machines(self) -> usize {
        match self {
            Self::Create | Self::Shrink => 2,
            Self::Grow | Self::RenewWorker | Self::Repair | Self::RenewControlPlane => 4,
            Self::Delete => 0,
        }
    }

    /// Does what a person does.
    pub async fn begin(self, cluster: &Cluster<'_>) -> anyhow::Result<()> {
        let machine = |memory: &str| json!({ "cpu": 1, "memory": memory });
        let worker =
            |memory| json!([{ "name": "general", "replicas": 1, "machine": machine(memory) }]);
        let edit = |spec: Value| async move { cluster.edit(&spec).await };
        match self {
            Self::Create => {
                let spec = json!({
                    "version": "v1.36.3",
                    "image": { "registry": "registry.local/guest/node:v1.36.3" },
                    "controlPlane": { "replicas": 1, "machine": machine("2Gi") },
                    "workers": worker("2Gi"),
                });
                let document = json!({
                    "apiVersion": "guestcluster.dev/v1alpha1",
                    "kind": "GuestCluster",
                    "metadata": { "name": cluster.name, "namespace": cluster.namespace },
                    "spec": spec,
                });
                let apply = ["apply", "-f", "-"];
                cluster
                    .stage
                    .kubectl_with(&apply, &document.to_string())
                    .await
                    .map(drop)
            }
            Self::Grow => edit(json!({ "controlPlane": { "replicas": 3 } })).await,
            Self::RenewWorker => edit(json!({ "workers": worker("3Gi") })).await,
            Self::RenewControlPlane => {
                edit(json!({ "controlPlane": { "machine": machine("3Gi") } })).await
            }
            Self::Shrink => edit(json!({ "controlPlane": { "replicas": 1 } })).await,
            Self::Repair => delete_a_vm(cluster).await,
            Self::Delete => {
                let api = Api::<guestcluster_api::GuestCluster>::namespaced(
                    cluster.stage.client(),
                    cluster.namespace,
                );
                api.delete(cluster.name, &DeleteParams::default()).await?;
                Ok(())
            }
        }
    }

    /// Waits until the cluster's status says that it is over.
    pub async fn is_over(self, cluster: &Cluster<'_>) -> anyhow::Result<()> {
        until(self.name(), LIMIT, || async {
            if self == Self::Delete {
                let api = Api::<guestcluster_api::GuestCluster>::namespaced(
                    cluster.stage.client(),
                    cluster.namespace,
                );
                let found = api.get_opt(cluster.name).await?;
                anyhow::ensure!(found.is_none(), "it is still there");
                return Ok(Some(()));
            }
            cluster.has_settled().await?;
            // The status of a cluster whose VM was deleted is out of date at first.
            let vms = cluster.vms().await?;
            let ready = |vm: &VirtualMachine| vm.status.as_ref().is_some_and(|s| s.ready);
            let all = vms.len() == self.machines() && vms.values().all(ready);
            anyhow::ensure!(all, "machines are {:?}", vms.keys());
            Ok(Some(()))
        })
        .await
    }
}

/// Deletes the VM of the last control-plane machine and waits until it is gone.
async fn delete_a_vm(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machines = cluster.control_plane().await?;
    let victim = machines.last().cloned().unwrap_or_default();
    let vms = cluster.vms().await?;
    let before = vms.get(&victim).and_then(kube::ResourceExt::uid);
    let vm = [
        "-n",
        cluster.namespace,
        "delete",
        "vm",
        &victim,
        "--wait=false",
    ];
    cluster.stage.kubectl(&vm).await?;
    until("the VM goes", LIMIT, || async {
        let now = cluster.vms().await?;
        let uid = now.get(&victim).and_then(kube::ResourceExt::uid);
        Ok((uid != before).then_some(()))
    })
    .await
}
