//! Whether an instance can live-migrate.

use guestcluster_foreign::kubevirt::VmCondition;
use guestcluster_planner::observed::Migratable;

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
}
