//! What is around a guest fails: a link, the load balancer, the infrastructure's API server. What it
//! needs no repair for is repaired by nobody.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use guestcluster_infra::faults::Fault;
use kube::ResourceExt;
use serde_json::json;

use super::repair::PATIENCE;
use super::{LIFE, operator, the_operator_runs};
use crate::audit::{Mark, Write};
use crate::cluster::Cluster;
use crate::prober::Prober;
use crate::stage::Stage;
use crate::wait::until;

/// How long a machine may be unhealthy unless somebody sets it otherwise.
pub(super) const PATIENT: &str = "--unhealthy-after=300s";

/// The group's guest, with 3 + 1 machines and nothing left to do, under an operator that leaves a
/// machine which fails as long as `patience` says.
pub(super) async fn stands<'a>(stage: &'a Stage, patience: &str) -> anyhow::Result<Cluster<'a>> {
    the_operator_runs(stage).await?;
    operator::runs_with(stage, &[patience]).await?;
    let cluster = Cluster::new(stage, LIFE, LIFE);
    let size = json!({
        "controlPlane": { "replicas": 3 },
        "workers": [{ "name": "general", "replicas": 1 }],
    });
    if cluster.get().await.is_ok() {
        cluster.edit(&size).await?;
    } else {
        cluster.apply(1, &size).await?;
    }
    cluster.is_whole_with(3, 1).await?;
    Ok(cluster)
}

/// Who a guest's machines are: of each the UIDs of its VM and its instance, and the ID of its member.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identities {
    machines: BTreeMap<String, (Option<String>, Option<String>)>,
    members: BTreeMap<String, u64>,
}

impl Identities {
    pub(super) async fn of(cluster: &Cluster<'_>) -> anyhow::Result<Self> {
        let instances = cluster.instances().await?;
        let uid = |name: &String| instances.get(name).and_then(ResourceExt::uid);
        let vms = cluster.vms().await?.into_iter();
        let first = cluster.control_plane().await?.into_iter().next();
        let members = cluster.etcd_members(&first.context("no machine")?).await?;
        Ok(Self {
            machines: vms
                .map(|(name, vm)| (name.clone(), (vm.uid(), uid(&name))))
                .collect(),
            members: members.into_iter().map(|m| (m.name, m.id)).collect(),
        })
    }

    /// Fails unless the guest is whole and its machines are those of before.
    pub(super) async fn are_kept(&self, cluster: &Cluster<'_>) -> anyhow::Result<()> {
        cluster.is_whole_with(3, 1).await?;
        let now = Self::of(cluster).await?;
        anyhow::ensure!(now == *self, "they were {self:?} and are {now:?}");
        Ok(())
    }
}

impl Cluster<'_> {
    /// Has the operator look at the guest now: one in which nothing happens is looked at once a minute.
    pub(super) async fn is_looked_at(&self) -> anyhow::Result<()> {
        let machine = self.control_plane().await?.pop().context("no machine")?;
        let stamp = format!("e2e/looked-at={:?}", rand::random::<u64>());
        let arguments = ["annotate", "vm", &machine, &stamp, "--overwrite"];
        let arguments = [&["-n", self.namespace][..], &arguments].concat();
        self.stage.kubectl(&arguments).await.map(drop)
    }
}

/// How long a member without a leader may stay in the endpoint: its API server says so after some
/// seconds, and three probes in a row must fail.
const IN_ENDPOINT: Duration = Duration::from_secs(20);

/// The link between etcd's leader and another member is cut. That one has no leader, because the third
/// one hears the old one still: it leaves the endpoint, and status tells. Nobody is replaced, and when
/// the link is back so is the member.
pub async fn a_cut_link_replaces_nobody(stage: &Stage) -> anyhow::Result<()> {
    let cluster = stands(stage, PATIENT).await?;
    let before = Identities::of(&cluster).await?;
    let leader = cluster.etcd_leader().await?;
    let mut others = cluster.control_plane().await?.into_iter();
    let other = others.find(|name| *name != leader).context("it is alone")?;
    let (one, two) = (cluster.target(&leader), cluster.target(&other));
    let prober = Prober::start(cluster.guest_config().await?);
    let begun = Instant::now();
    stage
        .fault(Fault::CutBetween(one.clone(), two.clone()))
        .await?;
    let told = async {
        let words = [other.as_str(), "does not answer"];
        cluster
            .condition_says("EtcdHealthy", "False", "EtcdUnhealthy", &words)
            .await?;
        println!(
            "  status told of {other} after {:.0} s",
            begun.elapsed().as_secs_f32()
        );
        let words = ["2 of 3", other.as_str()];
        cluster
            .condition_says("ControlPlaneAvailable", "True", "Degraded", &words)
            .await?;
        tokio::time::sleep((IN_ENDPOINT + IN_ENDPOINT / 4).saturating_sub(begun.elapsed())).await;
        anyhow::Ok(())
    }
    .await;
    stage.fault(Fault::RestoreBetween(one, two)).await?;
    told?;
    before.are_kept(&cluster).await?;
    let outcome = prober.stop().await?;
    let (asked, failed) = outcome.since(Duration::ZERO);
    let (asked_late, failed_late) = outcome.since(IN_ENDPOINT);
    println!(
        "  {failed} of {asked} requests were lost, {failed_late} of {asked_late} after {} s",
        IN_ENDPOINT.as_secs()
    );
    // A third of the endpoint, for as long as it takes to leave it.
    anyhow::ensure!(failed <= 50, "{failed} requests were lost");
    anyhow::ensure!(
        failed_late == 0,
        "{failed_late} requests were lost when the member was out of the endpoint"
    );
    Ok(())
}

