//! What virt-handler writes into an instance's status.

use kube::core::DynamicObject;
use serde_json::{Value, json};

/// The machine runs: phase, addresses and what virt-handler finds out about it. False when the
/// instance is not waiting for that.
pub fn run(instance: &mut DynamicObject, address: &str, conditions: Vec<Value>, now: &str) -> bool {
    if phase(instance) != Some("Scheduled") {
        return false;
    }
    let interfaces = interfaces(instance, address);
    let Some(status) = instance.data.get_mut("status") else {
        return false;
    };
    set_phase(status, "Running", now);
    status["interfaces"] = interfaces;
    status["migrationMethod"] = json!("BlockMigration");
    // virt-controller refuses to move an instance whose SELinux context it does not know.
    status["selinuxContext"] = json!("none");
    status["machine"] = json!({"type": "q35"});
    status["guestOSInfo"] = json!({"name": "Debian GNU/Linux", "id": "debian", "version": "12"});
    set_condition(
        status,
        json!({
            "type": "AgentConnected", "status": "True",
            "lastProbeTime": now, "lastTransitionTime": null,
        }),
    );
    remove_condition(status, "Synchronized");
    for condition in conditions {
        set_condition(status, condition);
    }
    true
}

/// The guest has ended, well or not. False when the instance is final already.
pub fn end(instance: &mut DynamicObject, well: bool, now: &str) -> bool {
    if !matches!(phase(instance), Some("Running" | "Scheduled")) {
        return false;
    }
    let Some(status) = instance.data.get_mut("status") else {
        return false;
    };
    set_phase(status, if well { "Succeeded" } else { "Failed" }, now);
    true
}

/// The machine could not be started, for this reason. False when that is said already.
pub fn failed_sync(instance: &mut DynamicObject, message: &str, now: &str) -> bool {
    let Some(status) = instance.data.get_mut("status") else {
        return false;
    };
    let said = status["conditions"].as_array().is_some_and(|conditions| {
        conditions
            .iter()
            .any(|c| c["type"] == "Synchronized" && c["message"] == message)
    });
    if said {
        return false;
    }
    set_condition(
        status,
        json!({
            "type": "Synchronized", "status": "False",
            "reason": "Synchronizing with the Domain failed.", "message": message,
            "lastProbeTime": null, "lastTransitionTime": now,
        }),
    );
    true
}

fn phase(instance: &DynamicObject) -> Option<&str> {
    instance
        .data
        .pointer("/status/phase")
        .and_then(Value::as_str)
}

fn set_phase(status: &mut Value, phase: &str, now: &str) {
    status["phase"] = json!(phase);
    let transition = json!({"phase": phase, "phaseTransitionTimestamp": now});
    match status["phaseTransitionTimestamps"].as_array_mut() {
        Some(transitions) => transitions.push(transition),
        None => status["phaseTransitionTimestamps"] = json!([transition]),
    }
}

fn set_condition(status: &mut Value, condition: Value) {
    if let Some(kind) = condition["type"].as_str() {
        remove_condition(status, kind);
    }
    match status["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => status["conditions"] = json!([condition]),
    }
}

/// Drops the condition of this type, if it is there.
pub fn remove_condition(status: &mut Value, kind: &str) {
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"] != kind);
    }
}

/// The first interface, which is on the Pod network, with the address of the Pod.
fn interfaces(instance: &DynamicObject, address: &str) -> Value {
    let interface = instance.data.pointer("/spec/domain/devices/interfaces/0");
    let name = interface
        .and_then(|interface| interface["name"].as_str())
        .unwrap_or("default");
    let mac = interface.and_then(|interface| interface["macAddress"].as_str());
    json!([{
        "name": name,
        "ipAddress": address,
        "ipAddresses": [address],
        "mac": mac.unwrap_or("02:67:63:4d:00:01"),
        "infoSource": "domain, guest-agent",
        "interfaceName": "eth0",
        "podInterfaceName": "eth0",
        "queueCount": 1,
        "linkState": "up",
    }])
}

#[cfg(test)]
mod tests {
    use super::{end, failed_sync, run};
    use kube::core::DynamicObject;
    use serde_json::json;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn scheduled() -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {"name": "vm"},
            "spec": {"domain": {"devices": {"interfaces": [{"name": "pod"}]}}},
            "status": {"phase": "Scheduled", "activePods": {"uid": "host-1"}},
        }))
        .unwrap()
    }

    #[test]
    fn a_boot_keeps_what_others_wrote() {
        let mut instance = scheduled();
        let migratable = json!({"type": "LiveMigratable", "status": "False"});
        assert!(run(&mut instance, "10.244.0.10", vec![migratable], NOW));
        let status = &instance.data["status"];
        assert_eq!(status["phase"], "Running");
        assert_eq!(status["activePods"]["uid"], "host-1");
        assert_eq!(status["interfaces"][0]["ipAddress"], "10.244.0.10");
        assert_eq!(status["interfaces"][0]["name"], "pod");
        assert!(
            !run(&mut instance, "10.244.0.10", vec![], NOW),
            "it runs already"
        );
    }

    #[test]
    fn an_end_is_told_once() {
        let mut instance = scheduled();
        run(&mut instance, "10.244.0.10", vec![], NOW);
        assert!(end(&mut instance, false, NOW));
        assert_eq!(instance.data["status"]["phase"], "Failed");
        assert!(!end(&mut instance, true, NOW));
    }

    #[test]
    fn the_same_reason_is_not_written_again() {
        let mut instance = scheduled();
        assert!(failed_sync(&mut instance, "no disk", NOW));
        assert!(!failed_sync(&mut instance, "no disk", NOW));
        assert!(failed_sync(&mut instance, "no secret", NOW));
        assert_eq!(
            instance.data["status"]["conditions"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }
}
