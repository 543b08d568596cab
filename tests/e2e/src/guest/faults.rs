//! Machines restart with other addresses, hosts die, the operator is killed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use guestcluster_infra::faults::Fault;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use super::{PROD, TENANT};
use crate::cluster::Cluster;
use crate::prober::Prober;
use crate::stage::{RELEASE, SYSTEM, Stage};
use crate::wait::until;

/// Longest time until a restarted guest is whole again.
const BACK: Duration = Duration::from_secs(150);

/// One after another, each member comes back under another pod address and keeps its identity.
pub async fn every_member_restarts_in_turn_with_a_new_address(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    for machine in cluster.control_plane().await? {
        restart(&cluster, &[machine]).await?;
    }
    Ok(())
}

/// Quorum is lost and comes back without help.
pub async fn two_members_restart_at_once(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let machines = cluster.control_plane().await?;
    restart(
        &cluster,
        machines.get(..2).context("fewer than two machines")?,
    )
    .await
}

/// The whole control plane goes and comes back.
pub async fn all_members_restart_at_once(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let machines = cluster.control_plane().await?;
    restart(&cluster, &machines).await
}

/// Restarts machines together, and waits until the guest is whole: same members, all healthy, every
/// machine under another address, all Nodes Ready.
async fn restart(cluster: &Cluster<'_>, machines: &[String]) -> anyhow::Result<()> {
    let before = addresses(cluster).await?;
    let first = machines.first().context("no machine")?;
    let members = ids(cluster, first).await?;
    let restarts = machines
        .iter()
        .map(|machine| cluster.stage.fault(Fault::Restart(cluster.target(machine))));
    futures::future::try_join_all(restarts).await?;
    is_back(cluster, machines, &before).await?;
    let now = ids(cluster, first).await?;
    anyhow::ensure!(now == members, "members were {members:?} and are {now:?}");
    Ok(())
}

async fn is_back(
    cluster: &Cluster<'_>,
    machines: &[String],
    before: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    until("the machines have other addresses", BACK, || async {
        let now = addresses(cluster).await?;
        let other = |machine: &&String| {
            now.get(*machine)
                .is_some_and(|ip| before.get(*machine) != Some(ip))
        };
        Ok(machines.iter().all(|machine| other(&machine)).then_some(()))
    })
    .await?;
    until("etcd is whole", BACK, || async {
        cluster.etcd_is_whole().await.map(Some)
    })
    .await?;
    let count = cluster.vms().await?.len();
    cluster.nodes_ready(count).await?;
    cluster.ready().await
}

async fn addresses(cluster: &Cluster<'_>) -> anyhow::Result<BTreeMap<String, String>> {
    let instances = cluster.instances().await?.into_iter();
    Ok(instances
        .filter_map(|(name, instance)| {
            let status = instance.status?;
            let running = status.phase.as_deref() == Some("Running");
            let address = status.interfaces.first()?.ip_address.clone()?;
            running.then_some((name, address))
        })
        .collect())
}

async fn ids(cluster: &Cluster<'_>, machine: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let members = cluster.etcd_members(machine).await?;
    Ok(members
        .into_iter()
        .map(|member| (member.name, member.id))
        .collect())
}

/// The one thing that a guest needs the operator for: where a control-plane machine is now. It
/// rejoins when the operator is back.
pub async fn a_member_restarts_while_the_operator_is_down(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let machine = cluster.control_plane().await?.pop().context("no machine")?;
    let before = addresses(&cluster).await?;
    scale_operator(stage, 0).await?;
    stage
        .fault(Fault::Restart(cluster.target(&machine)))
        .await?;
    until("the machine runs again", BACK, || async {
        let now = addresses(&cluster).await?;
        Ok(now
            .get(&machine)
            .filter(|ip| before.get(&machine) != Some(*ip))
            .map(|_| ()))
    })
    .await?;
    let guest = cluster.nodes().await;
    scale_operator(stage, 2).await?;
    guest.context("the guest did not serve while the operator was down")?;
    is_back(&cluster, &[machine], &before).await
}

