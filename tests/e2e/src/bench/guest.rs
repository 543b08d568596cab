//! Group `guest`: time to a Ready guest, by the operator and by hand, one after the other in the
//! same run on the same infrastructure.

use std::time::{Duration, Instant};

use guestcluster_foreign::kubevirt::VirtualMachine;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::Figures;
use super::figures::median;
use super::hand::by_hand;
use crate::audit::Mark;
use crate::cluster::Cluster;
use crate::stage::Stage;
use crate::wait::until;

/// Sizes: control-plane machines and workers.
const SIZES: [(u32, u32); 2] = [(1, 0), (3, 3)];

/// Measures; each figure is the median of so many rounds.
pub async fn run(stage: &Stage, figures: &mut Figures, rounds: usize) -> anyhow::Result<()> {
    for (control_plane, workers) in SIZES {
        let size = format!("{control_plane}_{workers}");
        let (mut hand, mut operator) = (Vec::new(), Vec::new());
        let (mut writes, mut first) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let name = format!("hand-{control_plane}-{round}");
            hand.push(
                by_hand(stage, &name, (control_plane, workers))
                    .await?
                    .as_secs_f64(),
            );
            let name = format!("bench-{control_plane}-{round}");
            let birth = by_operator(stage, &name, (control_plane, workers)).await?;
            operator.push(birth.ready.as_secs_f64());
            writes.push(f64::from(u32::try_from(birth.writes)?));
            first.push(birth.first_vm.as_secs_f64());
        }
        figures.add_median(&format!("hand_{size}_seconds"), &hand);
        figures.add_median(&format!("operator_{size}_seconds"), &operator);
        figures.add(&format!("ratio_{size}"), median(&operator) / median(&hand));
        figures.add_median(&format!("writes_until_ready_{size}"), &writes);
        figures.add_median(&format!("first_vm_{size}_seconds"), &first);
    }
    idle_writes(stage, figures).await
}

struct Birth {
    ready: Duration,
    first_vm: Duration,
    writes: usize,
}

async fn by_operator(
    stage: &Stage,
    name: &str,
    (control_plane, workers): (u32, u32),
) -> anyhow::Result<Birth> {
    let cluster = Cluster::new(stage, "bench", name);
    cluster.namespace().await?;
    let spec = json!({ "controlPlane": { "replicas": control_plane } });
    let document = cluster.document(workers, &spec)?;
    let mark = Mark::now(stage)?;
    let started = Instant::now();
    stage.kubectl_with(&["apply", "-f", "-"], &document).await?;
    let applied = Instant::now();
    let first_vm = first_vm(&cluster, applied).await?;
    cluster
        .nodes_ready(usize::try_from(control_plane + workers)?)
        .await?;
    cluster.ready().await?;
    let ready = started.elapsed();
    let writes = mark.writes(stage)?.len();
    stage
        .kubectl(&["-n", "bench", "delete", "gc", name, "--timeout=180s"])
        .await?;
    Ok(Birth {
        ready,
        first_vm,
        writes,
    })
}

/// From `applied`, when kubectl returned, until a VM exists.
async fn first_vm(cluster: &Cluster<'_>, applied: Instant) -> anyhow::Result<Duration> {
    let api = Api::<VirtualMachine>::namespaced(cluster.stage.client(), cluster.namespace);
    let mine = ListParams::default().labels(&format!("guestcluster.dev/cluster={}", cluster.name));
    while api.list(&mine).await?.items.is_empty() {
        anyhow::ensure!(
            applied.elapsed() < Duration::from_secs(60),
            "there is no VM"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(applied.elapsed())
}

/// A guest stands for a minute, and nothing is written.
async fn idle_writes(stage: &Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, "bench", "idle");
    cluster
        .apply(0, &json!({ "controlPlane": { "replicas": 1 } }))
        .await?;
    cluster.ready().await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mark = Mark::now(stage)?;
    tokio::time::sleep(Duration::from_secs(75)).await;
    let writes = mark.writes(stage)?.len();
    figures.add(
        "idle_writes_per_75_seconds",
        f64::from(u32::try_from(writes)?),
    );
    stage
        .kubectl(&["-n", "bench", "delete", "gc", "idle", "--timeout=180s"])
        .await?;
    until(
        "the namespace is empty",
        Duration::from_secs(30),
        || async { Ok(cluster.vms().await?.is_empty().then_some(())) },
    )
    .await
}
