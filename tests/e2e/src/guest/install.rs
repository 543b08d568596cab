//! The chart.

use guestcluster_foreign::core::HostNode;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use crate::stage::{RELEASE, SYSTEM, Stage};

/// `helm install --wait` ends well: CRDs, rights, two replicas on two hosts with one leader.
pub async fn helm_installs_with_least_rights(stage: &Stage) -> anyhow::Result<()> {
    let chart = stage.file("charts/guestcluster-operator");
    let chart = chart.display().to_string();
    stage.helm(&["lint", "--strict", &chart]).await?;
    let mut arguments = vec!["upgrade", "--install", "--wait", "--timeout", "180s"];
    arguments.extend(["--create-namespace", "--namespace", SYSTEM, RELEASE, &chart]);
    let pods = guestcluster_infra::addresses::POD_RANGE;
    let ranges = format!("infra.podCIDRs={{{pods}}}");
    if stage.infra().is_ok() {
        arguments.extend(["--set", &ranges]);
    }
    stage.helm(&arguments).await?;
    let deployments = Api::<Deployment>::namespaced(stage.client(), SYSTEM);
    let status = deployments.get(RELEASE).await?.status.unwrap_or_default();
    anyhow::ensure!(status.available_replicas == Some(2), "{status:?}");
    let pods = Api::<Pod>::namespaced(stage.client(), SYSTEM);
    let pods = pods.list(&ListParams::default()).await?.items;
    let hosts: std::collections::BTreeSet<_> = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
        .collect();
    let all = Api::<HostNode>::all(stage.client())
        .list(&ListParams::default())
        .await?
        .items
        .len();
    anyhow::ensure!(hosts.len() == 2.min(all), "both replicas are on {hosts:?}");
    renders_what_the_server_knows(stage, &chart).await
}

/// Every field that the chart renders, with its defaults and with other values, is one that the API
/// server knows: installing drops fields that it does not know with a warning that nobody reads.
async fn renders_what_the_server_knows(stage: &Stage, chart: &str) -> anyhow::Result<()> {
    let template = ["template", RELEASE, chart, "--namespace", SYSTEM];
    let others = [
        "--set=podAntiAffinity=preferred",
        "--set=nodeSelector.example=management",
        "--set=infra.serviceCIDRs={10.96.0.0/12}",
        "--set=networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus",
    ];
    for values in [&[][..], &others] {
        let rendered = stage.helm(&[&template[..], values].concat()).await?;
        let mut apply = vec!["apply", "--server-side", "--force-conflicts"];
        apply.extend(["--dry-run=server", "--validate=strict", "-f", "-"]);
        stage.kubectl_with(&apply, &rendered).await?;
    }
    Ok(())
}
