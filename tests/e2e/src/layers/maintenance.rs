//! A host is emptied of guests, called off in the middle, and has nowhere to empty to.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use guestcluster_api::HostMaintenance;
use guestcluster_api::host_maintenance::{
    HostMaintenanceStatus, MaintenancePhase, MaintenanceState,
};
use guestcluster_foreign::core::HostNode;
use guestcluster_foreign::kubevirt::VirtualMachineInstance;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::hosts;
use crate::cluster::Cluster;
use crate::guest::kill_operators;
use crate::prober::Prober;
use crate::stage::Stage;
use crate::wait::until;

const NAMESPACE: &str = "maintenance";
/// The longest that a host may take to be empty.
const EMPTY: Duration = Duration::from_secs(240);
/// The longest until a maintenance has said something.
const TOLD: Duration = Duration::from_secs(60);

/// A host that carries members of two guests, one of which leads its etcd, is emptied while the
/// operator is killed once: no request of either guest is lost, the leader is none any more, every
/// member is back elsewhere as itself, and the end of the maintenance uncordons the host.
pub async fn a_host_is_emptied_without_a_lost_request(stage: &Stage) -> anyhow::Result<()> {
    let guests = [
        Cluster::new(stage, NAMESPACE, "red"),
        Cluster::new(stage, NAMESPACE, "blue"),
    ];
    let small = json!({ "controlPlane": { "replicas": 3 }, "workers": [] });
    for guest in &guests {
        guest.apply(0, &small).await?;
    }
    for guest in &guests {
        guest.is_whole_with(3, 0).await?;
    }
    let host = shared_host(&guests).await?;
    let carried = machines_on(stage, &host).await?;
    let leader = guests[0].etcd_leader().await?;
    let member = guests[0].member_id(&leader).await?;
    let mut probers = Vec::new();
    for guest in &guests {
        probers.push(Prober::start(guest.guest_config().await?));
    }
    let begun = Instant::now();
    begin(stage, "firmware", &host).await?;
    says(stage, "firmware", "a machine leaves", |status| {
        let mut machines = status.machines.iter();
        machines.any(|m| m.state != MaintenanceState::Waiting)
    })
    .await?;
    kill_operators(stage).await?;
    let status = done(stage, "firmware").await?;
    println!(
        "  {host} was empty after {:.0} s",
        begun.elapsed().as_secs_f32()
    );
    let all = format!("{0}/{0} moved", carried.len());
    anyhow::ensure!(status.summary.as_ref() == Some(&all), "{status:?}");
    let left = machines_on(stage, &host).await?;
    anyhow::ensure!(left.is_empty(), "{host} carries {left:?}");
    for guest in &guests {
        guest.is_whole_with(3, 0).await?;
    }
    for prober in probers {
        prober.stop().await?.has_lost_nothing()?;
    }
    anyhow::ensure!(
        guests[0].member_id(&leader).await? == member,
        "{leader} came back as another member"
    );
    anyhow::ensure!(is_cordoned(stage, &host).await?, "{host} is not cordoned");
    end(stage, "firmware").await?;
    anyhow::ensure!(!is_cordoned(stage, &host).await?, "{host} is cordoned");
    Ok(())
}

/// A maintenance that is called off before the machine has gone leaves it where it is, in service. One
/// without another host keeps every machine as long as its policy does not allow more, says why, and
/// goes on when a host is free.
pub async fn a_maintenance_can_be_called_off_and_waits_for_a_host(
    stage: &Stage,
) -> anyhow::Result<()> {
    let guest = Cluster::new(stage, NAMESPACE, "red");
    guest.is_whole_with(3, 0).await?;
    let machine = guest.control_plane().await?.pop().context("no machine")?;
    let host = guest.host_of(&machine).await?;
    begin(stage, "mistake", &host).await?;
    says(stage, "mistake", "it drains", |status| {
        status.phase == Some(MaintenancePhase::Draining)
    })
    .await?;
    end(stage, "mistake").await?;
    guest.is_whole_with(3, 0).await?;
    anyhow::ensure!(!is_cordoned(stage, &host).await?, "{host} is cordoned");

    let host = guest.host_of(&machine).await?;
    let others: Vec<String> = hosts(stage)
        .await?
        .into_iter()
        .filter(|h| *h != host)
        .collect();
    for other in &others {
        stage.kubectl(&["cordon", other]).await?;
    }
    let outcome = waits_for_a_host(stage, (&guest, &machine, &host)).await;
    for other in &others {
        stage.kubectl(&["uncordon", other]).await?;
    }
    outcome?;
    done(stage, "nowhere").await?;
    end(stage, "nowhere").await?;
    guest.is_whole_with(3, 0).await?;
    let arguments = ["-n", NAMESPACE, "delete", "gc", "--all", "--timeout=180s"];
    stage.kubectl(&arguments).await.map(drop)
}

