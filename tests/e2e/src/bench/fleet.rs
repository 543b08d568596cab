//! Group `fleet`: memory and pace of the operator with many guests, whose machines exist on paper
//! alone: KubeVirt runs them, nothing boots.

use std::time::{Duration, Instant};

use guestcluster_foreign::kubevirt::VirtualMachine;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::{Figures, operator};
use crate::audit::Mark;
use crate::cluster::Cluster;
use crate::stage::Stage;
use crate::wait::until;

const GUESTS: usize = 200;
const MEMORY: &str = "process_resident_memory_bytes";
const MIB: f64 = 1_048_576.0;

/// Measures.
pub async fn run(stage: &Stage, figures: &mut Figures) -> anyhow::Result<()> {
    let namespace = Cluster::new(stage, "fleet", "guest-0");
    namespace.namespace().await?;
    apply(stage, 0..1).await?;
    first_vms(stage, 1).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    figures.add(
        "operator_resident_mib_1_guest",
        operator::largest(stage, MEMORY).await? / MIB,
    );
    let started = Instant::now();
    apply(stage, 1..GUESTS).await?;
    figures.add("apply_200_seconds", started.elapsed().as_secs_f64());
    first_vms(stage, GUESTS).await?;
    figures.add(
        "first_vm_of_all_200_seconds",
        started.elapsed().as_secs_f64(),
    );
    // Long enough for a resync of each, with the garbage of the start collected.
    tokio::time::sleep(Duration::from_secs(90)).await;
    figures.add(
        "operator_resident_mib_200_guests",
        operator::largest(stage, MEMORY).await? / MIB,
    );
    let mark = Mark::now(stage)?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes = mark.writes(stage)?.len();
    figures.add(
        "writes_per_minute_200_waiting_guests",
        f64::from(u32::try_from(writes)?),
    );
    Ok(())
}

async fn apply(stage: &Stage, guests: std::ops::Range<usize>) -> anyhow::Result<()> {
    let mut documents = String::new();
    let image = format!(
        "registry.local/guest/node:v1.36.3@sha256:{}",
        "0".repeat(64)
    );
    for guest in guests {
        let document = json!({
            "apiVersion": "guestcluster.dev/v1alpha1",
            "kind": "GuestCluster",
            "metadata": { "name": format!("guest-{guest}"), "namespace": "fleet" },
            "spec": {
                "version": "v1.36.3",
                "image": { "registry": image },
                "controlPlane": { "machine": { "cpu": 1, "memory": "2Gi" } },
                "workers": [{
                    "name": "general",
                    "replicas": 3,
                    "machine": { "cpu": 1, "memory": "2Gi" },
                }],
            },
        });
        documents.push_str("---\n");
        documents.push_str(&document.to_string());
        documents.push('\n');
    }
    stage
        .kubectl_with(&["apply", "--server-side", "-f", "-"], &documents)
        .await
        .map(drop)
}

async fn first_vms(stage: &Stage, count: usize) -> anyhow::Result<()> {
    let api = Api::<VirtualMachine>::namespaced(stage.client(), "fleet");
    until(
        &format!("{count} VMs"),
        Duration::from_secs(420),
        || async {
            let vms = api.list_metadata(&ListParams::default()).await?.items.len();
            anyhow::ensure!(vms >= count, "there are {vms}");
            Ok(Some(()))
        },
    )
    .await
}
