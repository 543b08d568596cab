//! KubeadmControlPlane: arguments, certificates, drains.

use std::collections::BTreeMap;

use guestcluster_api::spec::{Component, ControlPlane};
use serde_json::Value;

use super::value::{self, number};

/// The settings that KubeadmControlPlane alone says.
pub(super) fn settings(object: &Value) -> ControlPlane {
    let cluster = "/spec/kubeadmConfigSpec/clusterConfiguration";
    let component = |section: &str| Component {
        extra_args: arguments(object.pointer(&format!("{cluster}/{section}/extraArgs"))),
    };
    let own = ControlPlane::default();
    let days = number(object, &format!("{cluster}/certificateValidityPeriodDays"));
    ControlPlane {
        api_server: component("apiServer"),
        controller_manager: component("controllerManager"),
        scheduler: component("scheduler"),
        etcd: component("etcd/local"),
        certificate_validity_period: days.map_or(own.certificate_validity_period, |days| {
            format!("{}h", i64::from(days) * 24)
        }),
        drain_timeout_seconds: drain(&object["spec"]["machineTemplate"]),
        ..ControlPlane::default()
    }
}

/// How long the drain of a machine may take, of a template in either version.
pub(super) fn drain(template: &Value) -> i32 {
    let new = template.pointer("/spec/deletion/nodeDrainTimeoutSeconds");
    let old = template.pointer("/spec/nodeDrainTimeout");
    value::seconds(new.or(old).or_else(|| template.get("nodeDrainTimeout")))
}

/// Arguments, as a list or as a map.
pub(super) fn arguments(value: Option<&Value>) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match value {
        Some(Value::Array(list)) => list
            .iter()
            .map(|entry| (text(&entry["name"]), text(&entry["value"])))
            .collect(),
        Some(Value::Object(map)) => map
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect(),
        _ => BTreeMap::new(),
    }
}
