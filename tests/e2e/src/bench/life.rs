//! Group `life`: what changes of a guest take and cost, beside bare joins in the same run.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Figures;
use super::figures::median;
use super::hand::bare_joins;
use crate::audit::Mark;
use crate::cluster::Cluster;
use crate::prober::Prober;
use crate::stage::Stage;
use crate::wait::until;

const NAMESPACE: &str = "bench-life";

/// How long a member may take to be replaced.
const REPLACEMENT: Duration = Duration::from_secs(300);

/// Measures; each figure is the median of so many rounds.
pub async fn run(stage: &Stage, figures: &mut Figures, rounds: usize) -> anyhow::Result<()> {
    let mut all = Rounds::default();
    for round in 0..rounds {
        let (control_plane, worker) = bare_joins(stage, &format!("hand-{round}")).await?;
        all.joins.push(3.0 * (control_plane + worker).as_secs_f64());
        let name = format!("life-{round}");
        let cluster = Cluster::new(stage, NAMESPACE, &name);
        cluster.apply(3, &json!({})).await?;
        cluster.is_whole_with(3, 3).await?;
        all.upgrade(&cluster).await?;
        all.death(&cluster).await?;
        all.scale(&cluster).await?;
        let arguments = ["-n", NAMESPACE, "delete", "gc", &name, "--timeout=180s"];
        stage.kubectl(&arguments).await?;
    }
    all.tell(figures);
    Ok(())
}

/// What each round showed.
#[derive(Default)]
struct Rounds {
    /// Three times the mean join of a control-plane machine and that of a worker, without an operator.
    joins: Vec<f64>,
    upgrades: Vec<f64>,
    upgrade_writes: Vec<f64>,
    lost: Vec<f64>,
    deaths: Vec<f64>,
    death_writes: Vec<f64>,
    growths: Vec<f64>,
    growth_writes: Vec<f64>,
    shrinks: Vec<f64>,
    shrink_writes: Vec<f64>,
}

impl Rounds {
    /// 3 + 3 to the next minor, while a prober asks.
    async fn upgrade(&mut self, cluster: &Cluster<'_>) -> anyhow::Result<()> {
        let (version, image) = cluster.stage.next_image()?;
        let prober = Prober::start(cluster.guest_config().await?);
        let spec = json!({ "version": version, "image": { "registry": image } });
        let (took, writes) = change(cluster, &spec, (3, 3)).await?;
        let (_, lost) = prober.stop().await?.since(Duration::ZERO);
        self.upgrades.push(took);
        self.upgrade_writes.push(writes);
        self.lost.push(number(lost)?);
        Ok(())
    }

    /// From the deletion of a member's VM until three others are whole.
    async fn death(&mut self, cluster: &Cluster<'_>) -> anyhow::Result<()> {
        let before: BTreeSet<String> = cluster.vms().await?.into_keys().collect();
        let leader = cluster.etcd_leader().await?;
        let (begun, mark) = (Instant::now(), Mark::now(cluster.stage)?);
        let arguments = ["-n", NAMESPACE, "delete", "vm", &leader, "--wait=false"];
        cluster.stage.kubectl(&arguments).await?;
        until("the member is another", REPLACEMENT, || async {
            let now: BTreeSet<String> = cluster.vms().await?.into_keys().collect();
            let is_new = now.difference(&before).count() == 1 && !now.contains(&leader);
            anyhow::ensure!(is_new, "there are {now:?}");
            Ok(Some(()))
        })
        .await?;
        cluster.is_whole_with(3, 3).await?;
        self.deaths.push(begun.elapsed().as_secs_f64());
        let writes = mark.writes(cluster.stage)?.len();
        self.death_writes.push(number(writes)?);
        Ok(())
    }

    /// Three members become five, and three again.
    async fn scale(&mut self, cluster: &Cluster<'_>) -> anyhow::Result<()> {
        let to = |replicas: u32| json!({ "controlPlane": { "replicas": replicas } });
        let (took, writes) = change(cluster, &to(5), (5, 3)).await?;
        self.growths.push(took);
        self.growth_writes.push(writes);
        let (took, writes) = change(cluster, &to(3), (3, 3)).await?;
        self.shrinks.push(took);
        self.shrink_writes.push(writes);
        Ok(())
    }

    fn tell(&self, figures: &mut Figures) {
        figures.add_median("six_bare_joins_seconds", &self.joins);
        figures.add_median("upgrade_3_3_seconds", &self.upgrades);
        let ratio = median(&self.upgrades) / median(&self.joins);
        figures.add("ratio_upgrade_3_3", ratio);
        figures.add_median("upgrade_3_3_lost_requests", &self.lost);
        figures.add_median("upgrade_3_3_writes", &self.upgrade_writes);
        figures.add_median("member_death_to_3_of_3_seconds", &self.deaths);
        figures.add_median("member_death_to_3_of_3_writes", &self.death_writes);
        figures.add_median("from_3_to_5_members_seconds", &self.growths);
        figures.add_median("from_3_to_5_members_writes", &self.growth_writes);
        figures.add_median("from_5_to_3_members_seconds", &self.shrinks);
        figures.add_median("from_5_to_3_members_writes", &self.shrink_writes);
    }
}

/// Seconds and writes from an edit until the guest is whole with these many machines of each role.
async fn change(
    cluster: &Cluster<'_>,
    spec: &Value,
    (control_plane, workers): (usize, usize),
) -> anyhow::Result<(f64, f64)> {
    let (begun, mark) = (Instant::now(), Mark::now(cluster.stage)?);
    cluster.edit(spec).await?;
    cluster.is_whole_with(control_plane, workers).await?;
    let took = begun.elapsed().as_secs_f64();
    Ok((took, number(mark.writes(cluster.stage)?.len())?))
}

fn number(count: usize) -> anyhow::Result<f64> {
    Ok(f64::from(u32::try_from(count)?))
}
