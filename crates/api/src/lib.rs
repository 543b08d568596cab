//! What users write and read: the `GuestCluster` kind, its conditions and reasons, and every label,
//! annotation, finalizer, field-manager and object name that the project uses.

pub mod conditions;
pub mod labels;
pub mod names;
pub mod spec;
pub mod status;

pub use conditions::{ConditionType, Reason};
pub use spec::{GuestCluster, GuestClusterSpec};
pub use status::GuestClusterStatus;
