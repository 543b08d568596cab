//! One change of a Cluster at rest for each thing that there is to say.

use guestcluster_bridge::adopt::{Kind, Reason, Secret, Seen};
use guestcluster_planner::observed::Probe;
use serde_json::{Value, json};

use crate::world::{all, first, guest_of};

/// A change of what was seen.
pub type Edit = fn(&mut Seen);

/// What one edit of a Cluster at rest brings about.
#[allow(clippy::too_many_lines, reason = "a table")]
pub fn edits() -> Vec<(Reason, Edit)> {
    vec![
        (Reason::NotRead, |seen| {
            let refused = Probe::Unreachable("you may not read them".to_owned());
            seen.objects.insert(Kind::MachinePool, refused);
        }),
        (Reason::NotRead, |seen| seen.secrets = Probe::NotAsked),
        (Reason::ClusterClass, |seen| {
            first(seen, Kind::Cluster)["spec"]["topology"] = json!({ "version": "v1.36.3" });
        }),
        (Reason::ExternalEtcd, |seen| {
            let etcd = json!({ "external": { "endpoints": ["https://192.0.2.1:2379"] } });
            first(seen, Kind::KubeadmControlPlane)["spec"]["kubeadmConfigSpec"] =
                json!({ "clusterConfiguration": { "etcd": etcd } });
        }),
        (Reason::BootFormat, |seen| {
            first(seen, Kind::KubeadmControlPlane)["spec"]["kubeadmConfigSpec"] =
                json!({ "format": "ignition" });
        }),
        (Reason::BootstrapProvider, |seen| {
            all(seen, Kind::Machine)[1]["spec"]["bootstrap"]["configRef"]["kind"] =
                json!("TalosConfig");
        }),
        (Reason::InfrastructureProvider, |seen| {
            first(seen, Kind::MachineDeployment)["spec"]["template"]["spec"]["infrastructureRef"]
                ["kind"] = json!("KubevirtMachine");
            all(seen, Kind::Machine)[1]["spec"]["infrastructureRef"]["kind"] =
                json!("DockerMachine");
        }),
        (Reason::OtherInfrastructure, |seen| {
            first(seen, Kind::KubevirtMachine)["spec"]["infraClusterSecretRef"] =
                json!({ "name": "elsewhere", "namespace": "x" });
        }),
        (Reason::ManagedElsewhere, |seen| {
            annotate(
                first(seen, Kind::KubevirtCluster),
                "cluster.x-k8s.io/managed-by",
            );
        }),
        (Reason::OtherNamespace, |seen| {
            first(seen, Kind::KubevirtMachine)["spec"]["virtualMachineTemplate"]["metadata"]["namespace"] =
                json!("vms");
        }),
        (Reason::MachinePool, |seen| {
            let pool = json!({
                "kind": "MachinePool", "metadata": { "name": "p" }, "spec": { "clusterName": "prod" },
            });
            all(seen, Kind::MachinePool).push(pool);
        }),
        (Reason::Paused, |seen| {
            first(seen, Kind::Cluster)["spec"]["paused"] = json!(true);
        }),
        (Reason::Paused, |seen| {
            annotate(
                first(seen, Kind::KubevirtCluster),
                "cluster.x-k8s.io/paused",
            );
        }),
        (Reason::Deleting, |seen| {
            first(seen, Kind::MachineSet)["metadata"]["deletionTimestamp"] = json!("2026-01-01");
        }),
        (Reason::Rollout, |seen| {
            first(seen, Kind::KubeadmControlPlane)["metadata"]["generation"] = json!(3);
        }),
        (Reason::Rollout, |seen| {
            first(seen, Kind::MachineDeployment)["spec"]["replicas"] = json!(3);
        }),
        (Reason::Rollout, |seen| {
            first(seen, Kind::MachineDeployment)["status"]["upToDateReplicas"] = json!(0);
        }),
        (Reason::Rollout, |seen| {
            first(seen, Kind::MachineDeployment)["status"]["conditions"] =
                json!([{ "type": "RollingOut", "status": "True" }]);
        }),
        (Reason::Rollout, |seen| {
            let mut old = first(seen, Kind::MachineSet).clone();
            old["metadata"]["name"] = json!("prod-w-old");
            all(seen, Kind::MachineSet).push(old);
        }),
        (Reason::Rollout, |seen| {
            annotate(
                first(seen, Kind::Machine),
                "cluster.x-k8s.io/delete-machine",
            );
        }),
        (Reason::Remediation, |seen| {
            let object = first(seen, Kind::KubeadmControlPlane);
            annotate(
                object,
                "controlplane.cluster.x-k8s.io/remediation-in-progress",
            );
        }),
        (Reason::Remediation, |seen| {
            first(seen, Kind::Machine)["status"]["conditions"] =
                json!([{ "type": "HealthCheckSucceeded", "status": "False" }]);
        }),
        (Reason::NotRunning, |seen| {
            first(seen, Kind::Machine)["status"]["phase"] = json!("Provisioned");
        }),
        (Reason::NoMachine, |seen| {
            all(seen, Kind::VirtualMachine).remove(1);
        }),
        (Reason::NoMachine, |seen| {
            first(seen, Kind::VirtualMachine)["metadata"]["labels"]["capk.cluster.x-k8s.io/kubevirt-machine-namespace"] =
                json!("tenant-b");
        }),
        (Reason::NoMachine, |seen| {
            first(seen, Kind::KubevirtMachine)["status"] =
                json!({ "failureReason": "UpdateError" });
        }),
        (Reason::NotReady, |seen| {
            all(seen, Kind::VirtualMachineInstance).remove(1);
        }),
        (Reason::NotReady, |seen| {
            first(seen, Kind::VirtualMachineInstance)["status"]["conditions"] = json!([]);
        }),
        (Reason::NotReady, |seen| {
            guest_of(seen).nodes.get_mut("prod-w-def").unwrap().ready = false;
        }),
        (Reason::Leaving, |seen| {
            first(seen, Kind::VirtualMachineInstance)["status"]["evacuationNodeName"] =
                json!("host-0");
        }),
        (Reason::Leaving, |seen| {
            first(seen, Kind::VirtualMachineInstance)["status"]["migrationState"] =
                json!({ "targetNode": "host-2" });
        }),
        (Reason::GivenUp, |seen| {
            first(seen, Kind::VirtualMachine)["metadata"]["labels"]["capk.cluster.x-k8s.io/vm-is-terminal"] =
                json!("disk-broken");
        }),
        (Reason::StrayMachine, |seen| {
            let mut stray = first(seen, Kind::VirtualMachine).clone();
            stray["metadata"]["name"] = json!("prod-left");
            all(seen, Kind::VirtualMachine).push(stray);
        }),
        (Reason::NodeDiffers, |seen| {
            guest_of(seen)
                .nodes
                .get_mut("prod-w-def")
                .unwrap()
                .provider_id = Some("kubevirt://other".to_owned());
        }),
        (Reason::NodeDiffers, |seen| {
            let node = guest_of(seen).nodes.remove("prod-w-def").unwrap();
            guest_of(seen).nodes.insert("worker".to_owned(), node);
            all(seen, Kind::Machine)[1]["status"]["nodeRef"]["name"] = json!("worker");
        }),
        (Reason::StrayNode, |seen| {
            let node = guest_of(seen).nodes["prod-w-def"].clone();
            guest_of(seen).nodes.insert("left".to_owned(), node);
        }),
        (Reason::GuestUnknown, |seen| {
            seen.guest = Probe::Unreachable("the guest does not answer".to_owned());
        }),
        (Reason::EtcdUnhealthy, |seen| {
            first(seen, Kind::KubeadmControlPlane)["status"]["conditions"] = json!([]);
        }),
        (Reason::EtcdUnhealthy, |seen| {
            first(seen, Kind::KubeadmControlPlane)["status"]["conditions"] = json!([
                { "type": "EtcdClusterHealthy", "status": "False", "message": "2 members" },
            ]);
        }),
        (Reason::EtcdMembers, |seen| guest_of(seen).etcd.clear()),
        (Reason::EtcdMembers, |seen| {
            guest_of(seen).etcd[0].ready = false;
        }),
        (Reason::EtcdMembers, |seen| {
            guest_of(seen).etcd[0].member = None;
        }),
        (Reason::EtcdMembers, |seen| {
            let mut second = guest_of(seen).etcd[0].clone();
            "prod-w-def".clone_into(&mut second.node);
            guest_of(seen).etcd.push(second);
        }),
        (Reason::KeysMissing, |seen| {
            secret(seen, "prod-etcd").data.remove("tls.key");
        }),
        (Reason::UserDataMissing, |seen| {
            secret(seen, "prod-w-y1-userdata").metadata.name = Some("other".to_owned());
        }),
        (Reason::Version, |seen| version(seen, "v1.33.4")),
        (Reason::VersionsDiffer, |seen| {
            let node = guest_of(seen).nodes.get_mut("prod-w-def").unwrap();
            "v1.35.1".clone_into(&mut node.kubelet);
        }),
        (Reason::Ranges, |seen| {
            networking(seen, "podSubnet", "10.243.0.0/21");
        }),
        (Reason::Ranges, |seen| {
            networking(seen, "serviceSubnet", "10.243.128.0/20");
        }),
        (Reason::Ranges, |seen| {
            first(seen, Kind::Cluster)["spec"]["clusterNetwork"]["pods"]["cidrBlocks"] =
                json!(["10.243.0.0/16", "10.250.0.0/16"]);
        }),
        (Reason::Endpoint, |seen| {
            first(seen, Kind::Cluster)["spec"]["controlPlaneEndpoint"] = Value::Null;
        }),
        (Reason::Endpoint, |seen| {
            all(seen, Kind::Service).clear();
        }),
        (Reason::Endpoint, |seen| {
            first(seen, Kind::Service)["spec"]["selector"] = json!({});
        }),
        (Reason::Endpoint, |seen| {
            first(seen, Kind::Service)["status"]["loadBalancer"]["ingress"][0]["ip"] =
                json!("203.0.113.8");
            "10.96.0.9:6443".clone_into(&mut guest_of(seen).server);
        }),
        (Reason::NameTaken, |seen| {
            let ours = json!({ "kind": "GuestCluster", "metadata": { "name": "prod" } });
            all(seen, Kind::GuestCluster).push(ours);
        }),
    ]
}