/// The load balancer is dead. The guest lives on behind it; status says that nobody gets through, which
/// is not that there is no guest; no machine is touched, and all is well when it is back.
pub async fn a_dead_load_balancer_costs_no_machine(stage: &Stage) -> anyhow::Result<()> {
    let cluster = stands(stage, PATIENCE).await?;
    let before = Identities::of(&cluster).await?;
    // The longer form is longer than it takes the guest to give a worker's Node up, which is 50 s, and
    // the operator to lose its patience.
    let away = Duration::from_secs(if stage.full { 120 } else { 40 });
    let begun = Instant::now();
    stage.fault(Fault::StopLoadBalancer).await?;
    let told = async {
        cluster.is_looked_at().await?;
        let words = ["the guest serves", "no connection"];
        cluster
            .condition_says("EndpointReady", "Unknown", "EndpointUnreachable", &words)
            .await?;
        println!("  status told after {:.0} s", begun.elapsed().as_secs_f32());
        // Until the guest gives up its workers, the way there may be cut for the operator alone.
        if stage.full {
            cluster
                .condition("Ready", "False", "EndpointUnreachable")
                .await?;
        }
        cluster
            .condition_says("ControlPlaneAvailable", "True", "Available", &["3 of 3"])
            .await?;
        anyhow::ensure!(cluster.nodes().await.is_err(), "the endpoint answers");
        tokio::time::sleep(away.saturating_sub(begun.elapsed())).await;
        cluster.etcd_is_whole().await
    }
    .await;
    stage.fault(Fault::StartLoadBalancer).await?;
    told?;
    let back = Instant::now();
    before.are_kept(&cluster).await?;
    println!(
        "  all was well {:.0} s after it was back",
        back.elapsed().as_secs_f32()
    );
    Ok(())
}

const MINUTE: Duration = Duration::from_secs(60);

/// The infrastructure's API server is away for minutes. The guest serves without it and loses no
/// request; when it is back, nothing is made, deleted or restarted.
pub async fn a_guest_serves_without_the_infrastructures_api(stage: &Stage) -> anyhow::Result<()> {
    let cluster = stands(stage, PATIENT).await?;
    let before = Identities::of(&cluster).await?;
    let prober = Prober::start(cluster.guest_config().await?);
    let mark = Mark::now(stage)?;
    stage.fault(Fault::StopApiServer).await?;
    tokio::time::sleep(MINUTE * if stage.full { 10 } else { 2 }).await;
    stage.fault(Fault::StartApiServer).await?;
    let back = Instant::now();
    until("it is back", Duration::from_secs(90), || async {
        cluster.get().await.map(Some)
    })
    .await?;
    before.are_kept(&cluster).await?;
    // Whoever takes a host for dead whose heartbeats did not arrive does so within a minute.
    if stage.full {
        tokio::time::sleep(MINUTE.saturating_sub(back.elapsed())).await;
        before.are_kept(&cluster).await?;
    }
    let made_or_deleted = |write: &&Write| write.verb != "patch" && write.verb != "update";
    let writes = mark.writes(stage)?;
    let writes: Vec<_> = writes.iter().filter(made_or_deleted).collect();
    let lines: Vec<_> = writes.iter().map(|write| write.line()).collect();
    anyhow::ensure!(lines.is_empty(), "{lines:?}");
    prober.stop().await?.has_lost_nothing()
}

/// A person adds members to etcd that no machine of ours will ever start: a learner, which would block
/// every join, and a voter, which counts as one that does not answer. Both are taken out, and an event
/// says so.
pub async fn members_without_a_machine_are_taken_out(stage: &Stage) -> anyhow::Result<()> {
    let cluster = stands(stage, PATIENT).await?;
    let before = Identities::of(&cluster).await?;
    let asked = cluster.etcd_leader().await?;
    // Addresses that documents may use and nobody has (RFC 5737).
    for (address, learner) in [("192.0.2.1", true), ("192.0.2.2", false)] {
        let id = cluster.gets_a_stranger(address, learner).await?;
        let begun = Instant::now();
        cluster.is_looked_at().await?;
        until("it is out", Duration::from_secs(60), || async {
            let members = cluster.etcd_members(&asked).await?;
            Ok(members.iter().all(|m| m.id != id).then_some(()))
        })
        .await?;
        let what = if learner { "learner" } else { "voter" };
        println!(
            "  the {what} {id:x} was out after {:.0} s",
            begun.elapsed().as_secs_f32()
        );
        let id = format!("{id:x}");
        until("an event tells", Duration::from_secs(20), || async {
            let reason = "reason=EtcdMemberRemoved";
            let text = "jsonpath={range .items[*]}{.message}{'\\n'}{end}";
            let events = ["get", "events", "--field-selector", reason, "-o", text];
            let events = [&["-n", LIFE][..], &events].concat();
            let told = stage.kubectl(&events).await?;
            anyhow::ensure!(told.contains(&id), "events: {told}");
            Ok(Some(()))
        })
        .await?;
        let words = ["3 members healthy"];
        cluster
            .condition_says("EtcdHealthy", "True", "Settled", &words)
            .await?;
        before.are_kept(&cluster).await?;
    }
    Ok(())
}
