//! KubevirtMachineTemplate: the planner's machine in CAPK's terms.

use guestcluster_api::labels::{self, Role};
use guestcluster_planner::wanted::Pool;
use guestcluster_planner::{Wanted, render};
use serde_json::{Map, Value, json};

use super::{metadata, template_name};
use crate::capi;

/// Group and kind.
pub(super) const KIND: (&str, &str) = (capi::INFRASTRUCTURE, "KubevirtMachineTemplate");

/// Any name of a machine: what is particular to one is taken out of the render.
const MACHINE: &str = "machine";
/// The volume that CAPK adds itself, under a name of its own.
const CLOUD_INIT: &str = "cloud-init";

pub(super) fn template(wanted: &Wanted, pool: &Pool, tenant: Option<&str>) -> Value {
    let mut labels = Map::new();
    labels.insert(labels::POOL.to_owned(), json!(pool.name));
    if let Some(tenant) = tenant {
        labels.insert(labels::TENANT.to_owned(), json!(tenant));
    }
    let vm = render::vm(wanted, pool, (MACHINE, None)).body;
    let spec = json!({ "template": { "spec": {
        // CAPK's other check logs in as a user that it adds to each machine; the image need not run an
        // SSH server, and a control plane's readiness probe says more.
        "virtualMachineBootstrapCheck": { "checkStrategy": "none" },
        "virtualMachineTemplate": {
            "metadata": { "labels": labels },
            "spec": {
                "runStrategy": vm["spec"]["runStrategy"],
                "dataVolumeTemplates": disks(wanted, pool),
                "template": { "spec": instance(wanted, pool, &vm["spec"]["template"]["spec"]) },
            },
        },
    }}});
    json!({
        "apiVersion": format!("{}/v1alpha1", KIND.0),
        "kind": KIND.1,
        "metadata": metadata(wanted, &template_name(wanted, pool, &spec)),
        "spec": spec,
    })
}

/// The instance as the planner renders it, without what belongs to one machine or to us.
fn instance(wanted: &Wanted, pool: &Pool, rendered: &Value) -> Value {
    let mut spec = rendered.clone();
    if let Some(domain) = spec["domain"].as_object_mut() {
        domain.remove("firmware");
    }
    for list in ["/volumes", "/domain/devices/disks"] {
        if let Some(Value::Array(entries)) = spec.pointer_mut(list) {
            entries.retain(|entry| entry["name"] != CLOUD_INIT);
        }
    }
    for volume in spec["volumes"].as_array_mut().into_iter().flatten() {
        // CAPK puts the machine's name in front of it, here and in the template of the disk.
        let name = volume["name"].clone();
        volume["dataVolume"] = json!({ "name": name });
    }
    let selector = json!({ "matchLabels": selector(wanted, pool) });
    for term in spec["topologySpreadConstraints"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        term["labelSelector"] = selector.clone();
    }
    let required = "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = spec.pointer_mut(required).and_then(Value::as_array_mut);
    for term in terms.into_iter().flatten() {
        term["labelSelector"] = selector.clone();
    }
    spec
}

/// Labels by which a pool's Pods are told from all others: CAPK's own, and the pool.
fn selector(wanted: &Wanted, pool: &Pool) -> Value {
    let mut selector = json!({
        capi::CLUSTER_NAME: wanted.identity.name,
        capi::ROLE: pool.role.as_str(),
    });
    if pool.role == Role::Worker {
        selector[labels::POOL] = json!(pool.name);
    }
    selector
}

/// Disks come with the VM: CAPK knows no other way.
fn disks(wanted: &Wanted, pool: &Pool) -> Vec<Value> {
    let disk = |name: &str, spec: &Value, source: Value| {
        let mut spec = spec.clone();
        spec["source"] = source;
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let root = render::root_disk(wanted, pool, MACHINE).body;
    let mut disks = vec![disk("root", &root["spec"], image(wanted))];
    if let Some(etcd) = render::etcd_disk(wanted, pool, MACHINE) {
        let source = etcd.body["spec"]["source"].clone();
        disks.push(disk("etcd", &etcd.body["spec"], source));
    }
    disks
}

/// Where a root disk comes from. CAPK v0.11 knows no checksum.
fn image(wanted: &Wanted) -> Value {
    if let Some(claim) = &wanted.image.pvc {
        return json!({ "pvc": { "namespace": wanted.identity.namespace, "name": claim.name } });
    }
    let mut source = render::golden(wanted).body["spec"]["source"].clone();
    if let Some(http) = source["http"].as_object_mut() {
        http.remove("checksum");
    }
    source
}
