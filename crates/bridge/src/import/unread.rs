//! What a GuestCluster cannot say of manifests: what they say beyond its own export.

use std::fmt;

use guestcluster_api::GuestCluster;
use serde_json::Value;

use super::value::text;
use super::workers;
use crate::export::{ApiVersion, Options, export};
use crate::leaves;

/// Something that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Kind and name of the object.
    pub object: String,
    /// Path in it, as a JSON pointer; empty for the whole object.
    pub path: String,
    /// Why.
    pub why: String,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.object, self.path, self.why)
    }
}

/// Compares manifests with what the GuestCluster that was read from them would be exported as.
pub(super) fn unread(given: &[Value], cluster: &GuestCluster) -> Vec<Unread> {
    let is_old = |object: &&Value| object["kind"] == "Cluster";
    let version = given
        .iter()
        .find(is_old)
        .map(|object| &object["apiVersion"]);
    let is_old = version.and_then(Value::as_str) == Some("cluster.x-k8s.io/v1beta1");
    let options = Options {
        api_version: if is_old {
            ApiVersion::V1Beta1
        } else {
            ApiVersion::V1Beta2
        },
        authorities: None,
    };
    let again = match export(cluster, &options) {
        Ok(export) => export.objects,
        Err(error) => {
            return vec![Unread {
                object: "Cluster".to_owned(),
                path: String::new(),
                why: format!(
                    "it cannot be compared, since what was read is no GuestCluster yet: {error}"
                ),
            }];
        }
    };
    let mut list = Vec::new();
    for object in given {
        let place = place(given, object);
        let same = again
            .iter()
            .find(|other| self::place(&again, other) == place);
        compare(object, same, &mut list);
    }
    list
}

/// What an object is to its cluster, whatever its name: its kind, and the pool that refers to it.
fn place(all: &[Value], object: &Value) -> (String, String) {
    let kind = text(object, "/kind").unwrap_or_default();
    let name = text(object, "/metadata/name").unwrap_or_default();
    let of_kind = |kind: &'static str| all.iter().filter(move |one| one["kind"] == kind);
    let none = Value::Null;
    let cluster = of_kind("Cluster").next().unwrap_or(&none);
    let pool = match kind.as_str() {
        "KubevirtMachineTemplate" | "KubeadmConfigTemplate" => {
            let refers = |deployment: &&Value| {
                let spec = &deployment["spec"]["template"]["spec"];
                [&spec["infrastructureRef"], &spec["bootstrap"]["configRef"]]
                    .iter()
                    .any(|reference| reference["kind"] == *kind && reference["name"] == *name)
            };
            let owner = of_kind("MachineDeployment").find(refers);
            owner.map_or_else(String::new, |owner| workers::name(cluster, owner))
        }
        "MachineDeployment" | "MachineHealthCheck" => workers::name(cluster, object),
        _ => String::new(),
    };
    (kind, pool)
}

fn compare(object: &Value, same: Option<&Value>, list: &mut Vec<Unread>) {
    let word = |path: &str| text(object, path).unwrap_or_default();
    let title = format!("{} {}", word("/kind"), word("/metadata/name"));
    let mut say = |path: &str, why: String| {
        list.push(Unread {
            object: title.clone(),
            path: path.to_owned(),
            why,
        });
    };
    let Some(same) = same else {
        say(
            "",
            "a GuestCluster has no counterpart of this object".to_owned(),
        );
        return;
    };
    let others = leaves::leaves(&same["spec"]);
    for (path, value) in leaves::leaves(&object["spec"]) {
        // Names of templates are made from what they hold.
        let is_name = path.ends_with("Ref/name") || path.ends_with("Ref/namespace");
        match others.get(&path) {
            Some(other) if *other == value || is_name => {}
            Some(other) => say(
                &format!("/spec{path}"),
                format!("{value} is not read; a GuestCluster would have {other}"),
            ),
            None if is_name => {}
            None => say(&format!("/spec{path}"), format!("{value} is not read")),
        }
    }
}
