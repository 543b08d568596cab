//! How machines are moved off their hosts.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How machines are moved off their hosts.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// Limits of moves to another host while a machine runs. Machines with devices never move so.
    #[serde(default)]
    pub migration: Migration,
}

/// Limits of moves to another host while a machine runs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// How much one migration may send in a second, such as `1Gi`. Default: what KubeVirt is set to for
    /// its whole cluster, which is no limit unless somebody wrote one. A machine whose memory does not
    /// pass within 20 minutes at this pace is not migrated, but shut down and started elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    #[x_kube(validation = Rule::new("isQuantity(self) && quantity(self).compareTo(quantity('1Mi')) >= 0")
        .message("bandwidthPerMigration must be a quantity of at least 1Mi, which may pass in a second, written like 1Gi"))]
    pub bandwidth_per_migration: Option<String>,
}
