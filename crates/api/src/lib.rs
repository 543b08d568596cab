//! What users write and read: the kinds `GuestCluster` and `HostMaintenance`, their conditions and reasons, and every label,
//! annotation, finalizer, field-manager and object name that the project uses.

pub mod conditions;
pub mod host_maintenance;
pub mod labels;
pub mod names;
pub mod spec;
pub mod status;

pub use conditions::{ConditionType, Reason};
pub use host_maintenance::{HostMaintenance, HostMaintenanceSpec, HostMaintenanceStatus};
pub use spec::{GuestCluster, GuestClusterSpec};
pub use status::GuestClusterStatus;
