//! What happens when hosts are few: room for the loss of one or of a zone, and machines that share one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What follows if the loss of a host would leave machines without a host.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapacityPolicy {
    /// No machine is added that would make it so.
    Enforce,
    /// Machines are added all the same, and a condition tells.
    #[default]
    Warn,
    /// Nobody is told.
    Ignore,
}

/// Whose loss is to be survived.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapacityScope {
    /// That of any one host.
    #[default]
    Host,
    /// That of all hosts of any one zone as well.
    Zone,
}

/// What the operator may mend by itself.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Repair {
    /// Control-plane machines that share a host: `Move`, one after another restarts on another host,
    /// if one has room and etcd can spare the machine meanwhile; or `Report`, the condition
    /// `PlacementHealthy` tells and nothing is done.
    #[serde(default)]
    pub co_location: CoLocation,
}

/// What becomes of control-plane machines that share a host.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoLocation {
    /// They are moved apart.
    #[default]
    Move,
    /// They are told of.
    Report,
}
