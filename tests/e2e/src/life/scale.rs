//! Machines come and go as the specification asks.

use serde_json::json;

use super::LIFE;
use crate::cluster::Cluster;
use crate::prober::Prober;
use crate::stage::Stage;

/// One control-plane machine becomes three and then five, which takes five hosts.
pub async fn a_control_plane_grows(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, LIFE, LIFE);
    cluster
        .apply(1, &json!({ "controlPlane": { "replicas": 1 } }))
        .await?;
    cluster.is_whole_with(1, 1).await?;
    for replicas in [3, 5] {
        cluster
            .edit(&json!({ "controlPlane": { "replicas": replicas } }))
            .await?;
        cluster.is_whole_with(usize::try_from(replicas)?, 1).await?;
        println!("  {:?}", cluster.control_plane().await?);
    }
    Ok(())
}

/// Five become three and then one, and two workers one, while a prober asks: no request is lost, and
/// what is left of etcd is what is left of the machines.
pub async fn a_control_plane_and_a_pool_shrink(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, LIFE, LIFE);
    let workers = |count: u32| json!([{ "name": "general", "replicas": count }]);
    let most = json!({ "controlPlane": { "replicas": 5 }, "workers": workers(2) });
    cluster.edit(&most).await?;
    cluster.is_whole_with(5, 2).await?;
    let prober = Prober::start(cluster.guest_config().await?);
    for replicas in [3, 1] {
        let change = json!({
            "controlPlane": { "replicas": replicas },
            "workers": workers(u32::from(replicas == 3)),
        });
        cluster.edit(&change).await?;
        let left = usize::from(replicas == 3);
        cluster
            .is_whole_with(usize::try_from(replicas)?, left)
            .await?;
        println!("  {:?}", cluster.vms().await?.into_keys());
    }
    prober.stop().await?.has_lost_nothing()
}
