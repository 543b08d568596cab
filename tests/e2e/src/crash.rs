//! Crash tables: a paper guest lives through everything that is done to guests, and at chosen writes
//! the operator dies, is refused, waits in vain, sees nothing new or stands still. However it goes,
//! the same must be left.
//!
//! Real are the infrastructure's API server, etcd, controllers, KubeVirt's controllers, and the
//! operator's binary with its own rights; on paper are machines and guests.

mod course;
mod mishap;
mod operation;
mod process;
mod proxy;
mod remains;
mod table;
mod tripwire;
mod watches;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use guestcluster_paper::{Pace, Paper};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use crate::cluster::Cluster;
use crate::stage::{RELEASE, SYSTEM, Stage};
use crate::suite::on_one_line;
use crate::wait::until;
use course::Course;
use mishap::Trouble;
use operation::Operation;
use process::{Process, Program, write_kubeconfig};
use proxy::{Proxy, Road};
use remains::{Remains, Told, remains};
pub use table::COLUMNS;
use table::Table;
use tripwire::Tripwire;
use watches::Watches;

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

/// Everything that a run needs.
struct Rig<'a> {
    stage: &'a Stage,
    paper: Paper,
    tripwire: Arc<Tripwire>,
    program: Program,
    _proxy: Proxy,
}

/// Fills the table, of all columns or of these; more of it if `stage` is full; returns how many cells are as they must be, and how many are not.
pub async fn run(
    stage: &Stage,
    binary: &Path,
    columns: &[String],
) -> anyhow::Result<(usize, usize)> {
    let rig = Rig::set_up(stage, binary).await?;
    let (mut wanted, mut table) = (BTreeMap::new(), Table::default());
    let begun = Instant::now();
    let calm = Course::calm(Operation::SHORT);
    rig.live("calm", &calm, (&mut wanted, &mut table)).await?;
    let mut courses = if stage.full {
        course::all(&table)
    } else {
        course::few()
    };
    courses.retain(|course| course.is_of(columns));
    // What must be left of the operation that short lives do not have.
    if courses.iter().any(|course| course.life == Operation::LONG) {
        courses.insert(0, Course::calm(Operation::LONG));
    }
    for (number, course) in courses.iter().enumerate() {
        let name = format!("c{number}");
        rig.live(&name, course, (&mut wanted, &mut table)).await?;
    }
    println!(
        "\n{}\n{:.0} s in all",
        table.show(),
        begun.elapsed().as_secs_f32()
    );
    let untried = table.untried(courses.iter().flat_map(Course::columns));
    for column in &untried {
        println!("failed: {column} never came about");
    }
    let (passed, failed) = table.tally();
    Ok((passed, failed + untried.len()))
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
        let watches = Arc::<Watches>::default();
        let tripwire = Arc::new(Tripwire::new(watches.clone()));
        let run = stage.infra()?.run_dir().clone();
        let paper =
            Paper::open((stage.client(), run.clone()), Pace::QUICK, tripwire.clone()).await?;
        let road = Road {
            upstream: operator_client(stage).await?,
            judge: tripwire.clone(),
            watches,
        };
        let proxy = Proxy::open(road).await?;
        let kubeconfig = run.root().join("operator.kubeconfig");
        write_kubeconfig(&kubeconfig, &proxy.url())?;
        let program = Program {
            binary: binary.to_owned(),
            kubeconfig,
            log: run.logs().join("operator.log"),
            client: stage.client(),
        };
        let _process = Process::start(&program, 1, &tripwire).await?;
        // What a run before left that was broken off.
        let leftover = ["-n", NAMESPACE, "delete", "gc", "--all", "--timeout=120s"];
        stage.kubectl(&leftover).await?;
        Ok(Self {
            stage,
            paper,
            tripwire,
            program,
            _proxy: proxy,
        })
    }

    /// A cluster from its creation to its end. An operation that does not come to the right end is
    /// the last of its life.
    async fn live(
        &self,
        name: &str,
        course: &Course,
        (wanted, table): (&mut BTreeMap<Operation, Remains>, &mut Table),
    ) -> anyhow::Result<()> {
        let _process = Process::start(&self.program, course.replicas(), &self.tripwire).await?;
        let cluster = Cluster::new(self.stage, NAMESPACE, name);
        for (operation, trouble) in course.steps() {
            let started = Instant::now();
            self.tripwire.set(trouble);
            let outcome = self.carry_out(operation, &cluster, wanted).await;
            let (lines, mishaps) = self.tripwire.count();
            self.tripwire.set(Trouble::NONE);
            let seconds = started.elapsed().as_secs_f32();
            let writes = lines.len();
            println!(
                "{name} {trouble}: {} … {} ({writes} writes, {mishaps} went wrong, {seconds:.1} s)",
                operation.name(),
                if outcome.is_ok() { "ok" } else { "FAILED" },
            );
            table.enter(operation, trouble, (writes, mishaps), outcome.is_ok());
            if let Err(error) = outcome {
                let what = format!("{name} {trouble}: {}: {error:#}", operation.name());
                println!("failed: {}", on_one_line(&what));
                let last = lines.iter().rev().take(12).rev();
                last.for_each(|line| println!("    {line}"));
                self.stage.describe_failure().await;
                let _ = Operation::Delete.begin(&cluster).await;
                let _ = Operation::Delete.is_over(&cluster).await;
                break;
            }
        }
        Ok(())
    }

    async fn carry_out(
        &self,
        operation: Operation,
        cluster: &Cluster<'_>,
        wanted: &mut BTreeMap<Operation, Remains>,
    ) -> anyhow::Result<()> {
        operation.begin(cluster).await?;
        operation.is_over(cluster).await?;
        self.quiet().await?;
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

    /// Waits until nothing more is to come of what went wrong: a request may still be on its way.
    async fn quiet(&self) -> anyhow::Result<()> {
        until("mishaps end", SETTLING, || async {
            Ok(self.tripwire.is_quiet().then_some(()))
        })
        .await
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
