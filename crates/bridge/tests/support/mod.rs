//! Specifications that together fill every field.

use guestcluster_api::{GuestCluster, GuestClusterSpec};
use serde_json::{Value, json};

/// A cluster of that specification, in namespace `tenant-a`.
pub fn cluster(spec: &Value) -> GuestCluster {
    let spec: GuestClusterSpec = serde_json::from_value(spec.clone()).unwrap();
    let mut cluster = GuestCluster::new("prod", spec);
    cluster.metadata.namespace = Some("tenant-a".to_owned());
    cluster
}

/// Every field but the sources of images besides a registry.
pub fn full() -> Value {
    json!({
        "tenant": "acme",
        "version": "v1.36.3",
        "image": { "registry": format!("r.example.com:5000/guest/node:v1@sha256:{}", "ab".repeat(32)) },
        "topology": "Dedicated",
        "profile": "Production",
        "controlPlane": {
            "replicas": 3,
            "machine": machine(true),
            "placement": placement(),
            "endpoint": {
                "type": "LoadBalancer", "host": "api.example.com", "port": 6443,
                "certSANs": ["b.example.com", "203.0.113.9"],
                "annotations": { "lb.example.com/pool": "public" },
                "loadBalancerClass": "example.com/lb",
                "sourceRanges": ["203.0.113.0/24"],
            },
            "certificateValidityPeriod": "720h",
            "apiServer": { "extraArgs": { "audit-log-maxage": "7" } },
            "controllerManager": { "extraArgs": { "terminated-pod-gc-threshold": "100" } },
            "scheduler": { "extraArgs": { "v": "2" } },
            "etcd": { "extraArgs": { "quota-backend-bytes": "4294967296" } },
            "drainTimeoutSeconds": 600,
        },
        "workers": [pool("general"), { "name": "batch", "replicas": 0 }],
        "network": {
            "podCIDR": "10.210.0.0/16", "serviceCIDR": "10.211.0.0/16", "dnsDomain": "prod.local",
            "machine": { "binding": "Masquerade" },
        },
        "addons": { "cni": "Flannel" },
        "deletion": { "protected": true, "disks": "Retain" },
        "capacityPolicy": "Enforce",
        "capacityScope": "Zone",
        "repair": { "coLocation": "Report" },
        "maintenance": { "migration": { "bandwidthPerMigration": "1Gi" } },
        "paused": true,
    })
}

fn pool(name: &str) -> Value {
    json!({
        "name": name, "replicas": 4, "machine": machine(false),
        "devices": [
            { "deviceName": "nvidia.com/A10", "kind": "GPU", "count": 2 },
            { "deviceName": "example.com/nic", "kind": "HostDevice", "count": 1 },
        ],
        "maxPerHost": 2,
        "labels": {
            "example.com/pool": "general", "node-role.kubernetes.io/worker": "",
            "kubernetes.io/odd": "1",
        },
        "taints": [{ "key": "example.com/t", "value": "x", "effect": "NoSchedule" }],
        "placement": placement(),
        "rollout": { "maxSurge": 2, "maxUnavailable": 1 },
        "drainTimeoutSeconds": 300,
    })
}

fn machine(etcd: bool) -> Value {
    let disk = json!({ "size": "30Gi", "storageClassName": "fast", "accessMode": "ReadWriteOnce" });
    let mut machine = json!({
        "cpu": 8, "memory": "16Gi", "rootDisk": disk, "hugepages": "1Gi", "numa": "Passthrough",
        "isolateEmulatorThread": true, "priorityClassName": "guests",
    });
    if etcd {
        machine["etcdDisk"] = disk;
    }
    machine
}

fn placement() -> Value {
    json!({
        "nodeSelector": { "example.com/rack": "a" },
        "tolerations": [
            { "key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule" },
        ],
    })
}

/// Edge by edge: each specification is `full` with these values at these paths; null removes.
#[allow(clippy::too_many_lines, reason = "a table")]
pub fn variants() -> Vec<(&'static str, Value)> {
    let edits: &[(&str, &[(&str, Value)])] = &[
        ("full", &[]),
        (
            "image pvc",
            &[("/image", json!({ "pvc": { "name": "golden" } }))],
        ),
        (
            "image http",
            &[("/image", http("https://e.example/i.qcow2"))],
        ),
        (
            "image tag",
            &[("/image", json!({ "registry": "r.example/g/n:v1" }))],
        ),
        (
            "converged",
            &[("/topology", json!("Converged")), ("/workers", json!([]))],
        ),
        (
            "lab",
            &[
                ("/profile", json!("Lab")),
                ("/controlPlane/replicas", json!(1)),
            ],
        ),
        ("single", &[("/controlPlane/replicas", json!(1))]),
        ("five", &[("/controlPlane/replicas", json!(5))]),
        ("bridge", &[("/network/machine/binding", json!("Bridge"))]),
        (
            "cluster ip",
            &[("/controlPlane/endpoint", json!({ "type": "ClusterIP" }))],
        ),
        (
            "cluster ip by name",
            &[(
                "/controlPlane/endpoint",
                json!({ "type": "ClusterIP", "host": "a.b" }),
            )],
        ),
        (
            "node port",
            &[(
                "/controlPlane/endpoint",
                json!({ "type": "NodePort", "host": "1.2.3.4", "port": 31_000 }),
            )],
        ),
        (
            "node port to come",
            &[(
                "/controlPlane/endpoint",
                json!({ "type": "NodePort", "host": "1.2.3.4" }),
            )],
        ),
        (
            "external",
            &[(
                "/controlPlane/endpoint",
                json!({ "type": "External", "host": "a.b", "port": 443 }),
            )],
        ),
        (
            "load balancer",
            &[(
                "/controlPlane/endpoint",
                json!({ "type": "LoadBalancer", "port": 443 }),
            )],
        ),
        (
            "minutes",
            &[("/controlPlane/certificateValidityPeriod", json!("525600m"))],
        ),
        (
            "an hour",
            &[("/controlPlane/certificateValidityPeriod", json!("1h"))],
        ),
        (
            "ten years",
            &[("/controlPlane/certificateValidityPeriod", json!("87600h"))],
        ),
        (
            "mixed devices",
            &[(
                "/workers/0/devices",
                json!([
                    { "deviceName": "example.com/nic", "kind": "HostDevice" },
                    { "deviceName": "nvidia.com/A10" },
                ]),
            )],
        ),
        (
            "no surge",
            &[(
                "/workers/0/rollout",
                json!({ "maxSurge": 0, "maxUnavailable": 500 }),
            )],
        ),
        (
            "many pools",
            &[(
                "/workers",
                (0..50)
                    .map(|n| json!({ "name": format!("p{n}"), "replicas": n }))
                    .collect(),
            )],
        ),
        ("no cni", &[("/addons/cni", json!("None"))]),
        (
            "gibberish arguments",
            &[(
                "/controlPlane/apiServer/extraArgs",
                json!({ "empty": "", "with=equals,and commas": "a=b,c" }),
            )],
        ),
    ];
    let mut variants: Vec<_> = edits
        .iter()
        .map(|(name, edits)| {
            let mut spec = full();
            for (path, value) in *edits {
                *spec.pointer_mut(path).unwrap() = value.clone();
            }
            (*name, spec)
        })
        .collect();
    let least = json!({ "version": "v1.34.0", "image": { "registry": "r.example/g/n:v1" } });
    variants.push(("least", least));
    variants
}

fn http(url: &str) -> Value {
    json!({ "http": { "url": url, "checksum": format!("sha256:{}", "cd".repeat(32)) } })
}
