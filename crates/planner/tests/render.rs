//! What is rendered: every object as it is sent, and digests that must stay what they are.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use guestcluster_api::spec::{
    Device, DeviceKind, Disk, EndpointType, ImagePvc, Numa, Profile, Topology,
};
use guestcluster_api::{GuestCluster, labels};
use guestcluster_planner::wanted::{Pool, Settings};
use guestcluster_planner::{Wanted, render};
use guestcluster_testkit::build::ClusterBuilder;
use guestcluster_testkit::cluster;
use rstest::rstest;
use serde_json::json;

fn wanted(cluster: &GuestCluster) -> Wanted {
    Wanted::parse(cluster, &Settings::default()).unwrap()
}

fn prod() -> ClusterBuilder {
    cluster("prod").control_plane(3).workers("general", 1)
}

fn pool<'a>(wanted: &'a Wanted, name: &str) -> &'a Pool {
    wanted.pool(name).unwrap()
}

/// A cluster that uses everything a machine can be given.
fn rich() -> ClusterBuilder {
    prod().with(|spec| {
        spec.tenant = Some("acme".to_owned());
        let machine = &mut spec.control_plane.machine;
        machine.etcd_disk = Some(Disk {
            size: "10Gi".to_owned(),
            storage_class_name: Some("fast".to_owned()),
            access_mode: None,
        });
        let worker = &mut spec.workers[0];
        worker.machine.hugepages = Some("1Gi".to_owned());
        worker.machine.numa = Some(Numa::Passthrough);
        worker.machine.isolate_emulator_thread = true;
        worker.machine.priority_class_name = Some("tenant".to_owned());
        worker
            .placement
            .node_selector
            .insert("pool".to_owned(), "guests".to_owned());
    })
}

/// A hash that changes makes every machine of every tenant outdated: a change of these lines is a
/// change of what machines are, and needs a release note.
#[test]
fn template_hashes_never_change() {
    let (plain, rich) = (wanted(&prod().build()), wanted(&rich().build()));
    let hashes = [
        render::template_hash(&plain, pool(&plain, "cp")),
        render::template_hash(&plain, pool(&plain, "general")),
        render::template_hash(&rich, pool(&rich, "cp")),
        render::template_hash(&rich, pool(&rich, "general")),
    ];
    assert_eq!(
        hashes,
        [
            "7b4f619efe637349",
            "f81b4dcaaeaae9f6",
            "6f4a83919b6a72f4",
            "79258407d59a894b"
        ]
    );
}

#[test]
fn each_device_of_a_machine_has_a_name_of_its_own_and_is_part_of_what_it_is() {
    let device = |name: &str, kind, count| Device {
        device_name: name.to_owned(),
        kind,
        count,
    };
    let with = prod().with(|spec| {
        spec.workers[0].devices = vec![
            device("nvidia.com/A10", DeviceKind::Gpu, 2),
            device("intel.com/qat", DeviceKind::HostDevice, 1),
        ];
    });
    let (with, without) = (wanted(&with.build()), wanted(&prod().build()));
    let hash = |wanted: &Wanted, name| render::template_hash(wanted, pool(wanted, name));
    assert_ne!(hash(&with, "general"), hash(&without, "general"));
    assert_eq!(hash(&with, "cp"), hash(&without, "cp"));
    let vm = render::vm(&with, pool(&with, "general"), ("prod-general-1", None)).body;
    let devices = &vm["spec"]["template"]["spec"]["domain"]["devices"];
    let gpu = |name| {
        json!({
            "name": name,
            "deviceName": "nvidia.com/A10",
            "virtualGPUOptions": { "display": { "enabled": false } },
        })
    };
    assert_eq!(devices["gpus"], json!([gpu("gpu-1"), gpu("gpu-2")]));
    assert_eq!(
        devices["hostDevices"],
        json!([{ "name": "device-1", "deviceName": "intel.com/qat" }])
    );
}

