//! The operator's own cost, read from its metrics.

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use crate::stage::{SYSTEM, Stage};

const PORT: u16 = 8081;

/// The largest value of a metric over the operator's Pods: the leader's, for what only it has.
pub(super) async fn largest(stage: &Stage, metric: &str) -> anyhow::Result<f64> {
    let pods = Api::<Pod>::namespaced(stage.client(), SYSTEM)
        .list(&ListParams::default())
        .await?;
    let addresses = pods
        .items
        .iter()
        .filter_map(|pod| pod.status.as_ref()?.pod_ip.clone());
    let mut largest: Option<f64> = None;
    for address in addresses {
        let text = scrape(&address).await?;
        let value = text.lines().find_map(|line| {
            let value = line.strip_prefix(metric)?.strip_prefix(' ')?;
            value.trim().parse::<f64>().ok()
        });
        largest = value.into_iter().chain(largest).reduce(f64::max);
    }
    largest.with_context(|| format!("no Pod of the operator has the metric {metric}"))
}

async fn scrape(address: &str) -> anyhow::Result<String> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<hyper::body::Bytes>>();
    let url = format!("http://{address}:{PORT}/metrics").parse()?;
    let answer = client.get(url).await?.into_body().collect().await?;
    Ok(String::from_utf8(answer.to_bytes().to_vec())?)
}
