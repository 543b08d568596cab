//! The local infrastructure moves VMs from host to host while they run, as KubeVirt does.
//!
//! The VMs here are made by hand and belong to no guest cluster: what is tried is what scenarios of moving guests stand
//! on.

use std::time::Duration;

use anyhow::Context as _;
use guestcluster_infra::PAPER_LABEL;
use guestcluster_infra::faults::{Fault, MigrationFault, Target};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::stage::Stage;
use crate::wait::until;

const NAMESPACE: &str = "moves";
const PAPER_NAMESPACE: &str = "moves-on-paper";
const VM: &str = "vm";
/// A machine boots, or moves, within this time.
const LIMIT: Duration = Duration::from_secs(90);
/// Where the machine answers with its boot id.
const PORT: u16 = 8080;

/// A machine behind masquerade is reached at its Pod's address, and after a move at that of the other Pod, without
/// having been started again.
pub async fn a_machine_moves_while_it_runs(stage: &Stage) -> anyhow::Result<()> {
    let image = json!({"registry": {"url": image_url(stage)?}});
    make(stage, NAMESPACE, json!({}), &image).await?;
    let before = whereabouts(stage, NAMESPACE).await?;
    answers(&before.address).await?;
    let inside = on_console(stage, "ip -4 -o addr show eth0").await?;
    anyhow::ensure!(inside.contains("10.0.2.2/24"), "inside: {inside}");
    // The name server stands outside.
    on_console(stage, "timeout 5 bash -c '</dev/tcp/10.244.0.1/53'").await?;
    let boot = on_console(
        stage,
        "cat /proc/sys/kernel/random/boot_id; cat /proc/1/stat",
    )
    .await?;
    migrate(stage, NAMESPACE, "there").await?;
    ends(stage, NAMESPACE, "there", "Succeeded").await?;
    let after = whereabouts(stage, NAMESPACE).await?;
    anyhow::ensure!(
        after.host != before.host && after.address != before.address,
        "it was {before:?} and is {after:?}"
    );
    answers(&after.address).await?;
    let still = on_console(
        stage,
        "cat /proc/sys/kernel/random/boot_id; cat /proc/1/stat",
    )
    .await?;
    anyhow::ensure!(
        still.lines().next() == boot.lines().next() && start(&still) == start(&boot),
        "it was started again"
    );
    let left = pod_phase(stage, NAMESPACE, &before.address).await?;
    anyhow::ensure!(left == "Succeeded", "the Pod that it left is {left}");
    // And back again: what moved once can move twice.
    migrate(stage, NAMESPACE, "back").await?;
    ends(stage, NAMESPACE, "back", "Succeeded").await?;
    answers(&whereabouts(stage, NAMESPACE).await?.address).await?;
    stage.kubectl(&["delete", "namespace", NAMESPACE]).await?;
    Ok(())
}

/// A move that fails, or is aborted, says so and leaves the VM running where it was.
pub async fn a_move_that_comes_to_nothing_changes_nothing(stage: &Stage) -> anyhow::Result<()> {
    let labels = json!({ PAPER_LABEL: "true" });
    make(stage, PAPER_NAMESPACE, labels, &json!({"blank": {}})).await?;
    let before = whereabouts(stage, PAPER_NAMESPACE).await?;
    let at = || Target::new(PAPER_NAMESPACE, VM);
    let reason = "no route to host".to_owned();
    let fault = MigrationFault::Fail(reason.clone());
    stage.fault(Fault::BreakMigration(at(), fault)).await?;
    migrate(stage, PAPER_NAMESPACE, "failing").await?;
    let failed = ends(stage, PAPER_NAMESPACE, "failing", "Failed").await?;
    let said = &failed["status"]["migrationState"]["failureReason"];
    anyhow::ensure!(*said == *reason, "the reason is {said}");
    stays(stage, &before).await?;

    let stall = Fault::BreakMigration(at(), MigrationFault::Stall);
    stage.fault(stall).await?;
    migrate(stage, PAPER_NAMESPACE, "stalled").await?;
    ends(stage, PAPER_NAMESPACE, "stalled", "Running").await?;
    let delete = [
        "-n",
        PAPER_NAMESPACE,
        "delete",
        "vmim",
        "stalled",
        "--timeout=30s",
    ];
    stage.kubectl(&delete).await?;
    stays(stage, &before).await?;

    stage.fault(Fault::MendMigration(at())).await?;
    migrate(stage, PAPER_NAMESPACE, "mended").await?;
    ends(stage, PAPER_NAMESPACE, "mended", "Succeeded").await?;
    let after = whereabouts(stage, PAPER_NAMESPACE).await?;
    anyhow::ensure!(after.host != before.host, "it is on {} still", after.host);
    let delete = ["delete", "namespace", PAPER_NAMESPACE];
    stage.kubectl(&delete).await.map(drop)
}

/// Where a VM runs.
#[derive(Debug)]
struct Whereabouts {
    host: String,
    address: String,
}

/// The node image as CDI wants it: a digest says all, and a tag beside it is refused.
fn image_url(stage: &Stage) -> anyhow::Result<String> {
    let image = stage.image()?;
    let (name, digest) = image.split_once('@').context("the image has no digest")?;
    let name = name.rsplit_once(':').map_or(name, |(name, _)| name);
    Ok(format!("docker://{name}@{digest}"))
}

