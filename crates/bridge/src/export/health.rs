//! MachineHealthCheck: machines that fail are replaced, as ours are.

use guestcluster_api::labels::Role;
use guestcluster_planner::Wanted;
use guestcluster_planner::wanted::{Pool, Settings};
use serde_json::{Value, json};

use super::{ApiVersion, metadata, pool_name, workers};
use crate::capi;

/// A machine that takes longer to join has failed: images may be large and registries slow.
const STARTUP: i64 = 20 * 60;

/// With more unhealthy machines something else is wrong, and none is replaced. Shares are rounded
/// down, so that of a few machines one would be too many.
fn most(pool: &Pool) -> Value {
    if pool.replicas < 3 {
        json!(1)
    } else {
        json!("40%")
    }
}

pub(super) fn check(wanted: &Wanted, pool: &Pool, version: ApiVersion) -> Value {
    let cluster = &wanted.identity.name;
    let selector = match pool.role {
        Role::ControlPlane => {
            json!({ capi::CLUSTER_NAME: cluster, capi::CONTROL_PLANE_MACHINE: "" })
        }
        Role::Worker => json!(workers::selector(wanted, pool)),
    };
    let unhealthy = Settings::UNHEALTHY_AFTER.as_secs();
    let conditions = ["Unknown", "False"].map(|status| {
        let (key, value) = version.seconds("timeout", unhealthy);
        json!({ "type": "Ready", "status": status, key: value })
    });
    let (key, startup) = version.seconds("nodeStartupTimeout", STARTUP);
    let mut spec = json!({ "clusterName": cluster, "selector": { "matchLabels": selector } });
    match version {
        ApiVersion::V1Beta1 => {
            spec[key] = startup;
            spec["unhealthyConditions"] = json!(conditions);
            spec["maxUnhealthy"] = most(pool);
        }
        ApiVersion::V1Beta2 => {
            spec["checks"] = json!({ key: startup, "unhealthyNodeConditions": conditions });
            spec["remediation"] =
                json!({ "triggerIf": { "unhealthyLessThanOrEqualTo": most(pool) } });
        }
    }
    json!({
        "apiVersion": version.of(capi::CORE),
        "kind": "MachineHealthCheck",
        "metadata": metadata(wanted, &pool_name(wanted, pool)),
        "spec": spec,
    })
}
