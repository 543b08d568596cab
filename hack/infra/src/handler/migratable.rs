//! Whether an instance can be moved to another host while it runs, as virt-handler decides it.

use serde_json::{Value, json};

/// The annotation with which an owner of a bridged instance takes the risk of moving it.
const BRIDGE_ANNOTATION: &str = "kubevirt.io/allow-pod-bridge-network-live-migration";

/// Access modes of the claims that the instance's volumes name.
pub type AccessModes<'a> = &'a dyn Fn(&str) -> Vec<String>;

/// The reasons against moving `instance`, each with its message; none when it can be moved.
pub fn obstacles(instance: &Value, modes: AccessModes<'_>) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if let Some(claim) = unshared_claim(instance, modes) {
        found.push((
            "DisksNotLiveMigratable",
            format!(
                "cannot migrate VMI: PVC {claim} is not shared, live migration requires that all \
                 PVCs must be shared (using ReadWriteMany access mode)"
            ),
        ));
    }
    if !network_allows(instance) {
        found.push((
            "InterfaceNotLiveMigratable",
            format!(
                "cannot migrate VMI which does not use masquerade, bridge with {BRIDGE_ANNOTATION} \
                 VM annotation or a migratable plugin to connect to the pod network"
            ),
        ));
    }
    let devices = instance.pointer("/spec/domain/devices");
    let has = |name: &str| {
        devices
            .and_then(|d| d.get(name))
            .is_some_and(|list| !is_empty(list))
    };
    if has("hostDevices") || has("gpus") {
        found.push((
            "HostDeviceNotLiveMigratable",
            "VMI uses a PCI host devices".to_owned(),
        ));
    }
    found
}

/// The conditions LiveMigratable and StorageLiveMigratable for these obstacles.
pub fn conditions(obstacles: &[(&'static str, String)], now: &str) -> Vec<Value> {
    let condition = |kind: &str, obstacles: &[&(&'static str, String)]| {
        let mut condition = json!({
            "type": kind,
            "status": if obstacles.is_empty() { "True" } else { "False" },
            "lastProbeTime": null,
            "lastTransitionTime": now,
        });
        match obstacles {
            [] => {}
            [(reason, message)] => {
                condition["reason"] = json!(reason);
                condition["message"] = json!(message);
            }
            several => {
                let texts: Vec<_> = several
                    .iter()
                    .map(|(reason, message)| format!("{reason}: {message}"))
                    .collect();
                condition["reason"] = json!("NotLiveMigratable");
                condition["message"] = json!(texts.join(", "));
            }
        }
        condition
    };
    let all: Vec<_> = obstacles.iter().collect();
    // Moving the storage along cures disks that are not shared, and nothing else.
    let but_disks: Vec<_> = obstacles
        .iter()
        .filter(|(reason, _)| *reason != "DisksNotLiveMigratable")
        .collect();
    vec![
        condition("LiveMigratable", &all),
        condition("StorageLiveMigratable", &but_disks),
    ]
}

/// The first claim that only one host can have at a time. A disk shared by other means, such as a
/// container disk, a cloud-init document or a Secret, is made anew or copied on the target.
fn unshared_claim(instance: &Value, modes: AccessModes<'_>) -> Option<String> {
    let volumes = instance
        .pointer("/spec/volumes")
        .and_then(Value::as_array)?;
    volumes
        .iter()
        .filter_map(claim_of)
        .find(|claim| !modes(claim).iter().any(|mode| mode == "ReadWriteMany"))
        .map(str::to_owned)
}

/// The claim that a volume names; a DataVolume's claim has its name.
pub fn claim_of(volume: &Value) -> Option<&str> {
    volume
        .pointer("/persistentVolumeClaim/claimName")
        .or_else(|| volume.pointer("/dataVolume/name"))
        .and_then(Value::as_str)
}

/// The interface on the Pod network decides; without one there is nothing to lose.
fn network_allows(instance: &Value) -> bool {
    let list = |path: &str| instance.pointer(path).and_then(Value::as_array).cloned();
    let networks = list("/spec/networks").unwrap_or_default();
    let interfaces = list("/spec/domain/devices/interfaces").unwrap_or_default();
    let Some(pod) = networks.iter().find(|network| network.get("pod").is_some()) else {
        return true;
    };
    let Some(interface) = interfaces
        .iter()
        .find(|interface| interface["name"] == pod["name"])
    else {
        return true;
    };
    let allowed = instance
        .pointer("/metadata/annotations")
        .is_some_and(|annotations| annotations.get(BRIDGE_ANNOTATION).is_some());
    interface.get("masquerade").is_some() || (interface.get("bridge").is_some() && allowed)
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::{conditions, obstacles};
    use rstest::rstest;
    use serde_json::{Value, json};

    fn instance(binding: &str, annotated: bool, devices: &Value) -> Value {
        let mut spec_devices = devices.clone();
        spec_devices["interfaces"] = json!([{"name": "default", binding: {}}]);
        let annotations = if annotated {
            json!({"kubevirt.io/allow-pod-bridge-network-live-migration": ""})
        } else {
            json!({})
        };
        json!({
            "metadata": {"annotations": annotations},
            "spec": {
                "domain": {"devices": spec_devices},
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [
                    {"name": "root", "dataVolume": {"name": "root"}},
                    {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}},
                ],
            },
        })
    }

    #[rstest]
    #[case::bridge("bridge", false, "ReadWriteMany", json!({}), &["InterfaceNotLiveMigratable"])]
    #[case::bridge_allowed("bridge", true, "ReadWriteMany", json!({}), &[])]
    #[case::masquerade("masquerade", false, "ReadWriteMany", json!({}), &[])]
    #[case::masquerade_on_a_local_disk(
        "masquerade", false, "ReadWriteOnce", json!({}), &["DisksNotLiveMigratable"])]
    #[case::the_default_guest(
        "bridge", false, "ReadWriteOnce", json!({}),
        &["DisksNotLiveMigratable", "InterfaceNotLiveMigratable"])]
    #[case::with_a_gpu(
        "masquerade", false, "ReadWriteMany", json!({"gpus": [{"name": "g"}]}),
        &["HostDeviceNotLiveMigratable"])]
    #[case::with_a_host_device(
        "masquerade", false, "ReadWriteMany", json!({"hostDevices": [{"name": "d"}]}),
        &["HostDeviceNotLiveMigratable"])]
    #[case::with_an_empty_list("masquerade", false, "ReadWriteMany", json!({"gpus": []}), &[])]
    fn an_instance_moves_only_when_nothing_ties_it_to_its_host(
        #[case] binding: &str,
        #[case] annotated: bool,
        #[case] mode: &str,
        #[case] devices: Value,
        #[case] expected: &[&str],
    ) {
        let instance = instance(binding, annotated, &devices);
        let found = obstacles(&instance, &|_| vec![mode.to_owned()]);
        let reasons: Vec<_> = found.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(reasons, expected);
        let all = conditions(&found, "2026-01-01T00:00:00Z");
        assert_eq!(
            all[0]["status"],
            if expected.is_empty() { "True" } else { "False" }
        );
    }

    #[test]
    fn disks_that_are_not_shared_can_be_moved_along() {
        let found = [("DisksNotLiveMigratable", "message".to_owned())];
        let all = conditions(&found, "2026-01-01T00:00:00Z");
        assert_eq!(all[0]["reason"], "DisksNotLiveMigratable");
        assert_eq!(all[1]["status"], "True");
    }
}
