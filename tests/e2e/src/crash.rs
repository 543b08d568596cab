//! Crash tables: a paper guest lives through everything that is done to guests, and at chosen writes
//! the operator dies, or the answer is lost, or refused. However it goes, the same must be left.
//!
//! Real are the infrastructure's API server, etcd, controllers, KubeVirt's controllers, and the
//! operator's binary with its own rights; on paper are machines and guests.

mod operation;
mod process;
mod proxy;
mod remains;
mod table;
mod tripwire;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use guestcluster_paper::{Pace, Paper};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::sync::mpsc;

use crate::cluster::Cluster;
use crate::stage::{RELEASE, SYSTEM, Stage};
use crate::wait::until;
use operation::Operation;
use process::{Process, Program, write_kubeconfig};
use proxy::Proxy;
use remains::{Remains, Told, remains};
use table::Table;
use tripwire::{Mishap, Tripwire, Which};

/// Namespace of the clusters.
const NAMESPACE: &str = "crash";
/// How long what is left may differ from what is left without mishap.
const SETTLING: Duration = Duration::from_secs(60);
/// How long it must stay the same to count as what is left without mishap.
const STILL: Duration = Duration::from_secs(2);

/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(200);

/// Ends of lines that tell that something is still to come.
const UNFINISHED: [&str; 2] = [" scrubbed=false", " going"];

/// One run through a life, with what goes wrong in each operation.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Which writes of each operation.
    which: Which,
    /// How they go wrong.
    mishap: Mishap,
    /// Through all operations, those too that take long.
    long: bool,
}

/// Everything that a run needs.
struct Rig<'a> {
    stage: &'a Stage,
    paper: Paper,
    tripwire: Arc<Tripwire>,
    _proxy: Proxy,
    _process: Process,
}

/// Fills the table, of all columns or of these; more of it if `stage` is full; returns how many cells are as they must be, and how many are not.
pub async fn run(
    stage: &Stage,
    binary: &Path,
    columns: &[String],
) -> anyhow::Result<(usize, usize)> {
    let rig = Rig::set_up(stage, binary).await?;
    let mut table = Table::default();
    let begun = Instant::now();
    let calm = Course {
        long: stage.full,
        ..Course::short(Which::None, Mishap::Death)
    };
    let mut wanted = BTreeMap::new();
    rig.live("calm", calm, (&mut wanted, &mut table)).await;
    let most = table.most_writes(Operation::life(false));
    let mut courses = courses(stage.full, most);
    courses.retain(|course| {
        columns.is_empty() || columns.iter().any(|column| column == course.column())
    });
    for (number, course) in courses.into_iter().enumerate() {
        rig.live(&format!("c{number}"), course, (&mut wanted, &mut table))
            .await;
    }
    println!(
        "\n{}\n{:.0} s in all",
        table.show(),
        begun.elapsed().as_secs_f32()
    );
    Ok(table.tally())
}

/// In CI a few lives in which every other write is the operator's last, or every fourth loses its
/// answer. Where every write went wrong, a token and the Secret that carries it would never both come
/// about; where most rounds fail, the operator waits for minutes.
///
/// In full one life for each write of its operations, and long lives in which every seventh write goes
/// wrong, beginning at each of seven: one action writes up to six objects, which are all tried again
/// when one of them is refused.
fn courses(full: bool, most: usize) -> Vec<Course> {
    if !full {
        return vec![
            Course::short(Which::Every(1, 2), Mishap::Death),
            Course::short(Which::Every(2, 2), Mishap::Death),
            Course::short(Which::Every(1, 4), Mishap::LostAnswer),
            Course::short(Which::Every(3, 4), Mishap::LostAnswer),
        ];
    }
    let single = |mishap| (1..=most).map(move |n| Course::short(Which::Only(n), mishap));
    let seventh = |mishap| {
        (1..=7).map(move |first| Course {
            long: true,
            ..Course::short(Which::Every(first, 7), mishap)
        })
    };
    let singles = [Mishap::Death, Mishap::LostAnswer]
        .into_iter()
        .flat_map(single);
    let all = [
        Mishap::Death,
        Mishap::LostAnswer,
        Mishap::Refusal(409),
        Mishap::Refusal(429),
        Mishap::Refusal(500),
    ];
    all.into_iter().flat_map(seventh).chain(singles).collect()
}

impl Course {
    const fn short(which: Which, mishap: Mishap) -> Self {
        Self {
            which,
            mishap,
            long: false,
        }
    }
}

