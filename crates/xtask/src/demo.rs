//! `cargo xtask demo`: the main job on this machine, in sight.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use guestcluster_infra::addresses;
use guestcluster_infra::progress::{Progress, Step};
use guestcluster_infra::up::{self, Infra, UpOptions};
use serde_json::Value;

use crate::project::Project;
use crate::{build, operator, process};

/// Brings up an infrastructure cluster with KubeVirt and four hosts on this box, installs the
/// operator with Helm, applies examples/demo.yaml and shows the guest cluster that comes of it:
/// its nodes, and the hosts that carry them. Needs root; the first run builds for minutes.
#[derive(Args)]
pub struct Options {
    /// Name of the local infrastructure.
    #[arg(long, default_value = "infra")]
    infra: String,
    /// Another GuestCluster to apply; IMAGE in it stands for the node image that was built.
    #[arg(long, default_value = "examples/demo.yaml")]
    file: PathBuf,
    /// Take everything down at the end.
    #[arg(long)]
    down: bool,
}

const NAMESPACE: &str = "demo";
const CLUSTER: &str = "demo";
/// How long a guest may take on a busy box.
const PATIENCE: Duration = Duration::from_secs(900);
/// Time between two looks at the conditions.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the verb.
pub fn run(project: &Project, options: &Options) -> Result<ExitCode> {
    tokio::runtime::Runtime::new()?.block_on(perform(project, options))
}

async fn perform(project: &Project, options: &Options) -> Result<ExitCode> {
    let mut watch = Stopwatch(Instant::now());
    build::infra(project)?;
    let wanted = UpOptions {
        name: options.infra.clone(),
        operator_binary: Some(operator::build(project)?),
        ..UpOptions::default()
    };
    let building = watch.lap();
    let progress = Progress::detect();
    let infra = up::up(wanted, &progress).await?;
    let standing = watch.lap();
    install(project, &infra, &progress)?;
    let installing = watch.lap();
    apply(project, options, &infra)?;
    wait_until_ready(&infra, &progress)?;
    let growing = watch.lap();
    show(&infra).await?;
    println!(
        "\nseconds: build {building:.0}, infrastructure {standing:.0}, operator {installing:.0}, \
         guest from apply to Ready {growing:.0}"
    );
    if options.down {
        up::down(&options.infra).await?;
    } else {
        print!("{}", play_on(&options.infra));
    }
    Ok(ExitCode::SUCCESS)
}

struct Stopwatch(Instant);

impl Stopwatch {
    /// Seconds since the last lap.
    fn lap(&mut self) -> f64 {
        let seconds = self.0.elapsed().as_secs_f64();
        self.0 = Instant::now();
        seconds
    }
}

/// What a person may try next, and how it all goes away.
fn play_on(infra: &str) -> String {
    let at = match infra {
        "infra" => String::new(),
        name => format!(" --name {name}"),
    };
    format!(
        "
Play on:
  cargo xtask infra{at} exec -- kubectl -n demo get guestcluster,vm,vmi,pod -o wide
  cargo xtask infra{at} exec -- kubectl -n demo describe guestcluster demo
  cargo xtask infra{at} exec -- kubectl --kubeconfig /var/tmp/guestcluster-{infra}/demo.kubeconfig get pods -A
  cargo xtask infra{at} fault restart demo/demo-cp-1
  cargo xtask infra{at} status
Take it down:
  cargo xtask infra{at} down
"
    )
}

fn install(project: &Project, infra: &Infra, progress: &Progress) -> Result<()> {
    let step = progress.step("helm install guestcluster-operator --wait");
    let mut helm = infra.command("helm");
    helm.args(["upgrade", "--install", "guestcluster-operator"]);
    helm.arg(project.path("charts/guestcluster-operator"));
    helm.args([
        "--namespace",
        "guestcluster-system",
        "--create-namespace",
        "--wait",
        "--timeout=5m",
    ]);
    helm.arg(format!("--set=infra.podCIDRs={{{}}}", addresses::POD_RANGE));
    process::quiet(&mut helm)?;
    step.done("two replicas, one leads");
    Ok(())
}