async fn scale_operator(stage: &Stage, replicas: u32) -> anyhow::Result<()> {
    let deployment = format!("deployment/{RELEASE}");
    let replicas_flag = format!("--replicas={replicas}");
    stage
        .kubectl(&["-n", SYSTEM, "scale", &deployment, &replicas_flag])
        .await?;
    let arguments = [
        "-n",
        SYSTEM,
        "rollout",
        "status",
        &deployment,
        "--timeout=90s",
    ];
    stage.kubectl(&arguments).await?;
    until("as many Pods run", Duration::from_secs(60), || async {
        let pods = stage
            .kubectl(&["-n", SYSTEM, "get", "pods", "-o", "name"])
            .await?;
        Ok((pods.lines().count() == replicas as usize).then_some(()))
    })
    .await
}

/// How long a dead host's machine may stay in the endpoint: the node controller marks the host after
/// 50 s without a heartbeat, the last of which may be 10 s old, and looks every 5 s.
const TAKEN_OUT: Duration = Duration::from_secs(80);

/// The machine of the etcd leader dies with its host. Until it is taken out of the endpoint some
/// requests fail; then the two others serve alone. When the host is back, so is the member.
pub async fn the_leaders_host_dies_and_the_api_answers(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, TENANT, PROD);
    let leader = cluster.etcd_leader().await?;
    let instances = cluster.instances().await?;
    let host = instances
        .get(&leader)
        .and_then(|i| i.status.as_ref()?.node_name.clone());
    let host = host.context("the leader has no host")?;
    let prober = Prober::start(cluster.guest_config().await?);
    stage.fault(Fault::KillHost(host.clone())).await?;
    tokio::time::sleep(TAKEN_OUT + Duration::from_secs(20)).await;
    let outcome = prober.stop().await?;
    let guest = cluster.nodes().await;
    stage.fault(Fault::ReviveHost(host)).await?;
    let (asked, failed) = outcome.since(Duration::ZERO);
    let (asked_late, failed_late) = outcome.since(TAKEN_OUT);
    let last = outcome.last_failure();
    println!("  {failed} of {asked} requests failed, the last begun after {last:?}");
    guest.context("the guest API does not answer with two of three members")?;
    // Two thirds of the endpoint answer all the time; one that is gone for good is not asked.
    anyhow::ensure!(failed * 2 < asked, "{failed} of {asked} requests failed");
    anyhow::ensure!(
        failed_late * 20 < asked_late,
        "{failed_late} of {asked_late} requests failed long after the host's death"
    );
    until("etcd is whole", BACK, || async {
        cluster.etcd_is_whole().await.map(Some)
    })
    .await?;
    cluster.nodes_ready(6).await?;
    cluster.ready().await
}

/// A control-plane machine loses power in the middle of its join: it is replaced under another name,
/// the others join, and no trace is left in etcd.
pub async fn a_join_cut_short_recovers(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, "cut-short", "cut");
    cluster.apply(0, &json!({})).await?;
    // Control-plane machines join one after another, so that it can be no other one.
    let machine = "cut-cp-2";
    until("it is a learner", Duration::from_secs(120), || async {
        let members = cluster.etcd_members("cut-cp-1").await?;
        Ok(members.iter().any(|member| member.learner).then_some(()))
    })
    .await?;
    stage.fault(Fault::Restart(cluster.target(machine))).await?;
    cluster.ready().await?;
    cluster.etcd_is_whole().await?;
    let machines = cluster.control_plane().await?;
    println!("  {machine} was cut short; now there are {machines:?}");
    anyhow::ensure!(machines.len() == 3, "{machines:?}");
    cluster.nodes_ready(3).await?;
    let arguments = ["-n", "cut-short", "delete", "gc", "cut", "--timeout=180s"];
    stage.kubectl(&arguments).await.map(drop)
}