/// Edits that cannot come alone: what else they bring about follows from them.
pub fn edits_with_others() -> Vec<(Reason, Edit)> {
    vec![
        (Reason::ControlPlaneProvider, |seen| {
            first(seen, Kind::Cluster)["spec"]["controlPlaneRef"]["kind"] =
                json!("TalosControlPlane");
        }),
        (Reason::ControlPlaneProvider, |seen| {
            all(seen, Kind::KubeadmControlPlane).clear();
        }),
        (Reason::InfrastructureProvider, |seen| {
            first(seen, Kind::Cluster)["spec"]["infrastructureRef"]["kind"] =
                json!("DockerCluster");
        }),
        (Reason::StandsAlone, |seen| {
            let labels = &mut all(seen, Kind::Machine)[1]["metadata"]["labels"];
            labels
                .as_object_mut()
                .unwrap()
                .remove("cluster.x-k8s.io/deployment-name");
        }),
        (Reason::NotRunning, |seen| {
            first(seen, Kind::Machine)["status"]["nodeRef"] = Value::Null;
        }),
        (Reason::Ranges, |seen| {
            networking(seen, "podSubnet", "fd00::/48");
        }),
        (Reason::NoGuestCluster, |seen| {
            all(seen, Kind::KubevirtMachineTemplate).clear();
        }),
        (Reason::NoGuestCluster, |seen| {
            first(seen, Kind::KubeadmControlPlane)["spec"]["replicas"] = json!(2);
        }),
        (Reason::Name, |seen| {
            first(seen, Kind::MachineDeployment)["metadata"]["name"] =
                json!("prod-a-pool-with-a-very-long-name");
        }),
        (Reason::Name, |seen| {
            "1prod".clone_into(&mut seen.name);
            first(seen, Kind::Cluster)["metadata"]["name"] = json!("1prod");
        }),
    ]
}

