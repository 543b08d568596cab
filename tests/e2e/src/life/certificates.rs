//! Certificates are renewed before they end.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;

use crate::cluster::Cluster;
use crate::prober::Prober;
use crate::stage::Stage;
use crate::wait::until;

/// A guest whose certificates live for six minutes: its machine is replaced and its kubeconfig made
/// anew before they end, without a person and without a lost request.
pub async fn certificates_are_renewed_in_time(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, "certificates", "short");
    let short = json!({
        "controlPlane": { "replicas": 1, "certificateValidityPeriod": "6m" },
    });
    cluster.apply(0, &short).await?;
    cluster.is_whole_with(1, 0).await?;
    let (first, kubeconfig) = (end(&cluster).await?, user(&cluster).await?);
    let begun = Instant::now();
    until(
        "the kubeconfig is another",
        Duration::from_secs(360),
        || async { Ok((user(&cluster).await? != kubeconfig).then_some(())) },
    )
    .await?;
    let prober = Prober::start(cluster.guest_config().await?);
    until(
        "the machine is another",
        Duration::from_secs(360),
        || async {
            let machines = cluster.control_plane().await?;
            Ok((machines == ["short-cp-2"]).then_some(()))
        },
    )
    .await?;
    println!(
        "  the machine was replaced after {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    prober.stop().await?.has_lost_nothing()?;
    let later = Duration::from_secs(30);
    until("status tells of another end", later, || async {
        Ok((end(&cluster).await? > first).then_some(()))
    })
    .await?;
    let arguments = [
        "-n",
        "certificates",
        "delete",
        "gc",
        "short",
        "--timeout=180s",
    ];
    stage.kubectl(&arguments).await.map(drop)
}

/// When the machines' certificates end, as status says.
async fn end(cluster: &Cluster<'_>) -> anyhow::Result<String> {
    until(
        "the end of certificates is known",
        Duration::from_secs(30),
        || async {
            let status = cluster.get().await?.status.unwrap_or_default();
            Ok(status
                .control_plane
                .certificates_expire
                .map(|time| time.0.to_string()))
        },
    )
    .await
}

/// The client certificate of the kubeconfig.
async fn user(cluster: &Cluster<'_>) -> anyhow::Result<String> {
    let kubeconfig = cluster.kubeconfig().await?;
    let user = kubeconfig
        .auth_infos
        .into_iter()
        .next()
        .and_then(|user| user.auth_info);
    user.and_then(|user| user.client_certificate_data)
        .context("no certificate")
}
