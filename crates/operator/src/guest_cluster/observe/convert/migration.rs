//! Live migration: whether an instance can, and how the last one goes.

use guestcluster_foreign::kubevirt::{self, VmCondition};
use guestcluster_planner::observed::{Migratable, Migration, MigrationState};

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

pub(super) fn migration(seen: kubevirt::MigrationState) -> Migration {
    Migration {
        uid: seen.migration_uid,
        source: seen.source_node,
        target: seen.target_node,
        started: seen.start_timestamp.map(|time| time.0),
        state: match (seen.failed, seen.completed) {
            (true, _) => MigrationState::Failed(seen.failure_reason.unwrap_or_default()),
            (false, true) => MigrationState::Completed,
            (false, false) => MigrationState::Running,
        },
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
    fn a_migration_is_under_way_until_it_succeeds_or_fails() {
        let told = |state: Value| seen(&json!({ "migrationState": state })).migration.unwrap();
        let under_way = told(json!({
            "migrationUid": "u", "sourceNode": "host-1", "targetNode": "host-2",
            "startTimestamp": "2026-01-01T00:00:00Z",
        }));
        let hosts = (under_way.source.as_deref(), under_way.target.as_deref());
        assert_eq!(hosts, (Some("host-1"), Some("host-2")));
        assert_eq!(under_way.state, MigrationState::Running);
        assert!(under_way.started.is_some());
        let failed = told(json!({ "failed": true, "completed": true, "failureReason": "slow" }));
        assert_eq!(failed.state, MigrationState::Failed("slow".to_owned()));
        let completed = told(json!({ "completed": true }));
        assert_eq!(completed.state, MigrationState::Completed);
    }
}