impl<'a> Rig<'a> {
    async fn set_up(stage: &'a Stage, binary: &Path) -> anyhow::Result<Self> {
        install_rights(stage).await?;
        let document = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": NAMESPACE, "labels": {
                guestcluster_api::labels::GUESTS_NAMESPACE: "true",
                guestcluster_infra::PAPER_LABEL: guestcluster_infra::ANSWERS,
            }},
        });
        stage
            .kubectl_with(&["apply", "-f", "-"], &document.to_string())
            .await?;
        let (executioner, orders) = mpsc::channel(1);
        let tripwire = Arc::new(Tripwire::new(executioner));
        let run = stage.infra()?.run_dir().clone();
        let paper =
            Paper::open((stage.client(), run.clone()), Pace::QUICK, tripwire.clone()).await?;
        let proxy = Proxy::open(operator_client(stage).await?, tripwire.clone()).await?;
        let kubeconfig = run.root().join("operator.kubeconfig");
        write_kubeconfig(&kubeconfig, &proxy.url())?;
        let program = Program {
            binary: binary.to_owned(),
            kubeconfig,
            log: run.logs().join("operator.log"),
        };
        let process = Process::keep(program, tripwire.clone(), orders)?;
        // What a run before left that was broken off.
        let leftover = ["-n", NAMESPACE, "delete", "gc", "--all", "--timeout=120s"];
        stage.kubectl(&leftover).await?;
        Ok(Self {
            stage,
            paper,
            tripwire,
            _proxy: proxy,
            _process: process,
        })
    }

    /// A cluster from its creation to its end. An operation that does not come to the right end is
    /// the last of its life.
    async fn live(
        &self,
        name: &str,
        course: Course,
        (wanted, table): (&mut BTreeMap<Operation, Remains>, &mut Table),
    ) {
        let cluster = Cluster::new(self.stage, NAMESPACE, name);
        for operation in Operation::life(course.long) {
            let started = Instant::now();
            self.tripwire.set(course.which, course.mishap);
            let outcome = self.carry_out(operation, &cluster, wanted).await;
            let (lines, mishaps) = self.tripwire.count();
            self.tripwire.set(Which::None, course.mishap);
            let seconds = started.elapsed().as_secs_f32();
            let writes = lines.len();
            println!(
                "{name} {course}: {} … {} ({writes} writes, {mishaps} went wrong, {seconds:.1} s)",
                operation.name(),
                outcome
                    .as_ref()
                    .map_or_else(|error| format!("FAILED: {error:#}"), |()| "ok".into()),
            );
            table.enter(operation, course, (writes, mishaps), outcome.is_ok());
            if outcome.is_err() {
                let last = lines.iter().rev().take(12).rev();
                last.for_each(|line| println!("    {line}"));
                self.stage.describe_failure().await;
                let _ = Operation::Delete.begin(&cluster).await;
                let _ = Operation::Delete.is_over(&cluster).await;
                return;
            }
        }
    }

    async fn carry_out(
        &self,
        operation: Operation,
        cluster: &Cluster<'_>,
        wanted: &mut BTreeMap<Operation, Remains>,
    ) -> anyhow::Result<()> {
        operation.begin(cluster).await?;
        operation.is_over(cluster).await?;
        self.nothing_strange()?;
        let Some(wanted) = wanted.get(&operation) else {
            let found = self.stillness(cluster).await?;
            wanted.insert(operation, found);
            return Ok(());
        };
        until("the same is left as without mishap", SETTLING, || async {
            let found = self.remains(cluster).await?;
            let missing: Vec<_> = wanted.difference(&found).collect();
            let surplus: Vec<_> = found.difference(wanted).collect();
            anyhow::ensure!(
                missing.is_empty() && surplus.is_empty(),
                "missing {missing:?}, too much {surplus:?}"
            );
            Ok(Some(()))
        })
        .await?;
        self.nothing_strange()
    }

    /// What is left once nothing changes any more.
    async fn stillness(&self, cluster: &Cluster<'_>) -> anyhow::Result<Remains> {
        let begun = Instant::now();
        let (mut before, mut since) = (self.remains(cluster).await?, begun);
        while since.elapsed() < STILL {
            anyhow::ensure!(begun.elapsed() < SETTLING, "it does not come to rest");
            tokio::time::sleep(LOOK).await;
            let found = self.remains(cluster).await?;
            let unfinished = |line: &String| UNFINISHED.iter().any(|word| line.ends_with(word));
            if found != before || found.iter().any(unfinished) {
                (before, since) = (found, Instant::now());
            }
        }
        Ok(before)
    }

    async fn remains(&self, cluster: &Cluster<'_>) -> anyhow::Result<Remains> {
        let told = Told::of(&self.paper.world(), cluster.namespace, cluster.name);
        remains(cluster, &told).await
    }

    /// Nothing that must never happen has happened, and every question was understood.
    fn nothing_strange(&self) -> anyhow::Result<()> {
        let world = self.paper.world();
        anyhow::ensure!(world.violations.is_empty(), "{:?}", world.violations);
        anyhow::ensure!(
            world.unknown.is_empty(),
            "not understood: {:?}",
            world.unknown
        );
        Ok(())
    }
}

/// The chart without its Deployment: definitions and rights.
async fn install_rights(stage: &Stage) -> anyhow::Result<()> {
    let chart = stage
        .file("charts/guestcluster-operator")
        .display()
        .to_string();
    let rendered = stage
        .helm(&["template", RELEASE, &chart, "--namespace", SYSTEM])
        .await?;
    let documents: Vec<&str> = rendered
        .split("\n---\n")
        .filter(|document| !document.contains("\nkind: Deployment\n"))
        .collect();
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SYSTEM } });
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    stage.kubectl_with(&apply, &namespace.to_string()).await?;
    stage
        .kubectl_with(&apply, &documents.join("\n---\n"))
        .await?;
    let established = "--for=condition=Established";
    let crd = "crd/guestclusters.guestcluster.dev";
    stage
        .kubectl(&["wait", established, crd, "--timeout=30s"])
        .await
        .map(drop)
}

/// The infrastructure cluster as the operator's own account sees it.
async fn operator_client(stage: &Stage) -> anyhow::Result<Client> {
    let token = ["-n", SYSTEM, "create", "token", RELEASE, "--duration=12h"];
    let token = stage.kubectl(&token).await?;
    let kubeconfig = Kubeconfig::read_from(stage.infra()?.run_dir().kubeconfig())?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.auth_info = AuthInfo {
        token: Some(token.trim().to_owned().into()),
        ..AuthInfo::default()
    };
    config.read_timeout = None;
    config.default_retry = false;
    Client::try_from(config).context("no client for the operator's account")
}
