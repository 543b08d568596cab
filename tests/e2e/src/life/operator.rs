//! The operator under the group's own settings.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::json;

use crate::stage::{RELEASE, SYSTEM, Stage};
use crate::wait::until;

/// Adds arguments to the operator's, in the place of those of the same name.
pub(super) async fn runs_with(stage: &Stage, arguments: &[&str]) -> anyhow::Result<()> {
    let deployments = Api::<Deployment>::namespaced(stage.client(), SYSTEM);
    let template = deployments
        .get(RELEASE)
        .await?
        .spec
        .map(|spec| spec.template);
    let container = template
        .and_then(|template| template.spec?.containers.into_iter().next())
        .context("no container")?;
    let name = |argument: &str| argument.split('=').next().map(str::to_owned);
    let mut all = container.args.unwrap_or_default();
    all.retain(|old| arguments.iter().all(|new| name(new) != name(old)));
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let container = json!({ "name": "operator", "args": all });
    let patch = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    let patch = patch.to_string();
    stage
        .kubectl(&["-n", SYSTEM, "patch", "deployment", RELEASE, "-p", &patch])
        .await?;
    until("the operator runs so", Duration::from_secs(90), || async {
        let deployment = deployments.get(RELEASE).await?;
        let status = deployment.status.unwrap_or_default();
        let wanted = deployment.spec.and_then(|spec| spec.replicas);
        let fresh = status.observed_generation == deployment.metadata.generation;
        let done = status.updated_replicas == wanted
            && status.available_replicas == wanted
            && status.replicas == wanted;
        Ok((fresh && done).then_some(()))
    })
    .await
}
