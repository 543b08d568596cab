//! Group `bridge`: guests of Cluster API, on the same hosts and from the same node image as native ones, with
//! its own controllers for everything but the machines.

mod guest;
mod life;
mod manifests;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use guestcluster_infra::cluster_api;
use guestcluster_infra::progress::Progress;
use guestcluster_infra::tools::ensure_cluster_api;

use crate::audit::Mark;
use crate::guest::install_operator;
use crate::scenario;
use crate::stage::{RELEASE, SYSTEM, Stage};
use crate::suite::Scenario;
use guest::Guest;

/// The longest that a step of a guest's life may take.
const STEP: Duration = Duration::from_secs(420);

/// The scenarios, in order.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(capk_makes_a_guest, peers, long),
        scenario!(we_make_a_guest, peers, long),
        scenario!(life::a_guest_is_repaired_drained_and_upgraded, peers, long),
    ]
}

/// Who provides the machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// The KubeVirt provider of the Cluster API project, to compare with.
    Capk,
    /// The operator.
    Ours,
}

impl Provider {
    /// Makes it the only one that runs.
    async fn take_over(self, stage: &Stage) -> anyhow::Result<()> {
        install_operator(stage).await?;
        // They are built already: what takes minutes is done before the scenarios begin.
        let built = tokio::task::spawn_blocking(|| ensure_cluster_api(&Progress::detect()));
        let (built, infra) = (built.await??, stage.infra()?);
        match self {
            Self::Capk => {
                serve(stage, false).await?;
                infra
                    .install_cluster_api(&built, cluster_api::Provider::Capk)
                    .await
            }
            Self::Ours => {
                stop_capk(stage).await?;
                infra
                    .install_cluster_api(&built, cluster_api::Provider::None)
                    .await?;
                serve(stage, true).await
            }
        }
    }

    /// Its user at the API server.
    const fn user(self) -> &'static str {
        match self {
            Self::Capk => "system:serviceaccount:capk-system:capk-manager",
            Self::Ours => "system:serviceaccount:guestcluster-system:guestcluster-operator",
        }
    }
}

/// Switches the operator's own provider on or off, as the guide says.
async fn serve(stage: &Stage, on: bool) -> anyhow::Result<()> {
    let chart = stage
        .file("charts/guestcluster-operator")
        .display()
        .to_string();
    let value = format!("capkProvider.enabled={on}");
    let upgrade = [
        "upgrade",
        RELEASE,
        &chart,
        "--namespace",
        SYSTEM,
        "--reuse-values",
    ];
    let force = ["--force-conflicts", "--wait", "--timeout", "120s"];
    stage
        .helm(&[&upgrade[..], &["--set", &value], &force].concat())
        .await
        .map(drop)
}

/// Scales CAPK's controller manager down where there is one, and lets templates be made without its webhook, as
/// the guide says.
async fn stop_capk(stage: &Stage) -> anyhow::Result<()> {
    let capk = ["--namespace", "capk-system"];
    let name = "deployment/capk-controller-manager";
    let found = [
        &capk[..],
        &["get", name, "--ignore-not-found", "-o", "name"],
    ]
    .concat();
    if stage.kubectl(&found).await?.is_empty() {
        return Ok(());
    }
    stage
        .kubectl(&[&capk[..], &["scale", name, "--replicas=0"]].concat())
        .await?;
    let gone = ["wait", "pod", "--all", "--for=delete", "--timeout=60s"];
    stage.kubectl(&[&capk[..], &gone].concat()).await?;
    let webhooks = "validatingwebhookconfiguration/capk-validating-webhook-configuration";
    let ignore = r#"[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]"#;
    stage
        .kubectl(&["patch", webhooks, "--type=json", "-p", ignore])
        .await
        .map(drop)
}

/// What a provider must do: a control plane of one and then three, workers, and an end that leaves nothing.
async fn a_guest_lives(stage: &Stage, provider: Provider) -> anyhow::Result<()> {
    provider.take_over(stage).await?;
    let guest = Guest::new((stage, provider), "bridge", "peer");
    let (begun, mark) = (Instant::now(), Mark::now(stage)?);
    guest.apply().await?;
    guest.has_machines(1, 0).await?;
    println!("  1 + 0 after {:.1} s", begun.elapsed().as_secs_f32());
    tell_first_machine(stage, mark, provider)?;
    let scaled = Instant::now();
    guest.scale(3, 3).await?;
    guest.has_machines(3, 3).await?;
    println!(
        "  3 + 3 after another {:.1} s",
        scaled.elapsed().as_secs_f32()
    );
    for (user, writes) in mark.writes_by_user(stage)? {
        println!("  {writes:5} writes of {user}");
    }
    if provider == Provider::Capk {
        guest.can_be_adopted().await?;
    }
    let deleted = Instant::now();
    guest.delete().await?;
    guest.nothing_is_left().await?;
    println!("  gone after {:.1} s", deleted.elapsed().as_secs_f32());
    Ok(())
}

/// How long the provider took from the first of the user's writes to the first VM.
fn tell_first_machine(stage: &Stage, mark: Mark, provider: Provider) -> anyhow::Result<()> {
    let writes = mark.everyones_writes(stage)?;
    let first = writes.first().context("nobody wrote anything")?;
    let machine = writes
        .iter()
        .find(|write| {
            let creates = write.verb == "create" && write.resource() == "virtualmachines";
            creates && write.user() == provider.user()
        })
        .context("the provider made no VM")?;
    let taken = machine.at().duration_since(first.at());
    println!("  first VM after {:.1} s", taken.as_secs_f32());
    Ok(())
}

/// Cluster API's own KubeVirt provider makes a guest here: what is built for it elsewhere can be tried on this
/// infrastructure, and what it does can be measured.
pub async fn capk_makes_a_guest(stage: &Stage) -> anyhow::Result<()> {
    a_guest_lives(stage, Provider::Capk).await
}

/// The operator makes the same guest, from the same manifests.
pub async fn we_make_a_guest(stage: &Stage) -> anyhow::Result<()> {
    a_guest_lives(stage, Provider::Ours).await
}
