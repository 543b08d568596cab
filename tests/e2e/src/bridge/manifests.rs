//! The objects that a user of Cluster API writes for a guest.

use guestcluster_api::GuestCluster;
use guestcluster_planner::wanted::Settings;
use guestcluster_planner::{Wanted, render};
use serde_json::{Value, json};

/// Pods and Services of the guest: beside those of the infrastructure, as its network is routed through that.
const PODS: &str = "10.243.0.0/16";
const SERVICES: &str = "10.95.0.0/16";
/// The address of the guest's API among its Services.
const API: (&str, u16) = ("10.95.0.1", 443);

const CORE: &str = "cluster.x-k8s.io";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io";
const MACHINES: &str = "infrastructure.cluster.x-k8s.io";

/// What a guest is made of.
pub(super) struct Template<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Kubernetes' version, with its v.
    pub(super) version: &'a str,
    /// The URL that its disks are imported from.
    pub(super) image: &'a str,
    /// Whether its control planes are kept apart, and out of the endpoint while they boot, by what its user
    /// writes.
    pub(super) is_careful: bool,
}

impl Template<'_> {
    /// Everything, with one control-plane machine and no worker.
    pub(super) fn objects(&self) -> anyhow::Result<Vec<Value>> {
        Ok(vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}),
            self.pod_network()?,
            self.pod_network_set(),
            self.machines(self.name, &self.of_control_plane()),
            self.machines(&self.workers(), &json!({})),
            self.joining(),
            self.infrastructure(),
            self.control_plane(),
            self.cluster(),
            self.worker_deployment(),
            self.health_check(),
        ])
    }

    /// The templates from which machines of this version are made, and how control plane and workers are
    /// told to use them.
    pub(super) fn upgrade(&self, suffix: &str) -> (Vec<Value>, [(String, Value); 2]) {
        let (control_plane, workers) = (
            format!("{}-{suffix}", self.name),
            format!("{}-{suffix}", self.workers()),
        );
        let templates = vec![
            self.machines(&control_plane, &self.of_control_plane()),
            self.machines(&workers, &json!({})),
        ];
        let reference = |name: &str| json!({ "name": name });
        let machines = json!({ "spec": { "infrastructureRef": reference(&control_plane) } });
        let first = json!({ "spec": { "version": self.version, "machineTemplate": machines } });
        let spec = json!({ "version": self.version, "infrastructureRef": reference(&workers) });
        let then = json!({ "spec": { "template": { "spec": spec } } });
        let patches = [
            (format!("kubeadmcontrolplane/{}", self.name), first),
            (format!("machinedeployment/{}", self.workers()), then),
        ];
        (templates, patches)
    }

    /// What a provider says of a machine has it replaced soon, and nothing else does within the time of
    /// a scenario: Cluster API has stopped to take a machine's `failureReason` for that by itself.
    fn health_check(&self) -> Value {
        let conditions = ["Unknown", "False"]
            .map(|status| json!({"type": "Ready", "status": status, "timeoutSeconds": 900}));
        let spec = json!({
            "clusterName": self.name,
            "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": self.name}},
            "checks": {
                "nodeStartupTimeoutSeconds": 900,
                "unhealthyNodeConditions": conditions,
                "unhealthyMachineConditions": [
                    {"type": "InfrastructureReady", "status": "False", "timeoutSeconds": 90},
                ],
            },
        });
        self.object((CORE, "v1beta2"), "MachineHealthCheck", self.name, &spec)
    }

    /// The name of the workers' objects.
    pub(super) fn workers(&self) -> String {
        format!("{}-workers", self.name)
    }

    fn object(
        &self,
        (group, version): (&str, &str),
        kind: &str,
        name: &str,
        spec: &Value,
    ) -> Value {
        json!({
            "apiVersion": format!("{group}/{version}"), "kind": kind,
            "metadata": {"namespace": self.namespace, "name": name},
            "spec": spec,
        })
    }

    fn cluster(&self) -> Value {
        let spec = json!({
            "clusterNetwork": {
                "pods": {"cidrBlocks": [PODS]},
                "services": {"cidrBlocks": [SERVICES]},
                "serviceDomain": "cluster.local",
            },
            "infrastructureRef":
                {"apiGroup": MACHINES, "kind": "KubevirtCluster", "name": self.name},
            "controlPlaneRef":
                {"apiGroup": CONTROL_PLANE, "kind": "KubeadmControlPlane", "name": self.name},
        });
        let mut cluster = self.object((CORE, "v1beta2"), "Cluster", self.name, &spec);
        cluster["metadata"]["labels"] = json!({"pod-network": self.name});
        cluster
    }

    fn infrastructure(&self) -> Value {
        let spec = json!({"controlPlaneServiceTemplate": {"spec": {"type": "LoadBalancer"}}});
        self.object((MACHINES, "v1alpha1"), "KubevirtCluster", self.name, &spec)
    }

    fn control_plane(&self) -> Value {
        let reference =
            json!({"apiGroup": MACHINES, "kind": "KubevirtMachineTemplate", "name": self.name});
        let spec = json!({
            "replicas": 1,
            "version": self.version,
            "machineTemplate": {"spec": {"infrastructureRef": reference}},
            "kubeadmConfigSpec": {
                "initConfiguration": node_registration(),
                "joinConfiguration": node_registration(),
            },
        });
        self.object(
            (CONTROL_PLANE, "v1beta2"),
            "KubeadmControlPlane",
            self.name,
            &spec,
        )
    }

    fn joining(&self) -> Value {
        let spec = json!({"template": {"spec": {"joinConfiguration": node_registration()}}});
        let name = self.workers();
        self.object(
            (BOOTSTRAP, "v1beta2"),
            "KubeadmConfigTemplate",
            &name,
            &spec,
        )
    }

    fn worker_deployment(&self) -> Value {
        let name = self.workers();
        let configuration =
            json!({"apiGroup": BOOTSTRAP, "kind": "KubeadmConfigTemplate", "name": name});
        let machines =
            json!({"apiGroup": MACHINES, "kind": "KubevirtMachineTemplate", "name": name});
        let spec = json!({
            "clusterName": self.name,
            "replicas": 0,
            "selector": {"matchLabels": {}},
            "template": {"spec": {
                "clusterName": self.name,
                "version": self.version,
                "bootstrap": {"configRef": configuration},
                "infrastructureRef": machines,
            }},
        });
        self.object((CORE, "v1beta2"), "MachineDeployment", &name, &spec)
    }

    /// Control-plane machines stand on hosts of their own, as those of native guests do, and are ready once their
    /// API server is: the Service for it asks nothing else, and a connection to a machine that is still joining,
    /// refused at the wrong moment, ends kubeadm's join for good.
    fn of_control_plane(&self) -> Value {
        if !self.is_careful {
            return json!({});
        }
        let labels = json!({
            "cluster.x-k8s.io/cluster-name": self.name,
            "cluster.x-k8s.io/role": "control-plane",
        });
        json!({
            "affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": labels},
                }],
            }},
            "readinessProbe": {
                "httpGet": {"path": "/readyz", "port": 6443, "scheme": "HTTPS"},
                "periodSeconds": 2,
                "timeoutSeconds": 2,
                "failureThreshold": 2,
            },
        })
    }

    fn machines(&self, name: &str, placement: &Value) -> Value {
        let disk = json!({
            "metadata": {"name": "root"},
            "spec": {
                "source": {"registry": {"url": self.image}},
                "storage": {"resources": {"requests": {"storage": "20Gi"}}},
            },
        });
        let mut machine = json!({
            "domain": {
                "cpu": {"cores": 2},
                "memory": {"guest": "4Gi"},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "bridge": {}}],
                },
            },
            "evictionStrategy": "External",
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "dataVolume": {"name": "root"}}],
        });
        crate::cluster::merge(&mut machine, placement);
        let spec = json!({"template": {"spec": {
            // Nobody logs in to see whether a machine has booted.
            "virtualMachineBootstrapCheck": {"checkStrategy": "none"},
            "virtualMachineTemplate": {
                "metadata": {"namespace": self.namespace},
                "spec": {
                    "runStrategy": "Always",
                    "dataVolumeTemplates": [disk],
                    "template": {"spec": machine},
                },
            },
        }}});
        self.object(
            (MACHINES, "v1alpha1"),
            "KubevirtMachineTemplate",
            name,
            &spec,
        )
    }

    /// The pod network of native guests, for Cluster API to apply.
    fn pod_network(&self) -> anyhow::Result<Value> {
        let cluster: GuestCluster = serde_json::from_value(json!({
            "apiVersion": "guestcluster.dev/v1alpha1", "kind": "GuestCluster",
            "metadata": {"namespace": self.namespace, "name": self.name, "uid": "peer"},
            "spec": {
                "version": self.version,
                "image": {"registry": self.image.trim_start_matches("docker://")},
                "network": {"podCIDR": PODS, "serviceCIDR": SERVICES},
            },
        }))?;
        let wanted = Wanted::parse(&cluster, &Settings::default())
            .map_err(|errors| anyhow::anyhow!("{}", errors.0.join("; ")))?;
        // One document each: a List is not understood.
        let objects: Vec<_> = render::flannel(&wanted, API)
            .iter()
            .map(Value::to_string)
            .collect();
        Ok(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": self.namespace, "name": "pod-network"},
            "data": {"objects": objects.join("\n---\n")},
        }))
    }

    fn pod_network_set(&self) -> Value {
        let spec = json!({
            "clusterSelector": {"matchLabels": {"pod-network": self.name}},
            "resources": [{"kind": "ConfigMap", "name": "pod-network"}],
        });
        self.object(
            ("addons.cluster.x-k8s.io", "v1beta2"),
            "ClusterResourceSet",
            "pod-network",
            &spec,
        )
    }
}

fn node_registration() -> Value {
    json!({"nodeRegistration": {"criSocket": "unix:///run/containerd/containerd.sock"}})
}