async fn make(stage: &Stage, namespace: &str, labels: Value, source: &Value) -> anyhow::Result<()> {
    let answer = format!(
        "socat TCP-LISTEN:{PORT},fork,reuseaddr SYSTEM:'cat /proc/sys/kernel/random/boot_id'"
    );
    let user_data = format!(
        "#cloud-config\n{}\n",
        json!({"runcmd": [
            format!("systemd-run {answer}"),
        ]})
    );
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}},
        {
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": {"name": VM, "namespace": namespace},
            "spec": {
                "source": source,
                "storage": {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "10Gi"}},
                },
            },
        },
        {
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": VM, "namespace": namespace},
            "spec": {"runStrategy": "Always", "template": {"spec": template(&user_data)}},
        },
    ]});
    let arguments = ["apply", "-f", "-"];
    stage.kubectl_with(&arguments, &list.to_string()).await?;
    let ready = "the VM is ready and can be moved";
    until(ready, LIMIT, || async {
        let instance = get(stage, namespace, "vmi", VM).await?;
        let is = |kind: &str| {
            let conditions = instance["status"]["conditions"].as_array();
            let mut all = conditions.into_iter().flatten();
            all.any(|c| c["type"] == kind && c["status"] == "True")
        };
        Ok((is("Ready") && is("LiveMigratable")).then_some(()))
    })
    .await
}

fn template(user_data: &str) -> Value {
    json!({
        "terminationGracePeriodSeconds": 0,
        "domain": {
            "cpu": {"cores": 1},
            "memory": {"guest": "1Gi"},
            "firmware": {"uuid": "7f1d7a62-52f0-4f5e-9d0b-6c0d6a1d5a01", "serial": "moves"},
            "devices": {
                "disks": [
                    {"name": "root", "disk": {"bus": "virtio"}},
                    {"name": "seed", "disk": {"bus": "virtio"}},
                ],
                "interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": PORT}]}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "volumes": [
            {"name": "root", "dataVolume": {"name": VM}},
            {"name": "seed", "cloudInitNoCloud": {"userData": user_data}},
        ],
    })
}

async fn migrate(stage: &Stage, namespace: &str, name: &str) -> anyhow::Result<()> {
    let migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"vmiName": VM},
    });
    let arguments = ["create", "-f", "-"];
    stage
        .kubectl_with(&arguments, &migration.to_string())
        .await
        .map(drop)
}

/// Waits until the migration is in this phase, and returns it.
async fn ends(stage: &Stage, namespace: &str, name: &str, phase: &str) -> anyhow::Result<Value> {
    until(&format!("migration {name} is {phase}"), LIMIT, || async {
        let migration = get(stage, namespace, "vmim", name).await?;
        let present = migration["status"]["phase"].as_str().unwrap_or("new");
        anyhow::ensure!(present == phase, "it is {present}");
        Ok(Some(migration))
    })
    .await
}

/// The VM is where it was, and no Pod but its own runs.
async fn stays(stage: &Stage, before: &Whereabouts) -> anyhow::Result<()> {
    let what = "the VM stays where it was, alone";
    until(what, LIMIT, || async {
        let now = whereabouts(stage, PAPER_NAMESPACE).await?;
        anyhow::ensure!(
            now.host == before.host && now.address == before.address,
            "it was {before:?} and is {now:?}"
        );
        let pods = pods(stage, PAPER_NAMESPACE).await?;
        let alive = |pod: &&Value| {
            pod["status"]["phase"] == "Running" || pod["status"]["phase"] == "Pending"
        };
        Ok((pods.iter().filter(alive).count() == 1).then_some(()))
    })
    .await
}

async fn whereabouts(stage: &Stage, namespace: &str) -> anyhow::Result<Whereabouts> {
    let instance = get(stage, namespace, "vmi", VM).await?;
    let text = |path: &str| {
        let value = instance.pointer(path).and_then(Value::as_str);
        value.map(str::to_owned).context("the VM runs nowhere")
    };
    anyhow::ensure!(instance["status"]["phase"] == "Running", "it does not run");
    Ok(Whereabouts {
        host: text("/status/nodeName")?,
        address: text("/status/interfaces/0/ipAddress")?,
    })
}

/// Somebody takes a connection at the address.
async fn answers(address: &str) -> anyhow::Result<()> {
    until(&format!("{address} answers"), LIMIT, || async {
        let connect = TcpStream::connect((address, PORT));
        tokio::time::timeout(Duration::from_secs(2), connect).await??;
        Ok(Some(()))
    })
    .await
}

async fn pod_phase(stage: &Stage, namespace: &str, address: &str) -> anyhow::Result<String> {
    let pods = pods(stage, namespace).await?;
    let mut all = pods.iter();
    let pod = all.find(|pod| pod["status"]["podIP"] == address);
    let phase = pod.and_then(|pod| pod["status"]["phase"].as_str());
    Ok(phase.context("the Pod is gone")?.to_owned())
}

async fn pods(stage: &Stage, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let arguments = ["-n", namespace, "get", "pods", "-o", "json"];
    let list: Value = serde_json::from_str(&stage.kubectl(&arguments).await?)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

async fn get(stage: &Stage, namespace: &str, kind: &str, name: &str) -> anyhow::Result<Value> {
    let arguments = ["-n", namespace, "get", kind, name, "-o", "json"];
    Ok(serde_json::from_str(&stage.kubectl(&arguments).await?)?)
}

async fn on_console(stage: &Stage, command: &str) -> anyhow::Result<String> {
    let at = Target::new(NAMESPACE, VM);
    stage.on_console(at, &["sh", "-c", command]).await
}

/// When the machine's first process was started, out of its `stat`: the 22nd field.
fn start(text: &str) -> Option<&str> {
    text.lines().nth(1)?.split(' ').nth(21)
}
