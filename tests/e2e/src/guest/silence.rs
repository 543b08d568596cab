//! What does not happen.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{PROD, TENANT};
use crate::audit::{Mark, Write};
use crate::cluster::Cluster;
use crate::stage::{RELEASE, SYSTEM, Stage};
use crate::wait::until;

/// For so long nothing is written to a cluster in which nothing happens.
const IDLE: SignedDuration = SignedDuration::from_mins(5);
/// The last words about a birth may be on their way for so long.
const LAST_WORDS: SignedDuration = SignedDuration::from_secs(20);

/// The operator wrote nothing into the user's object: applying it again would change nothing.
pub async fn kubectl_diff_is_empty(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let document = cluster.document(3, &json!({}))?;
    let diff = stage.kubectl_with(&["diff", "-f", "-"], &document).await?;
    anyhow::ensure!(diff.is_empty(), "{diff}");
    Ok(())
}

/// VMs that another release of the operator made with another default are left as they are. To the
/// operator that starts there is no difference between its own default having changed and the VMs
/// having been made with another one, so the VMs are changed here.
pub async fn a_newer_operator_writes_to_no_vm(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let template = json!({ "terminationGracePeriodSeconds": 75 });
    let patch = json!({ "spec": { "template": { "spec": template } } }).to_string();
    let vms: Vec<_> = cluster.vms().await?.into_keys().collect();
    let mut arguments = vec!["-n", TENANT, "patch", "vm", "--type=merge", "-p", &patch];
    arguments.extend(vms.iter().map(String::as_str));
    stage.kubectl(&arguments).await?;
    // KubeVirt takes note of the change in its own time.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = identities(&cluster).await?;
    let mark = Mark::now(stage);
    let deployment = format!("deployment/{RELEASE}");
    for verb in ["restart", "status"] {
        stage
            .kubectl(&["-n", SYSTEM, "rollout", verb, &deployment])
            .await?;
    }
    leads(stage).await?;
    // Time for a visit to the cluster, and for what it might write.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let now = identities(&cluster).await?;
    anyhow::ensure!(now == before, "VMs were {before:?} and are {now:?}");
    if let Ok(mark) = mark {
        let writes: Vec<_> = mark.writes(stage)?.iter().map(Write::line).collect();
        anyhow::ensure!(writes.is_empty(), "{writes:?}");
    }
    Ok(())
}

/// UID and generation of each VM.
async fn identities(cluster: &Cluster<'_>) -> anyhow::Result<BTreeMap<String, String>> {
    let vms = cluster.vms().await?.into_iter();
    Ok(vms
        .map(|(name, vm)| {
            let meta = vm.metadata;
            (name, format!("{:?} {:?}", meta.uid, meta.generation))
        })
        .collect())
}

/// Waits until a Pod that runs holds the Lease.
async fn leads(stage: &Stage) -> anyhow::Result<()> {
    until("a replica leads", Duration::from_secs(60), || async {
        let pods = stage
            .kubectl(&["-n", SYSTEM, "get", "pods", "-o", "name"])
            .await?;
        let holder = "jsonpath={.items[*].spec.holderIdentity}";
        let holder = stage
            .kubectl(&["-n", SYSTEM, "get", "lease", "-o", holder])
            .await?;
        let mut names = pods.lines().filter_map(|pod| pod.strip_prefix("pod/"));
        Ok(names.any(|name| holder.contains(name)).then_some(()))
    })
    .await
}

/// No request of the operator changes an object of a cluster in which nothing happens: for five
/// minutes, whatever it does for other clusters meanwhile.
pub async fn an_idle_operator_writes_nothing(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    cluster.ready().await?;
    let conditions = cluster.get().await?.status.unwrap_or_default().conditions;
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .context("no condition Ready")?;
    let from = ready.last_transition_time.0 + LAST_WORDS;
    let rest = from + IDLE - Timestamp::now();
    tokio::time::sleep(Duration::try_from(rest).unwrap_or_default()).await;
    let writes: Vec<_> = Mark::START
        .writes(stage)?
        .iter()
        .filter(|write| write.namespace() == TENANT && write.at() > from)
        .map(Write::line)
        .collect();
    anyhow::ensure!(writes.is_empty(), "{writes:?}");
    Ok(())
}
