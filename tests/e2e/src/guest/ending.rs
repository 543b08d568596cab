//! Deletion.

use std::time::Duration;

use anyhow::Context as _;
use guestcluster_api::labels;
use serde_json::json;

use super::{PROD, TENANT};
use crate::cluster::Cluster;
use crate::stage::Stage;
use crate::wait::until;

/// Everything that a cluster may leave behind.
const KINDS: &str = "vm,vmi,dv,pvc,secret,service,endpointslice,pod,migrationpolicy";

/// A protected cluster cannot be deleted until the protection is lifted.
pub async fn a_protected_cluster_stays(stage: &Stage) -> anyhow::Result<()> {
    let protect = |on: bool| json!({ "spec": { "deletion": { "protected": on } } }).to_string();
    let patch = |patch: String| async move {
        stage
            .kubectl(&[
                "-n",
                TENANT,
                "patch",
                "gc",
                PROD,
                "--type=merge",
                "-p",
                &patch,
            ])
            .await
    };
    patch(protect(true)).await?;
    let refused = stage
        .kubectl(&["-n", TENANT, "delete", "gc", PROD, "--wait=false"])
        .await;
    patch(protect(false)).await?;
    match refused {
        Ok(_) => anyhow::bail!("the deletion was accepted"),
        Err(error)
            if error
                .to_string()
                .contains("protected from deletion; to lift that") =>
        {
            Ok(())
        }
        Err(error) => anyhow::bail!("it does not say how to go on: {error}"),
    }
}

/// Machines, disks, claims, Secrets and Services go; the deletion ends only then.
pub async fn a_deleted_cluster_leaves_nothing(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    stage
        .kubectl(&["-n", TENANT, "delete", "gc", PROD, "--timeout=180s"])
        .await?;
    nothing_is_left(&cluster).await?;
    let images = stage
        .kubectl(&["-n", TENANT, "get", "dv,pvc", "-o", "name"])
        .await?;
    anyhow::ensure!(images.is_empty(), "the golden image is left: {images}");
    Ok(())
}

async fn nothing_is_left(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let selector = format!("{}={}", labels::CLUSTER, cluster.name);
    let arguments = [
        "-n",
        cluster.namespace,
        "get",
        KINDS,
        "-l",
        &selector,
        "-o",
        "name",
    ];
    // Events and garbage collection of Pods may trail behind by moments.
    until("nothing is left", Duration::from_secs(20), || async {
        let left = cluster.stage.kubectl(&arguments).await?;
        anyhow::ensure!(left.is_empty(), "{left}");
        Ok(Some(()))
    })
    .await
}

/// A guest whose API server is gone cannot hinder its deletion; its disks stay, labelled and without
/// an owner.
pub async fn a_dead_guest_is_deleted_and_its_disks_stay(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, "tenant-b", "twice");
    let patch = json!({ "spec": { "deletion": { "disks": "Retain" } } }).to_string();
    stage
        .kubectl(&[
            "-n",
            "tenant-b",
            "patch",
            "gc",
            "twice",
            "--type=merge",
            "-p",
            &patch,
        ])
        .await?;
    kill_api(&cluster).await?;
    stage
        .kubectl(&["-n", "tenant-b", "delete", "gc", "twice", "--timeout=240s"])
        .await?;
    let selector = format!("{}=true", labels::RETAINED);
    let claims = stage
        .kubectl(&[
            "-n", "tenant-b", "get", "pvc", "-l", &selector, "-o", "name",
        ])
        .await?;
    anyhow::ensure!(claims.lines().count() == 2, "retained claims: {claims}");
    let others = "vm,vmi,secret,service,endpointslice,pod";
    let left = stage
        .kubectl(&[
            "-n",
            "tenant-b",
            "get",
            others,
            "-l",
            "guestcluster.dev/cluster=twice",
            "-o",
            "name",
        ])
        .await?;
    anyhow::ensure!(left.is_empty(), "{left}");
    Ok(())
}

/// Its static Pods are taken from the only control-plane machine.
async fn kill_api(cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let machine = cluster.control_plane().await?.pop().context("no machine")?;
    let kill = ["sh", "-c", "rm /etc/kubernetes/manifests/*.yaml"];
    let target = cluster.target(&machine);
    cluster.stage.on_console(target, &kill).await?;
    until(
        "the API server is gone",
        Duration::from_secs(60),
        || async { Ok(cluster.nodes().await.is_err().then_some(())) },
    )
    .await
}