/// A machine boots as what its topology says; a field that is written out as its default says
/// nothing new.
#[test]
fn a_topology_is_part_of_what_a_control_plane_machine_is() {
    let hash = |topology| {
        let cluster = cluster("prod").with(|spec| spec.topology = topology);
        let wanted = wanted(&cluster.build());
        render::template_hash(&wanted, pool(&wanted, "cp"))
    };
    assert_eq!(hash(Topology::Dedicated), "7b4f619efe637349");
    assert_ne!(hash(Topology::Converged), hash(Topology::Dedicated));
}

/// Whatever stands on the host already, a lab's machine may stand there too, and says so; nothing else
/// differs.
#[test]
fn a_lab_asks_for_no_host_of_its_own() {
    let wanted = |profile| {
        let cluster = cluster("prod").workers("general", 1);
        wanted(&cluster.with(|spec| spec.profile = profile).build())
    };
    let (lab, production) = (wanted(Profile::Lab), wanted(Profile::Production));
    let spec = |wanted: &Wanted| {
        let mut vm = render::vm(wanted, pool(wanted, "cp"), ("prod-cp-1", None)).body;
        vm["spec"].take()
    };
    let (mut lab_spec, mut production_spec) = (spec(&lab), spec(&production));
    let template = production_spec["template"]["spec"].as_object_mut().unwrap();
    assert!(template.remove("affinity").is_some());
    let labels = lab_spec["template"]["metadata"]["labels"].as_object_mut();
    let profile = labels.unwrap().remove("guestcluster.dev/profile");
    assert_eq!(profile.unwrap(), "lab");
    assert_eq!(lab_spec, production_spec);
    let hash = |wanted: &Wanted, name| render::template_hash(wanted, pool(wanted, name));
    assert_eq!(hash(&production, "cp"), "7b4f619efe637349");
    assert_ne!(hash(&lab, "cp"), hash(&production, "cp"));
    assert_eq!(hash(&lab, "general"), hash(&production, "general"));
}

#[test]
fn a_machine_is_outdated_by_its_own_template_alone() {
    let hashes = |cluster: &GuestCluster| {
        let wanted = wanted(cluster);
        let hash = |name| render::template_hash(&wanted, pool(&wanted, name));
        (hash("cp"), hash("general"))
    };
    let (control_plane, worker) = hashes(&prod().build());
    let others = prod().with(|spec| {
        spec.workers[0].replicas = 7;
        spec.workers[0].rollout.max_unavailable = 2;
        spec.workers[0].drain_timeout_seconds = 300;
        spec.control_plane.drain_timeout_seconds = 300;
        spec.paused = true;
        spec.control_plane
            .endpoint
            .cert_sans
            .push("api.example.com".to_owned());
    });
    assert_eq!(
        hashes(&others.build()),
        (control_plane.clone(), worker.clone())
    );
    let (etcd, same) = hashes(
        &prod()
            .with(|spec| {
                let arguments = &mut spec.control_plane.etcd.extra_args;
                arguments.insert("quota-backend-bytes".to_owned(), "8589934592".to_owned());
            })
            .build(),
    );
    assert_ne!(etcd, control_plane);
    assert_eq!(same, worker);
    let (_, larger) = hashes(&prod().with(|spec| spec.workers[0].machine.cpu = 8).build());
    assert_ne!(larger, worker);
}

/// cloud-init would take a machine with another UUID for a new one.
#[test]
fn a_firmware_uuid_never_changes_and_is_no_other_machines() {
    let wanted = wanted(&prod().build());
    let uuid = |machine| render::firmware_uuid(&wanted, machine);
    assert_eq!(uuid("prod-cp-1"), "48b5a730-ace6-83e8-a4a0-1278489d3cb7");
    assert_ne!(uuid("prod-cp-1"), uuid("prod-cp-2"));
}

