//! Serving Cluster API as its infrastructure provider, on the kinds of its provider for KubeVirt
//! (CAPK): what to do for one Cluster, and what to say of it.
//!
//! A Cluster is planned for as a whole, so that its machines wait for each other where they must.
//!
//! # Guarantees
//! - A paused Cluster, and a paused object, is not written to but for the condition that says so.
//! - An object is held by its finalizer until what was made for it is gone.
//! - What clusterctl takes elsewhere goes without what was made for it.
//! - A virtual machine is written once. One that carries no label of its KubevirtMachine is nobody's of
//!   ours.
//! - At most one machine of a Cluster leaves its host at a time.

pub mod action;
pub mod capacity;
mod cluster;
pub mod condition;
mod endpoint;
mod eviction;
mod machine;
mod report;
pub mod seen;
mod trouble;
pub mod user_data;
pub mod virtual_machine;

use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};

pub use action::{Action, Owner, Plan, Target};
pub use endpoint::service_namespace;
pub use machine::REFUSED;
pub use report::is_progress;
pub use seen::{Dialect, Guest, Machine, Refusal, Seen, UserData};

/// What to do for a Cluster and what to say of it.
pub fn plan(seen: &Seen, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    cluster::plan(seen, now, &mut plan);
    for one in seen.machines.values() {
        machine::plan(seen, one, now, &mut plan);
    }
    plan
}

/// Whether a plan depends on what the guest says: a machine boots, or leaves its host, or came back
/// from that. A guest in which nothing is on its way is not asked.
pub fn asks_guest(seen: &Seen) -> bool {
    seen.machines.values().any(|one| {
        let status = one.object.status.as_ref();
        let is_linked = status.is_some_and(|status| status.nodeupdated);
        let instance = one.instance.as_ref();
        let runs = instance.is_some_and(|instance| machine::is_on(one, instance));
        let moves = eviction::must_leave(one) || !machine::was_ready(one);
        runs && !one.is_deleting() && (!is_linked || moves)
    })
}

/// Whether an object is deleted here alone, since clusterctl has taken it elsewhere: its machine runs on.
/// The Cluster's pause does not say so for long enough, as its own end may be seen before that of its
/// objects, which then look like those of a Cluster that is gone.
fn is_moved<K: Resource>(object: &K) -> bool {
    object.annotations().contains_key(crate::capi::MOVED)
}
