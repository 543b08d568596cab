//! Every field of a specification, and another value for each.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Another value for each field of the full specification, and for both images besides.
#[allow(clippy::too_many_lines, reason = "a table")]
pub fn others() -> BTreeMap<&'static str, Value> {
    let disk = |base: &'static [&'static str; 3]| {
        [
            (base[0], json!("31Gi")),
            (base[1], json!("slow")),
            (base[2], json!("ReadWriteMany")),
        ]
    };
    let mut others = BTreeMap::from([
        ("/tenant", json!("other")),
        ("/version", json!("v1.37.0")),
        ("/image/registry", json!("r.example/g/n:v2")),
        ("/topology", json!("Converged")),
        ("/profile", json!("Lab")),
        ("/controlPlane/replicas", json!(5)),
        ("/controlPlane/machine/cpu", json!(9)),
        ("/controlPlane/machine/memory", json!("17Gi")),
        ("/controlPlane/machine/hugepages", json!("2Mi")),
        ("/controlPlane/machine/numa", Value::Null),
        ("/controlPlane/machine/isolateEmulatorThread", json!(false)),
        ("/controlPlane/machine/priorityClassName", json!("other")),
        (
            "/controlPlane/placement/nodeSelector",
            json!({ "example.com/rack": "b" }),
        ),
        (
            "/controlPlane/placement/tolerations",
            json!([{ "operator": "Exists" }]),
        ),
        ("/controlPlane/endpoint/type", json!("NodePort")),
        ("/controlPlane/endpoint/host", json!("b.example.com")),
        ("/controlPlane/endpoint/port", json!(443)),
        ("/controlPlane/endpoint/certSANs", json!(["c.example.com"])),
        (
            "/controlPlane/endpoint/annotations",
            json!({ "lb.example.com/pool": "private" }),
        ),
        (
            "/controlPlane/endpoint/loadBalancerClass",
            json!("example.com/other"),
        ),
        (
            "/controlPlane/endpoint/sourceRanges",
            json!(["203.0.114.0/24"]),
        ),
        ("/controlPlane/certificateValidityPeriod", json!("721h")),
        (
            "/controlPlane/apiServer/extraArgs",
            json!({ "audit-log-maxage": "8" }),
        ),
        (
            "/controlPlane/controllerManager/extraArgs",
            json!({ "v": "3" }),
        ),
        ("/controlPlane/scheduler/extraArgs", json!({ "v": "3" })),
        (
            "/controlPlane/etcd/extraArgs",
            json!({ "quota-backend-bytes": "1" }),
        ),
        ("/controlPlane/drainTimeoutSeconds", json!(601)),
        ("/workers/0/name", json!("special")),
        ("/workers/0/replicas", json!(5)),
        ("/workers/0/machine/cpu", json!(9)),
        ("/workers/0/machine/memory", json!("17Gi")),
        ("/workers/0/machine/hugepages", json!("2Mi")),
        ("/workers/0/machine/numa", Value::Null),
        ("/workers/0/machine/isolateEmulatorThread", json!(false)),
        ("/workers/0/machine/priorityClassName", json!("other")),
        ("/workers/0/devices/0/deviceName", json!("nvidia.com/A100")),
        ("/workers/0/devices/0/kind", json!("HostDevice")),
        ("/workers/0/devices/0/count", json!(3)),
        ("/workers/0/maxPerHost", json!(3)),
        ("/workers/0/labels", json!({ "kubernetes.io/odd": "2" })),
        ("/workers/0/taints/0/key", json!("example.com/u")),
        ("/workers/0/taints/0/value", json!("y")),
        ("/workers/0/taints/0/effect", json!("NoExecute")),
        (
            "/workers/0/placement/nodeSelector",
            json!({ "example.com/rack": "b" }),
        ),
        (
            "/workers/0/placement/tolerations",
            json!([{ "operator": "Exists" }]),
        ),
        ("/workers/0/rollout/maxSurge", json!(3)),
        ("/workers/0/rollout/maxUnavailable", json!(2)),
        ("/workers/0/drainTimeoutSeconds", json!(301)),
        ("/network/podCIDR", json!("10.220.0.0/16")),
        ("/network/serviceCIDR", json!("10.221.0.0/16")),
        ("/network/dnsDomain", json!("other.local")),
        ("/network/machine/binding", json!("Bridge")),
        ("/addons/cni", json!("None")),
        ("/deletion/protected", json!(false)),
        ("/deletion/disks", json!("Delete")),
        ("/capacityPolicy", json!("Ignore")),
        ("/capacityScope", json!("Host")),
        ("/repair/coLocation", json!("Move")),
        ("/maintenance/migration/bandwidthPerMigration", json!("2Gi")),
        ("/paused", json!(false)),
    ]);
    for base in [
        &[
            "/controlPlane/machine/rootDisk/size",
            "/controlPlane/machine/rootDisk/storageClassName",
            "/controlPlane/machine/rootDisk/accessMode",
        ],
        &[
            "/controlPlane/machine/etcdDisk/size",
            "/controlPlane/machine/etcdDisk/storageClassName",
            "/controlPlane/machine/etcdDisk/accessMode",
        ],
        &[
            "/workers/0/machine/rootDisk/size",
            "/workers/0/machine/rootDisk/storageClassName",
            "/workers/0/machine/rootDisk/accessMode",
        ],
    ] {
        others.extend(disk(base));
    }
    others
}

/// Paths of all fields that the schema knows.
pub fn fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    if let Some(fields_of) = schema["properties"].as_object() {
        for (name, schema) in fields_of {
            fields(schema, &format!("{path}/{name}"), found);
        }
    } else if schema["items"]["properties"].is_object() && !path.ends_with("tolerations") {
        fields(&schema["items"], &format!("{path}/0"), found);
    } else {
        found.insert(path.to_owned());
    }
}
