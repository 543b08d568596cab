//! What a specification means, and with which words one that means nothing is refused.

use guestcluster_api::labels::Role;
use guestcluster_api::spec::{Device, DeviceKind, Profile, Rollout, Topology};
use guestcluster_capacity::Quantity;
use guestcluster_planner::Wanted;
use guestcluster_planner::wanted::Settings;
use guestcluster_testkit::build::{ClusterBuilder, start};
use guestcluster_testkit::cluster;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use rstest::rstest;

fn parse(cluster: ClusterBuilder) -> Result<Wanted, String> {
    Wanted::parse(&cluster.build(), &Settings::default()).map_err(|errors| errors.to_string())
}

fn gpus(count: i32) -> Device {
    Device {
        device_name: "nvidia.com/A10".to_owned(),
        kind: DeviceKind::Gpu,
        count,
    }
}

#[rstest]
#[case::even(cluster("a").control_plane(2), "spec.controlPlane.replicas: must be 1, 3 or 5")]
#[case::none(cluster("a").control_plane(0), "spec.controlPlane.replicas: must be 1, 3 or 5")]
#[case::negative(cluster("a").control_plane(-1), "spec.controlPlane.replicas: must be 1, 3 or 5")]
#[case::memory(
    cluster("a").with(|spec| spec.control_plane.machine.memory = "8G1".to_owned()),
    r#"spec.controlPlane.machine.memory: "8G1" is not a quantity such as 8Gi, 500m or 4"#
)]
#[case::memory_of_a_worker(
    cluster("a").workers("general", 1).with(|spec| spec.workers[0].machine.memory = String::new()),
    r#"spec.workers[general].machine.memory: "" is not a quantity such as 8Gi, 500m or 4"#
)]
#[case::pods(
    cluster("a").with(|spec| spec.network.pod_cidr = "10.0.0.0".to_owned()),
    r#"spec.network.podCIDR: "10.0.0.0" is not an IPv4 range such as 10.200.0.0/16"#
)]
#[case::services(
    cluster("a").with(|spec| spec.network.service_cidr = "fd00::/64".to_owned()),
    r#"spec.network.serviceCIDR: "fd00::/64" is not an IPv4 range such as 10.200.0.0/16"#
)]
#[case::rollout(
    cluster("a").workers("general", 1).with(|spec| spec.workers[0].rollout.max_surge = 0),
    "spec.workers[general].rollout: maxSurge or maxUnavailable must be at least 1"
)]
#[case::workers_beside_converged_machines(
    cluster("a").workers("general", 1).with(|spec| spec.topology = Topology::Converged),
    "spec.workers: topology Converged has no worker pools: remove them"
)]
#[case::a_lab_of_three(
    cluster("a").control_plane(3).with(|spec| spec.profile = Profile::Lab),
    "spec.controlPlane.replicas: profile Lab has one machine: write 1"
)]
#[case::dots(
    cluster("a.b"),
    r#"metadata.name: "a.b" cannot be part of host names: use at most 30 letters, without dots"#
)]
#[case::a_long_name(
    cluster("a23456789012345678901234567890x"),
    r#"metadata.name: "a23456789012345678901234567890x" cannot be part of host names: use at most 30 letters, without dots"#
)]
#[case::no_device(
    cluster("a").workers("gpu", 1).with(|spec| spec.workers[0].devices = vec![gpus(0)]),
    "spec.workers[gpu].devices: write each device once, with a count from 1 to 16"
)]
#[case::a_device_twice(
    cluster("a").workers("gpu", 1).with(|spec| spec.workers[0].devices = vec![gpus(1), gpus(1)]),
    "spec.workers[gpu].devices: write each device once, with a count from 1 to 16"
)]
fn what_means_nothing_is_refused_with_what_to_write(
    #[case] cluster: ClusterBuilder,
    #[case] sentence: &str,
) {
    assert_eq!(parse(cluster).unwrap_err(), sentence);
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let wrong = cluster("a.b").control_plane(4).with(|spec| {
        spec.network.pod_cidr = "x".to_owned();
    });
    assert_eq!(parse(wrong).unwrap_err().matches("; ").count(), 2);
}

