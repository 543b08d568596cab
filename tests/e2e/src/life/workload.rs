//! A workload of the guest's tenant: a Deployment, its budget, and a watcher of its ready Pods.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::wait::until;

impl Cluster<'_> {
    /// Runs Pods in the guest, held by a budget if `available` is given, and waits until all are ready.
    pub(super) async fn guest_deploys(
        &self,
        name: &str,
        replicas: u32,
        available: Option<u32>,
    ) -> anyhow::Result<()> {
        let guest = self.guest().await?;
        let params = PatchParams::apply("e2e").force();
        let labels = json!({ "app": name });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{
                            "name": "sleep",
                            "image": "registry.local/busybox:1",
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"],
                        }],
                    },
                },
            },
        });
        let deployments = Api::<Deployment>::namespaced(guest.clone(), "default");
        deployments
            .patch(name, &params, &Patch::Apply(&deployment))
            .await?;
        if let Some(available) = available {
            let budget = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": { "name": name },
                "spec": { "minAvailable": available, "selector": { "matchLabels": labels } },
            });
            Api::<PodDisruptionBudget>::namespaced(guest, "default")
                .patch(name, &params, &Patch::Apply(&budget))
                .await?;
        }
        until("its Pods are ready", Duration::from_secs(60), || async {
            let ready = ready(&deployments, name).await?;
            Ok((ready == i32::try_from(replicas)?).then_some(()))
        })
        .await
    }

    /// Writes enough for etcd to claim space that its disk may not have.
    pub(super) async fn guest_writes_much(&self) -> anyhow::Result<()> {
        let maps = Api::<ConfigMap>::namespaced(self.guest().await?, "default");
        let params = PatchParams::apply("e2e").force();
        for number in 0..150 {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "much" },
                "data": { "text": number.to_string().repeat(40_000) },
            });
            // A member that dies meanwhile takes requests with it.
            let _ = maps.patch("much", &params, &Patch::Apply(&map)).await;
        }
        Ok(())
    }

    /// Takes the budget away.
    pub(super) async fn guest_deletes_budget(&self, name: &str) -> anyhow::Result<()> {
        let budgets = Api::<PodDisruptionBudget>::namespaced(self.guest().await?, "default");
        budgets.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }
}

async fn ready(deployments: &Api<Deployment>, name: &str) -> anyhow::Result<i32> {
    let status = deployments.get(name).await?.status.unwrap_or_default();
    Ok(status.ready_replicas.unwrap_or_default())
}

/// Looks at a Deployment's ready Pods once a second.
pub(super) struct Watcher {
    stop: oneshot::Sender<()>,
    task: JoinHandle<i32>,
}

impl Watcher {
    /// Starts looking.
    pub(super) async fn start(cluster: &Cluster<'_>, name: &'static str) -> anyhow::Result<Self> {
        let deployments = Api::<Deployment>::namespaced(cluster.guest().await?, "default");
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut least = i32::MAX;
            loop {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(1)) => {
                        if let Ok(ready) = ready(&deployments, name).await {
                            least = least.min(ready);
                        }
                    }
                    _ = &mut stopped => return least,
                }
            }
        });
        Ok(Self { stop, task })
    }

    /// Stops, and fails if there was ever no ready Pod.
    pub(super) async fn never_saw_none(self) -> anyhow::Result<()> {
        let _ = self.stop.send(());
        let least = self.task.await?;
        println!("  at least {least} Pods of the workload were ready");
        anyhow::ensure!(least > 0, "there was a moment without a ready Pod");
        Ok(())
    }
}
