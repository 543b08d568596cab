//! The operator under the group's own settings.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;

use crate::guest::{operator_arguments, set_operator_arguments};
use crate::stage::{RELEASE, SYSTEM, Stage};
use crate::wait::until;

/// Adds arguments to the operator's, in the place of those of the same name.
pub(super) async fn runs_with(stage: &Stage, arguments: &[&str]) -> anyhow::Result<()> {
    let name = |argument: &str| argument.split('=').next().map(str::to_owned);
    let mut all = operator_arguments(stage).await?;
    all.retain(|old| arguments.iter().all(|new| name(new) != name(old)));
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    set_operator_arguments(stage, &all).await?;
    let deployments = Api::<Deployment>::namespaced(stage.client(), SYSTEM);
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