#[test]
fn a_cluster_that_is_to_go_needs_no_sound_specification() {
    let mut wrong = cluster("a").control_plane(4).build();
    wrong.spec.network.pod_cidr = "x".to_owned();
    wrong.metadata.deletion_timestamp = Some(Time(start()));
    let wanted = Wanted::parse(&wrong, &Settings::default()).unwrap();
    assert!(wanted.identity.deleting);
}

#[test]
fn the_tenant_is_the_namespace_unless_it_is_named() {
    assert_eq!(parse(cluster("a")).unwrap().tenant, "tenant-a");
    let named = cluster("a").with(|spec| spec.tenant = Some("acme".to_owned()));
    assert_eq!(parse(named).unwrap().tenant, "acme");
}

#[test]
fn the_control_plane_is_the_first_pool() {
    let wanted = parse(
        cluster("a")
            .control_plane(3)
            .workers("b", 2)
            .workers("c", 4),
    )
    .unwrap();
    let pools: Vec<_> = wanted
        .pools
        .iter()
        .map(|p| (&*p.name, p.role, p.replicas))
        .collect();
    let expected = [
        ("cp", Role::ControlPlane, 3),
        ("b", Role::Worker, 2),
        ("c", Role::Worker, 4),
    ];
    assert_eq!(pools, expected);
    assert_eq!((wanted.control_plane_size(), wanted.worker_count()), (3, 6));
}

#[test]
fn a_rollout_adds_one_machine_and_a_drain_waits_unless_it_is_said_otherwise() {
    let told = |cluster: ClusterBuilder| {
        let wanted = parse(cluster).unwrap();
        let pool = wanted.pool("b").unwrap();
        let seconds = |wait: Option<SignedDuration>| wait.map(|wait| wait.as_secs());
        let drains = (
            seconds(wanted.pools[0].drain_timeout),
            seconds(pool.drain_timeout),
        );
        (pool.max_surge, pool.max_unavailable, drains)
    };
    let plain = cluster("a").workers("b", 2);
    assert_eq!(told(plain.clone()), (1, 0, (None, None)));
    let hurried = plain.with(|spec| {
        spec.control_plane.drain_timeout_seconds = 60;
        spec.workers[0].rollout = Rollout {
            max_surge: 0,
            max_unavailable: 2,
        };
        spec.workers[0].drain_timeout_seconds = 300;
    });
    assert_eq!(told(hurried), (0, 2, (Some(60), Some(300))));
}

#[test]
fn the_hypervisors_own_thread_needs_a_cpu_more() {
    let isolated = cluster("a").with(|spec| {
        spec.control_plane.machine.cpu = 4;
        spec.control_plane.machine.isolate_emulator_thread = true;
    });
    assert_eq!(parse(isolated).unwrap().pools[0].requirements.cpu.ceil(), 5);
}

#[test]
fn huge_pages_and_devices_are_asked_for_instead_of_ordinary_memory_and_beside_it() {
    let rich = cluster("a").workers("gpu", 1).with(|spec| {
        spec.workers[0].machine.hugepages = Some("2Mi".to_owned());
        spec.workers[0].devices = vec![gpus(2)];
    });
    let wanted = parse(rich).unwrap();
    let pool = wanted.pool("gpu").unwrap();
    let needs = &pool.requirements;
    assert_eq!(needs.memory, Quantity::default());
    assert_eq!(needs.extended["hugepages-2Mi"], Quantity::units(8 << 30));
    assert_eq!(needs.extended["nvidia.com/A10"], Quantity::units(2));
    let mut plain = pool.clone();
    plain.devices.clear();
    let more = pool.requests().of("memory") - plain.requests().of("memory");
    assert_eq!(more, Quantity::units(1 << 30));
    assert_eq!(pool.requests().of("nvidia.com/A10"), Quantity::units(2));
}