#[test]
fn machines() {
    let (plain, rich) = (wanted(&prod().build()), wanted(&rich().build()));
    let vm = |wanted, name, machine| {
        let vm = render::vm(wanted, pool(wanted, name), (machine, None));
        vm.body
    };
    insta::assert_yaml_snapshot!("vm_of_a_control_plane", vm(&plain, "cp", "prod-cp-1"));
    insta::assert_yaml_snapshot!("vm_of_a_worker", vm(&plain, "general", "prod-general-1"));
    insta::assert_yaml_snapshot!(
        "vm_of_a_control_plane_with_etcd_disk",
        vm(&rich, "cp", "prod-cp-1")
    );
    insta::assert_yaml_snapshot!(
        "vm_of_a_rich_worker",
        vm(&rich, "general", "prod-general-1")
    );
}

#[test]
fn disks() {
    let rich = wanted(&rich().build());
    let control_plane = pool(&rich, "cp");
    let etcd = render::etcd_disk(&rich, control_plane, "prod-cp-1").unwrap();
    insta::assert_yaml_snapshot!("golden_image", render::golden(&rich).body);
    insta::assert_yaml_snapshot!(
        "root_disk",
        render::root_disk(&rich, control_plane, "prod-cp-1").body
    );
    insta::assert_yaml_snapshot!("etcd_disk", etcd.body);
    assert!(render::etcd_disk(&rich, pool(&rich, "general"), "prod-general-1").is_none());
}

/// What lets a machine live-migrate is written where it is asked for, and the image that all clone from
/// is the same.
#[test]
fn a_machine_that_can_live_migrate() {
    let (plain, migratable) = (
        wanted(&rich().build()),
        wanted(&rich().migratable().build()),
    );
    let machine = pool(&migratable, "cp");
    let vm = render::vm(&migratable, machine, ("prod-cp-1", None)).body;
    let template = &vm["spec"]["template"];
    let interface = &template["spec"]["domain"]["devices"]["interfaces"][0];
    assert_eq!(interface["masquerade"], json!({}));
    assert_eq!(interface.get("bridge"), None);
    for metadata in [&vm["metadata"], &template["metadata"]] {
        assert_eq!(metadata["labels"][labels::STABLE_ADDRESS], "service");
    }
    let etcd = render::etcd_disk(&migratable, machine, "prod-cp-1").unwrap();
    for disk in [render::root_disk(&migratable, machine, "prod-cp-1"), etcd] {
        let modes = &disk.body["spec"]["storage"]["accessModes"];
        assert_eq!(*modes, json!(["ReadWriteMany"]));
    }
    assert_eq!(render::golden(&migratable), render::golden(&plain));
    let hash = |wanted: &Wanted| render::template_hash(wanted, pool(wanted, "general"));
    assert_ne!(hash(&migratable), hash(&plain));
}

#[test]
fn limits_of_migrations_are_for_the_machines_of_one_guest() {
    let limited = prod().migratable().with(|spec| {
        spec.maintenance.migration.bandwidth_per_migration = Some("1Gi".to_owned());
    });
    let policy = render::migration_policy(&wanted(&limited.build())).body;
    insta::assert_yaml_snapshot!("migration_policy", policy);
}

/// kubelets and tunnels are dialled at a Node's address, which behind masquerade is the Service's.
#[test]
fn behind_masquerade_a_machines_service_leads_to_its_kubelet_and_its_tunnel() {
    let wanted = wanted(&prod().migratable().build());
    let ports = |name, machine| {
        let service = render::address_service(&wanted, pool(&wanted, name), machine).body;
        let slice = render::address_slice(&wanted, pool(&wanted, name), machine, None).body;
        assert_eq!(service["spec"]["ports"], slice["ports"]);
        let ports = slice["ports"].as_array().unwrap().clone();
        let told = ports
            .into_iter()
            .map(|port| format!("{}/{}", port["port"], port["protocol"]));
        told.collect::<Vec<_>>().join(" ").replace('"', "")
    };
    assert_eq!(
        ports("cp", "prod-cp-1"),
        "6443/TCP 2379/TCP 2380/TCP 10250/TCP 8572/UDP"
    );
    assert_eq!(ports("general", "prod-general-1"), "10250/TCP 8572/UDP");
}

