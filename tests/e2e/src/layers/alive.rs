//! Machines that leave their host while they run.

use std::collections::BTreeMap;

use anyhow::Context as _;
use guestcluster_api::names;
use guestcluster_infra::faults::{Fault, MigrationFault};
use kube::ResourceExt;

use super::chain::is_shown_soon;
use super::maintenance::{begin, done, end, machines_on};
use super::masquerade::mobile;
use crate::cluster::Cluster;
use crate::prober::Prober;
use crate::stage::Stage;

const NAMESPACE: &str = "mobile";

/// A host is emptied whose machines can live-migrate, the leader of etcd among them: they run on
/// without a new start and without a lost request, and their Nodes and the map name the new host. A
/// machine whose migration fails is shut down and starts elsewhere, and is shown there as well.
pub async fn machines_leave_an_emptied_host_while_they_run(stage: &Stage) -> anyhow::Result<()> {
    let guest = Cluster::new(stage, NAMESPACE, NAMESPACE);
    guest.apply(0, &mobile(3)).await?;
    guest.is_whole_with(3, 1).await?;
    guest
        .condition("LiveMigratable", "True", "Migratable")
        .await?;
    its_migrations_are_limited(&guest, Some("false")).await?;
    let leader = guest.etcd_leader().await?;
    let host = guest.host_of(&leader).await?;
    let member = guest.member_id(&leader).await?;
    let leaving = machines_on(stage, &host).await?;
    let before = runs(&guest).await?;

    let prober = Prober::start(guest.guest_config().await?);
    begin(stage, "memory", &host).await?;
    done(stage, "memory").await?;
    guest.is_whole_with(3, 1).await?;
    prober.stop().await?.has_lost_nothing()?;
    let after = runs(&guest).await?;
    anyhow::ensure!(after == before, "runs were {before:?} and are {after:?}");
    for machine in &leaving {
        let there = guest.host_of(machine).await?;
        anyhow::ensure!(there != host, "{machine} is on {host} still");
        is_shown_soon(&guest, machine).await?;
    }
    anyhow::ensure!(
        guest.member_id(&leader).await? == member,
        "{leader} is another member"
    );
    end(stage, "memory").await?;
    a_failed_migration_is_a_shutdown(&guest, &before).await?;
    let delete = ["-n", NAMESPACE, "delete", "gc", NAMESPACE, "--timeout=180s"];
    stage.kubectl(&delete).await?;
    its_migrations_are_limited(&guest, None).await
}

/// Whether the guest's MigrationPolicy allows post-copy, if there is one.
async fn its_migrations_are_limited(
    guest: &Cluster<'_>,
    post_copy: Option<&str>,
) -> anyhow::Result<()> {
    let name = names::migration_policy(guest.namespace, guest.name);
    let path = "jsonpath={.spec.allowPostCopy}";
    let get = [
        "get",
        "migrationpolicy",
        &name,
        "--ignore-not-found",
        "-o",
        path,
    ];
    let told = guest.stage.kubectl(&get).await?;
    anyhow::ensure!(
        told == post_copy.unwrap_or_default(),
        "MigrationPolicy {name} says {told:?}"
    );
    Ok(())
}

async fn a_failed_migration_is_a_shutdown(
    guest: &Cluster<'_>,
    before: &BTreeMap<String, Run>,
) -> anyhow::Result<()> {
    let (stage, worker) = (guest.stage, format!("{NAMESPACE}-general-1"));
    let broken = MigrationFault::Fail("no route to host".to_owned());
    let at = || guest.target(&worker);
    stage.fault(Fault::BreakMigration(at(), broken)).await?;
    let host = guest.host_of(&worker).await?;
    begin(stage, "disk", &host).await?;
    let outcome = done(stage, "disk").await;
    stage.fault(Fault::MendMigration(at())).await?;
    outcome?;
    end(stage, "disk").await?;
    guest.is_whole_with(3, 1).await?;
    let after = runs(guest).await?;
    let run = |all: &BTreeMap<String, Run>| all.get(&worker).cloned();
    anyhow::ensure!(run(&after) != run(before), "{worker} was not shut down");
    is_shown_soon(guest, &worker).await
}

/// One run of a machine: its instance, and the boot that it is in.
type Run = (String, String);

async fn runs(guest: &Cluster<'_>) -> anyhow::Result<BTreeMap<String, Run>> {
    let mut runs = BTreeMap::new();
    for (machine, instance) in guest.instances().await? {
        let argv = ["cat", "/proc/sys/kernel/random/boot_id"];
        let boot = guest
            .stage
            .on_console(guest.target(&machine), &argv)
            .await?;
        let uid = instance.uid().context("an instance without UID")?;
        runs.insert(machine, (uid, boot.trim().to_owned()));
    }
    Ok(runs)
}