/// Killed twenty times while a cluster is made, at random moments of its work, the operator makes
/// each object once. It runs alone: a standby would take over only when the dead leader's Lease
/// has run out, and most kills would hit one that waits.
pub async fn an_operator_killed_at_random_makes_nothing_twice(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, "tenant-b", "twice");
    let arguments = run_alone(stage).await?;
    cluster
        .apply(1, &json!({ "controlPlane": { "replicas": 1 } }))
        .await?;
    for _ in 0..if stage.full { 100 } else { 20 } {
        operator_runs(stage).await?;
        let moment = rand::random::<u64>() % 2_500;
        tokio::time::sleep(Duration::from_millis(moment)).await;
        kill_operators(stage).await?;
    }
    cluster.ready().await?;
    run_as(stage, 2, &arguments).await?;
    let names: Vec<_> = cluster.vms().await?.into_keys().collect();
    anyhow::ensure!(names == ["twice-cp-1", "twice-general-1"], "{names:?}");
    let nodes: Vec<_> = cluster.nodes().await?.into_keys().collect();
    anyhow::ensure!(nodes == names, "{nodes:?}");
    let selector = "guestcluster.dev/cluster=twice";
    let arguments = [
        "-n",
        "tenant-b",
        "get",
        "dv,svc,secret",
        "-l",
        selector,
        "-o",
        "name",
    ];
    let objects = stage.kubectl(&arguments).await?;
    // Two root disks; the endpoint and one address; four authorities, a kubeconfig, two first boots.
    anyhow::ensure!(objects.lines().count() == 11, "{objects}");
    Ok(())
}

/// One replica without election; returns the arguments that it had before.
async fn run_alone(stage: &Stage) -> anyhow::Result<Vec<String>> {
    let before = operator_arguments(stage).await?;
    let alone = [before.clone(), vec!["--leader-election=false".to_owned()]].concat();
    scale_operator(stage, 0).await?;
    run_as(stage, 1, &alone).await?;
    Ok(before)
}

async fn run_as(stage: &Stage, replicas: u32, arguments: &[String]) -> anyhow::Result<()> {
    set_operator_arguments(stage, arguments).await?;
    scale_operator(stage, replicas).await
}

/// The operator's arguments as its Deployment has them.
pub async fn operator_arguments(stage: &Stage) -> anyhow::Result<Vec<String>> {
    let deployments = kube::Api::<Deployment>::namespaced(stage.client(), SYSTEM);
    let template = deployments
        .get(RELEASE)
        .await?
        .spec
        .map(|spec| spec.template);
    let container = template
        .and_then(|template| template.spec?.containers.into_iter().next())
        .context("no container")?;
    Ok(container.args.unwrap_or_default())
}

/// Gives the operator other arguments; its Pods are replaced.
pub async fn set_operator_arguments(stage: &Stage, arguments: &[String]) -> anyhow::Result<()> {
    let container = json!({ "name": "operator", "args": arguments });
    let patch = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    let patch = patch.to_string();
    let arguments = ["-n", SYSTEM, "patch", "deployment", RELEASE, "-p", &patch];
    stage.kubectl(&arguments).await.map(drop)
}

async fn operator_runs(stage: &Stage) -> anyhow::Result<()> {
    let pods = kube::Api::<Pod>::namespaced(stage.client(), SYSTEM);
    until("an operator runs", Duration::from_secs(60), || async {
        let pods = pods.list(&ListParams::default()).await?.items;
        let runs = |pod: &Pod| {
            let status = pod.status.as_ref();
            let phase = status.and_then(|status| status.phase.as_deref());
            phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
        };
        Ok(pods.iter().any(runs).then_some(()))
    })
    .await
}

/// Kills every replica of the operator at once.
pub async fn kill_operators(stage: &Stage) -> anyhow::Result<()> {
    let pods = kube::Api::<Pod>::namespaced(stage.client(), SYSTEM);
    let now = DeleteParams::default().grace_period(0);
    pods.delete_collection(&now, &ListParams::default()).await?;
    Ok(())
}
