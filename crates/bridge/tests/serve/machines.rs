//! What virtual machines look like.

use guestcluster_bridge::capi;
use guestcluster_bridge::serve::Dialect;
use serde_json::json;

use super::world::{World, condition};

#[test]
fn a_machine_obeys_its_zone_and_control_planes_keep_apart() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 0);
    world.add_machine("c-cp-2", true);
    world.boot_document("c-cp-2");
    let machine = world.seen.machines.get_mut("c-cp-2").unwrap();
    machine.owner.as_mut().unwrap().spec.failure_domain = Some("zone-b".to_owned());
    world.step();
    let spec = &world.vm("c-cp-2")["spec"]["template"]["spec"];
    let zone =
        json!({ "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-b"] });
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    assert_eq!(
        spec["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"],
        json!([{ "matchExpressions": [zone] }])
    );
    let apart = &spec["affinity"]["podAntiAffinity"][required];
    assert_eq!(apart[0]["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(
        apart[0]["labelSelector"]["matchLabels"][capi::ROLE],
        "control-plane"
    );
    world.add_machine("c-w-1", false);
    world.boot_document("c-w-1");
    world.step();
    assert!(
        world.vm("c-w-1")["spec"]["template"]["spec"]
            .get("affinity")
            .is_none()
    );
}

#[test]
fn a_control_plane_is_behind_the_endpoint_once_its_api_listens() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 0);
    world.add_machine("c-cp-2", true);
    world.boot_document("c-cp-2");
    world.step();
    let probe = world.vm("c-cp-2")["spec"]["template"]["spec"]["readinessProbe"].clone();
    assert_eq!(probe["tcpSocket"]["port"], 6443);
    world.runs("c-cp-2", "host-2");
    world.is_not_ready("c-cp-2");
    world.joins("c-cp-2");
    world.step();
    world.step();
    let status = world.status("c-cp-2");
    assert_eq!(
        condition(Some(&status), "VMProvisioned").unwrap()["status"],
        "True"
    );
    assert!(status.nodeupdated && !status.ready, "{status:?}");
    world.runs("c-cp-2", "host-2");
    world.step();
    assert!(world.status("c-cp-2").ready);
}

#[test]
fn a_machine_keeps_all_that_its_user_wrote() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 0);
    world.add_machine("c-w-1", false);
    world.boot_document("c-w-1");
    let machine = world.seen.machines.get_mut("c-w-1").unwrap();
    machine.object.spec.virtual_machine_template = serde_json::from_value(json!({
        "metadata": { "labels": { "team": "a" }, "annotations": { "note": "b" }, "namespace": "vms" },
        "spec": {
            "runStrategy": "Always",
            "dataVolumeTemplates": [{ "metadata": { "name": "root" }, "spec": { "source": {} } }],
            "template": { "spec": {
                "domain": {
                    "futureField": 7,
                    "devices": { "disks": [{ "name": "r", "disk": { "bus": "virtio" } }] },
                },
                "volumes": [
                    { "name": "r", "dataVolume": { "name": "root" } },
                    { "name": "shared", "persistentVolumeClaim": { "claimName": "golden" } },
                ],
            }},
        },
    }))
    .unwrap();
    world.step();
    let vm = world.vm("c-w-1");
    assert_eq!(vm["metadata"]["namespace"], "vms");
    assert_eq!(vm["metadata"]["annotations"], json!({ "note": "b" }));
    for labels in [
        &vm["metadata"]["labels"],
        &vm["spec"]["template"]["metadata"]["labels"],
    ] {
        assert_eq!(labels["team"], "a");
        assert_eq!(labels[capi::ROLE], "worker");
        assert_eq!(labels[capi::CLUSTER_NAME], "c");
        assert_eq!(labels[capi::MACHINE_NAME], "c-w-1");
        assert_eq!(labels[capi::MACHINE_NAMESPACE], "ns");
        assert_eq!(
            (&labels["kubevirt.io/vm"], &labels["name"]),
            (&json!("c-w-1"), &json!("c-w-1"))
        );
    }
    let spec = &vm["spec"]["template"]["spec"];
    assert_eq!(spec["domain"]["futureField"], 7);
    assert_eq!(
        vm["spec"]["dataVolumeTemplates"][0]["metadata"]["name"],
        "c-w-1-root"
    );
    assert_eq!(spec["volumes"][0]["dataVolume"]["name"], "c-w-1-root");
    assert_eq!(
        spec["volumes"][1]["persistentVolumeClaim"]["claimName"],
        "golden"
    );
    let last = spec["volumes"].as_array().unwrap().last().unwrap();
    assert_eq!(
        last["cloudInitConfigDrive"]["secretRef"]["name"],
        "c-w-1-boot-userdata"
    );
    assert!(
        vm["metadata"].get("ownerReferences").is_none(),
        "nothing may collect it"
    );
}

#[test]
fn a_guaranteed_machine_gets_whole_processors_and_all_its_memory() {
    let mut world = World::settled(Dialect::V1Beta1, 1, 0);
    world.add_machine("c-w-1", false);
    world.boot_document("c-w-1");
    let template = &mut world.seen.machines.get_mut("c-w-1").unwrap().object.spec;
    let policy = json!({ "annotations": { "guestcluster.dev/resource-policy": "Guaranteed" } });
    template.virtual_machine_template.metadata = serde_json::from_value(policy).unwrap();
    world.step();
    let domain = world.vm("c-w-1")["spec"]["template"]["spec"]["domain"].clone();
    assert_eq!(domain["cpu"]["dedicatedCpuPlacement"], true);
    let whole = json!({ "cpu": "2", "memory": "4Gi" });
    assert_eq!(
        domain["resources"],
        json!({ "requests": whole, "limits": whole })
    );
}