/// A namespace for guests, and the GuestCluster in it.
fn apply(project: &Project, options: &Options, infra: &Infra) -> Result<()> {
    let image = infra
        .options()
        .image
        .as_ref()
        .context("the infrastructure boots no machines")?;
    let file = project.path(&options.file.to_string_lossy());
    let text =
        std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let namespace = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n  labels:\n    guestcluster.dev/guests: \"true\"\n---\n"
    );
    let mut child = infra
        .command("kubectl")
        .args(["apply", "-f", "-"])
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all((namespace + &text.replace("IMAGE", &image.reference)).as_bytes())?;
    }
    if !child.wait()?.success() {
        bail!("kubectl apply failed");
    }
    Ok(())
}

/// `kubectl wait`, with what the conditions say meanwhile.
fn wait_until_ready(infra: &Infra, progress: &Progress) -> Result<()> {
    let step = progress.step(format!("kubectl wait --for=condition=Ready gc/{CLUSTER}"));
    let mut command = guest_cluster(infra, &["wait", "--for=condition=Ready"]);
    command
        .arg(format!("--timeout={}s", PATIENCE.as_secs()))
        .stdout(Stdio::null());
    let ready = follow(infra, &mut command.spawn()?, &step)?;
    if !ready {
        process::run(infra.command("kubectl").args([
            "-n",
            NAMESPACE,
            "describe",
            "guestcluster",
            CLUSTER,
        ]))?;
        bail!("the guest is not Ready; it is left as it is, for you to look at");
    }
    step.done("");
    Ok(())
}

fn follow(infra: &Infra, child: &mut Child, step: &Step) -> Result<bool> {
    let mut said = String::new();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        let news = ready_message(infra).unwrap_or_default();
        if news != said {
            step.detail(&news);
            said = news;
        }
        std::thread::sleep(LOOK);
    }
}

/// What the Ready condition says.
fn ready_message(infra: &Infra) -> Result<String> {
    let json = process::output(&mut guest_cluster(infra, &["get", "-o", "json"]))?;
    let object: Value = serde_json::from_str(&json)?;
    let conditions = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    let message = ready
        .next()
        .and_then(|condition| condition["message"].as_str());
    Ok(message.unwrap_or_default().to_owned())
}

/// `kubectl VERB guestcluster/demo`, in the demo's namespace.
fn guest_cluster(infra: &Infra, verb: &[&str]) -> Command {
    let mut command = infra.command("kubectl");
    command
        .args(["-n", NAMESPACE])
        .args(verb)
        .arg(format!("guestcluster/{CLUSTER}"));
    command
}

/// The cluster, its nodes through its own API, and the hosts that carry them.
async fn show(infra: &Infra) -> Result<()> {
    let kubeconfig = infra.run_dir().root().join(format!("{CLUSTER}.kubeconfig"));
    let secret = process::output(infra.command("kubectl").args([
        "-n",
        NAMESPACE,
        "get",
        "secret",
        &format!("{CLUSTER}-kubeconfig"),
        "-o",
        "go-template={{.data.value | base64decode}}",
    ]))?;
    std::fs::write(&kubeconfig, secret)
        .with_context(|| format!("write {}", kubeconfig.display()))?;
    println!("\n$ kubectl get guestcluster");
    process::run(
        infra
            .command("kubectl")
            .args(["-n", NAMESPACE, "get", "guestcluster"]),
    )?;
    println!(
        "\n$ kubectl --kubeconfig {} get nodes -L guestcluster.dev/host",
        kubeconfig.display()
    );
    let mut nodes = infra.command("kubectl");
    nodes.arg("--kubeconfig").arg(&kubeconfig).args([
        "get",
        "nodes",
        "-L",
        "guestcluster.dev/host",
    ]);
    process::run(&mut nodes)?;
    println!("\n{}", infra.status().await?);
    Ok(())
}
