//! Whether an instance can live-migrate, and how far it is.

use guestcluster_foreign::kubevirt::{
    self as kubevirt, VirtualMachineInstanceMigration, VmCondition,
};
use guestcluster_planner::observed::{Migratable, Migration, MigrationPolicy, Progress};
use guestcluster_planner::render;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::meta;

/// Whether KubeVirt holds that an instance can move while it runs.
pub(super) fn migratable(conditions: &[VmCondition]) -> Migratable {
    let judged = conditions.iter().find(|c| c.type_ == "LiveMigratable");
    match judged.map(|condition| (condition, &*condition.status)) {
        Some((_, "True")) => Migratable::Yes,
        Some((condition, "False")) => {
            let words = condition.message.as_ref().or(condition.reason.as_ref());
            Migratable::No(words.cloned().unwrap_or_default())
        }
        Some(_) | None => Migratable::Unknown,
    }
}

/// Since when an instance is marked for eviction. Absent times are written as null.
pub(super) fn evicted_since(conditions: &[VmCondition]) -> Option<Timestamp> {
    let mut all = conditions.iter();
    let told = all.find(|c| c.type_ == "EvictionRequested" && c.status == "True")?;
    told.last_transition_time.as_ref().map(|time| time.0)
}

pub(in super::super) fn migration(object: &VirtualMachineInstanceMigration) -> Migration {
    let phase = object.status.as_ref().and_then(|s| s.phase.as_deref());
    Migration {
        name: object.name_any(),
        meta: meta(object),
        progress: match phase {
            Some("Succeeded") => Progress::Succeeded,
            Some("Failed") => Progress::Failed,
            Some(_) | None => Progress::Moves,
        },
    }
}

pub(in super::super) fn migration_policy(object: &kubevirt::MigrationPolicy) -> MigrationPolicy {
    MigrationPolicy {
        meta: meta(object),
        render: object.annotations().get(render::RENDER).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::instance;
    use super::*;

    fn seen(status: &Value) -> guestcluster_planner::observed::Instance {
        let object = json!({ "metadata": {}, "spec": {}, "status": status });
        instance(&serde_json::from_value(object).unwrap(), None)
    }

    #[test]
    fn an_instance_tells_whether_it_can_move_while_it_runs() {
        let judged = |status| {
            let condition = json!({ "type": "LiveMigratable", "status": status, "message": "m" });
            seen(&json!({ "phase": "Running", "conditions": [condition] })).migratable
        };
        assert_eq!(judged("True"), Migratable::Yes);
        assert_eq!(judged("False"), Migratable::No("m".to_owned()));
        assert_eq!(judged("Unknown"), Migratable::Unknown);
        assert_eq!(seen(&json!({})).migratable, Migratable::Unknown);
    }

    #[test]
    fn an_instance_tells_since_when_it_is_marked_for_eviction() {
        let since = |time: Value| {
            let condition = json!({
                "type": "EvictionRequested", "status": "True", "lastTransitionTime": time,
            });
            seen(&json!({ "phase": "Running", "conditions": [condition] })).evicted_since
        };
        let time = "2026-05-04T03:02:01Z";
        assert_eq!(since(json!(time)), time.parse().ok());
        assert_eq!(since(Value::Null), None);
        assert_eq!(seen(&json!({})).evicted_since, None);
    }

    #[test]
    fn a_migration_moves_until_it_has_ended() {
        let progress = |status: Value| {
            let object =
                json!({ "metadata": {}, "spec": { "vmiName": "a-cp-1" }, "status": status });
            migration(&serde_json::from_value(object).unwrap()).progress
        };
        assert_eq!(progress(Value::Null), Progress::Moves);
        assert_eq!(progress(json!({ "phase": "Running" })), Progress::Moves);
        assert_eq!(
            progress(json!({ "phase": "Succeeded" })),
            Progress::Succeeded
        );
        assert_eq!(progress(json!({ "phase": "Failed" })), Progress::Failed);
    }
}
