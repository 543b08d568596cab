//! What does not happen.

use std::time::Duration;

use super::{PROD, TENANT};
use crate::audit::{Mark, Write};
use crate::cluster::Cluster;
use crate::stage::Stage;

/// The operator wrote nothing into the user's object: applying it again would change nothing.
pub async fn kubectl_diff_is_empty(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let document = cluster.document(3, &serde_json::json!({}))?;
    let diff = stage.kubectl_with(&["diff", "-f", "-"], &document).await?;
    anyhow::ensure!(diff.is_empty(), "{diff}");
    Ok(())
}

/// No request of the operator changes an object while nothing happens: for five minutes in the long
/// form, more than one round of its resync otherwise.
pub async fn an_idle_operator_writes_nothing(stage: &Stage) -> anyhow::Result<()> {
    Cluster::new(stage, TENANT, PROD).ready().await?;
    // The last words about the birth may still be on their way.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mark = Mark::now(stage)?;
    tokio::time::sleep(Duration::from_secs(if stage.full { 300 } else { 75 })).await;
    let writes: Vec<_> = mark.writes(stage)?.iter().map(Write::line).collect();
    anyhow::ensure!(writes.is_empty(), "{writes:?}");
    Ok(())
}