#[test]
fn a_claim_of_the_users_own_is_cloned_as_it_is() {
    let own = prod().with(|spec| {
        spec.image.registry = None;
        spec.image.pvc = Some(ImagePvc {
            name: "my-image".to_owned(),
        });
    });
    let wanted = wanted(&own.build());
    assert_eq!(render::golden_name(&wanted), "my-image");
    let disk = render::root_disk(&wanted, pool(&wanted, "cp"), "prod-cp-1").body;
    assert_eq!(disk["spec"]["source"]["pvc"]["name"], "my-image");
}

#[test]
fn clusters_of_one_source_share_an_image_and_others_do_not() {
    let golden = |cluster: ClusterBuilder| render::golden_name(&wanted(&cluster.build()));
    assert_eq!(
        golden(cluster("a")),
        golden(cluster("b").workers("general", 3))
    );
    let larger = cluster("a").with(|spec| {
        spec.control_plane.machine.root_disk.size = "40Gi".to_owned();
    });
    assert_ne!(
        golden(larger),
        golden(cluster("a")),
        "a clone is never smaller than its source"
    );
}

#[rstest]
#[case::load_balancer(EndpointType::LoadBalancer, "endpoint_load_balancer")]
#[case::node_port(EndpointType::NodePort, "endpoint_node_port")]
#[case::cluster_ip(EndpointType::ClusterIp, "endpoint_cluster_ip")]
#[case::external(EndpointType::External, "endpoint_external")]
fn the_endpoint_service(#[case] type_: EndpointType, #[case] name: &str) {
    let wanted = wanted(&prod().endpoint(type_).build());
    insta::assert_yaml_snapshot!(name, render::endpoint_service(&wanted).body);
}

#[test]
fn the_endpoint_service_says_when_it_is_out_of_date() {
    let digest = |cluster: ClusterBuilder| render::endpoint_digest(&wanted(&cluster.build()));
    let annotated = prod().with(|spec| {
        let annotations = &mut spec.control_plane.endpoint.annotations;
        annotations.insert("pool".to_owned(), "public".to_owned());
    });
    assert_ne!(digest(annotated), digest(prod()));
    assert_eq!(digest(prod().control_plane(5)), digest(prod()));
}

#[test]
fn addresses_of_a_machine() {
    let wanted = wanted(&prod().build());
    let pool = pool(&wanted, "cp");
    let slice = |address| render::address_slice(&wanted, pool, "prod-cp-1", address).body;
    insta::assert_yaml_snapshot!(
        "address_service",
        render::address_service(&wanted, pool, "prod-cp-1").body
    );
    insta::assert_yaml_snapshot!("address_slice", slice(Some("10.77.0.9")));
    assert_eq!(slice(None)["endpoints"], serde_json::json!([]));
}

#[test]
fn the_pod_network() {
    let wanted = wanted(&prod().build());
    insta::assert_yaml_snapshot!("flannel", render::flannel(&wanted, ("192.0.2.10", 6443)));
}

/// All machines see themselves under one address there.
#[test]
fn behind_masquerade_flannel_announces_the_address_of_its_node() {
    let public_ip = |cluster: ClusterBuilder| {
        let objects = render::flannel(&wanted(&cluster.build()), ("192.0.2.10", 6443));
        let containers = &objects.last().unwrap()["spec"]["template"]["spec"]["containers"];
        let variables = containers[0]["env"].as_array().unwrap().clone();
        let own = variables
            .into_iter()
            .find(|v| v["name"] == "FLANNELD_PUBLIC_IP");
        own.map(|own| own["valueFrom"]["fieldRef"]["fieldPath"].clone())
    };
    assert_eq!(public_ip(prod().migratable()), Some(json!("status.hostIP")));
    assert_eq!(public_ip(prod()), None);
}