/// What is only to be known.
pub fn warnings() -> Vec<(Reason, Edit)> {
    vec![
        (Reason::Autoscaler, |seen| {
            let key = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
            annotate(first(seen, Kind::MachineDeployment), key);
        }),
        (Reason::Cordoned, |seen| {
            guest_of(seen).nodes.get_mut("prod-w-def").unwrap().cordoned = true;
        }),
        (Reason::RestartPending, |seen| {
            first(seen, Kind::VirtualMachine)["status"] =
                json!({ "conditions": [{ "type": "RestartRequired", "status": "True" }] });
        }),
        (Reason::SharesNamespace, |seen| {
            all(seen, Kind::Cluster).push(json!({ "metadata": { "name": "dev" } }));
        }),
        (Reason::ForeignEndpoint, |seen| {
            for kind in [Kind::Cluster, Kind::KubevirtCluster] {
                first(seen, kind)["spec"]["controlPlaneEndpoint"]["host"] =
                    json!("api.example.com");
            }
        }),
    ]
}

fn annotate(object: &mut Value, key: &str) {
    object["metadata"]["annotations"] = json!({ key: "" });
}

fn networking(seen: &mut Seen, field: &str, range: &str) {
    guest_of(seen).configuration["networking"][field] = json!(range);
    let of = if field == "podSubnet" {
        "pods"
    } else {
        "services"
    };
    first(seen, Kind::Cluster)["spec"]["clusterNetwork"][of]["cidrBlocks"] = json!([range]);
}

fn version(seen: &mut Seen, version: &str) {
    first(seen, Kind::KubeadmControlPlane)["spec"]["version"] = json!(version);
    first(seen, Kind::MachineDeployment)["spec"]["template"]["spec"]["version"] = json!(version);
    for node in guest_of(seen).nodes.values_mut() {
        version.clone_into(&mut node.kubelet);
    }
}

fn secret<'a>(seen: &'a mut Seen, name: &str) -> &'a mut Secret {
    let Probe::Known(all) = &mut seen.secrets else {
        panic!("Secrets are not known");
    };
    let mut all = all.iter_mut();
    all.find(|one| one.metadata.name.as_deref() == Some(name))
        .unwrap()
}
