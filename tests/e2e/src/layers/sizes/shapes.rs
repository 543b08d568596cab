//! Machines of many shapes, rendered by the operator's own code, each with what is counted for it.

use anyhow::Context as _;
use guestcluster_capacity::{Launcher, Quantity, Requests};
use guestcluster_planner::render;
use serde_json::{Value, json};

use crate::layers::admission::wanted;

/// A device that hosts could offer.
pub const GPU: &str = "example.com/TU104GL";

/// A machine that never starts.
pub struct Shape {
    /// Its name, which says what is particular.
    pub name: String,
    /// The VirtualMachineInstance.
    pub document: Value,
    /// What is counted for its launcher Pod.
    pub requests: Requests,
}

/// All of them; those with devices of the host only where these are permitted.
pub fn all(devices: bool) -> anyhow::Result<Vec<Shape>> {
    let mut shapes = sizes()?;
    shapes.extend(kinds()?);
    shapes.extend(beyond_the_operator()?);
    if devices {
        shapes.extend(with_devices()?);
    }
    Ok(shapes)
}

/// Plain machines: page tables and vCPUs make the overhead grow in steps that show.
fn sizes() -> anyhow::Result<Vec<Shape>> {
    [
        ("least", 1, "1Gi"),
        ("small", 2, "4Gi"),
        ("decimal", 2, "2500M"),
        ("uneven", 3, "10000001Ki"),
        ("default", 4, "8Gi"),
        ("large", 16, "64Gi"),
        ("largest", 255, "4Ti"),
    ]
    .map(|(name, cpu, memory)| worker(name, &json!({ "cpu": cpu, "memory": memory }), &json!({})))
    .into_iter()
    .collect()
}

/// All else that a specification can say of a machine and that changes its Pod, or might.
fn kinds() -> anyhow::Result<Vec<Shape>> {
    let size = |more: &Value| {
        let mut machine = json!({ "cpu": 4, "memory": "8Gi" });
        json_patch::merge(&mut machine, more);
        machine
    };
    let masquerade = json!({ "network": { "machine": { "binding": "Masquerade" } } });
    Ok(vec![
        worker(
            "isolated",
            &size(&json!({ "isolateEmulatorThread": true })),
            &json!({}),
        )?,
        worker(
            "pages-2mi",
            &size(&json!({ "hugepages": "2Mi" })),
            &json!({}),
        )?,
        worker(
            "pages-1gi",
            &size(&json!({ "hugepages": "1Gi" })),
            &json!({}),
        )?,
        worker(
            "numa",
            &size(&json!({ "hugepages": "2Mi", "numa": "Passthrough" })),
            &json!({}),
        )?,
        worker("masquerade", &size(&json!({})), &masquerade)?,
        of_pool(
            "control-plane",
            "cp",
            &json!({ "controlPlane": { "machine": size(&json!({})) } }),
        )?,
    ])
}

fn worker(name: &str, machine: &Value, spec: &Value) -> anyhow::Result<Shape> {
    let mut whole = json!({
        "workers": [{ "name": "general", "replicas": 1, "machine": machine }],
    });
    json_patch::merge(&mut whole, spec);
    of_pool(name, "general", &whole)
}

fn of_pool(name: &str, pool: &str, spec: &Value) -> anyhow::Result<Shape> {
    let wanted = wanted(spec)?;
    let pool = wanted.pool(pool).context("no such pool")?;
    let machine = render::vm(&wanted, pool, (name, None)).body;
    Ok(Shape {
        name: name.to_owned(),
        document: instance(name, &machine["spec"]["template"]["spec"]),
        requests: pool.requests(),
    })
}

/// An instance that finds no host, with no disk that would have to be there first.
fn instance(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    let nowhere = json!({
        "nodeSelector": { "example.com/nowhere": "true" },
        "domain": { "devices": { "disks": [{ "name": "init", "disk": { "bus": "virtio" } }] } },
        "volumes": [{ "name": "init", "cloudInitNoCloud": { "userData": "#cloud-config\n" } }],
    });
    json_patch::merge(&mut spec, &nowhere);
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": name }, "spec": spec,
    })
}

/// What the model knows of and the operator does not ask for.
fn beyond_the_operator() -> anyhow::Result<Vec<Shape>> {
    let silent = json!({ "domain": { "devices": { "logSerialConsole": false } } });
    let threads = json!({ "domain": { "cpu": { "cores": 2, "threads": 2 } } });
    let console = |console_log| Launcher {
        console_log,
        ..plain()
    };
    Ok(vec![
        changed("no-console-log", &silent, &console(false))?,
        changed("threads", &threads, &console(true))?,
    ])
}

fn with_devices() -> anyhow::Result<Vec<Shape>> {
    let gpu = |number: u64| {
        let gpus = (0..number).map(|at| json!({ "name": format!("gpu{at}"), "deviceName": GPU }));
        let gpus = gpus.collect::<Vec<_>>();
        let launcher = Launcher {
            devices: Requests::new().with(GPU, Quantity::units(number)),
            ..plain()
        };
        let patch = json!({ "domain": { "devices": { "gpus": gpus } } });
        changed(&format!("gpus-{number}"), &patch, &launcher)
    };
    Ok(vec![gpu(1)?, gpu(2)?])
}

fn plain() -> Launcher {
    Launcher::new(4, Quantity::units(8 << 30))
}

fn changed(name: &str, patch: &Value, launcher: &Launcher) -> anyhow::Result<Shape> {
    let mut shape = worker(name, &json!({ "cpu": 4, "memory": "8Gi" }), &json!({}))?;
    json_patch::merge(&mut shape.document["spec"], patch);
    shape.requests = launcher.requests();
    Ok(shape)
}