/// As long as its machines would find no other host, the host is not touched, and the maintenance names
/// them.
async fn waits_for_a_host(
    stage: &Stage,
    (guest, machine, host): (&Cluster<'_>, &str, &str),
) -> anyhow::Result<()> {
    begin(stage, "nowhere", host).await?;
    says(stage, "nowhere", "it names the machine", |status| {
        let mut conditions = status.conditions.iter();
        let named = conditions.any(|c| c.type_ == "Ready" && c.message.contains(machine));
        status.phase == Some(MaintenancePhase::Blocked) && named
    })
    .await?;
    anyhow::ensure!(
        guest.host_of(machine).await? == host,
        "{machine} left {host} with nowhere to go"
    );
    let cordoned = is_cordoned(stage, host).await?;
    anyhow::ensure!(!cordoned, "{host} is cordoned");
    Ok(())
}

/// Begins a maintenance.
pub(super) async fn begin(stage: &Stage, name: &str, host: &str) -> anyhow::Result<()> {
    let document: Value = json!({
        "apiVersion": "guestcluster.dev/v1alpha1",
        "kind": "HostMaintenance",
        "metadata": { "name": name },
        "spec": { "nodeName": host, "reason": "a test" },
    });
    let apply = ["apply", "-f", "-"];
    stage
        .kubectl_with(&apply, &document.to_string())
        .await
        .map(drop)
}

/// Ends a maintenance.
pub(super) async fn end(stage: &Stage, name: &str) -> anyhow::Result<()> {
    let arguments = ["delete", "hm", name, "--timeout=60s"];
    stage.kubectl(&arguments).await.map(drop)
}

/// Waits until status is so.
async fn says(
    stage: &Stage,
    name: &str,
    what: &str,
    is: impl Fn(&HostMaintenanceStatus) -> bool,
) -> anyhow::Result<HostMaintenanceStatus> {
    within(stage, (name, what, TOLD), is).await
}

/// Waits until the host is empty.
pub(super) async fn done(stage: &Stage, name: &str) -> anyhow::Result<HostMaintenanceStatus> {
    within(stage, (name, "the host is empty", EMPTY), |status| {
        status.phase == Some(MaintenancePhase::Done)
    })
    .await
}

async fn within(
    stage: &Stage,
    (name, what, limit): (&str, &str, Duration),
    is: impl Fn(&HostMaintenanceStatus) -> bool,
) -> anyhow::Result<HostMaintenanceStatus> {
    let api = Api::<HostMaintenance>::all(stage.client());
    let (api, is) = (&api, &is);
    until(what, limit, || async move {
        let status = api.get(name).await?.status.unwrap_or_default();
        anyhow::ensure!(is(&status), "{status:?}");
        Ok(Some(status))
    })
    .await
}

/// The host of the first guest's etcd leader, once the second has a member there as well.
async fn shared_host(guests: &[Cluster<'_>; 2]) -> anyhow::Result<String> {
    let leader = guests[0].etcd_leader().await?;
    let host = guests[0].host_of(&leader).await?;
    let hosts = guests[1].control_plane_hosts().await?;
    if !hosts.contains(&host) {
        let machine = guests[1]
            .control_plane()
            .await?
            .pop()
            .context("no machine")?;
        let from = guests[1].host_of(&machine).await?;
        moves_to(&guests[1], (&machine, &from), &host).await?;
    }
    Ok(host)
}

/// Moves a machine to a host by closing all others to it.
async fn moves_to(
    guest: &Cluster<'_>,
    (machine, from): (&str, &str),
    to: &str,
) -> anyhow::Result<()> {
    let stage = guest.stage;
    let all = hosts(stage).await?;
    let others: Vec<&String> = all.iter().filter(|host| *host != to).collect();
    for host in &others {
        stage.kubectl(&["cordon", host]).await?;
    }
    let arguments = ["-n", guest.namespace, "delete", "vmi", machine];
    let moved = async {
        stage.kubectl(&arguments).await?;
        until(&format!("{machine} left {from}"), TOLD, || async {
            let host = guest.host_of(machine).await?;
            Ok((host == to).then_some(()))
        })
        .await
    }
    .await;
    for host in &others {
        stage.kubectl(&["uncordon", host]).await?;
    }
    moved?;
    guest.is_whole_with(3, 0).await
}

async fn is_cordoned(stage: &Stage, host: &str) -> anyhow::Result<bool> {
    let api = Api::<HostNode>::all(stage.client());
    Ok(api.get(host).await?.spec.unschedulable)
}

/// Machines of all guests on a host.
pub(super) async fn machines_on(stage: &Stage, host: &str) -> anyhow::Result<BTreeSet<String>> {
    let api = Api::<VirtualMachineInstance>::all(stage.client());
    let all = api.list(&ListParams::default()).await?.items.into_iter();
    let here = all.filter(|instance| {
        let status = instance.status.as_ref();
        status.and_then(|status| status.node_name.as_deref()) == Some(host)
    });
    Ok(here.map(|instance| instance.name_any()).collect())
}
