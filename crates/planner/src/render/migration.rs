//! The move of a machine to another host while it runs.

use serde_json::json;

use super::{digest, machine_labels, metadata};
use crate::action::{Kind, Object};
use crate::wanted::{Pool, Wanted};

/// Name of the migration of a machine out of the launcher Pod with this UID. A Pod has one: what was
/// tried is not tried again, whoever remembers it.
pub fn migration_name(machine: &str, pod: &str) -> String {
    format!("{machine}-{}", digest(pod, 8))
}

/// A VirtualMachineInstanceMigration. Where to is left to the scheduler, which knows the machine's
/// rules from its template.
pub fn migration(wanted: &Wanted, pool: &Pool, (machine, pod): (&str, &str)) -> Object {
    let name = migration_name(machine, pod);
    let labels = machine_labels(wanted, pool, machine);
    let body = json!({
        "apiVersion": Kind::Migration.api_version(),
        "kind": Kind::Migration.name(),
        "metadata": metadata(wanted, &name, &labels),
        "spec": { "vmiName": machine },
    });
    Object {
        kind: Kind::Migration,
        name,
        body,
    }
}
