//! Whether all machines would find another host if this one were emptied.

use guestcluster_planner::foresight::Foresight;

use crate::stores::Stores;

/// What is known of a host's loss. There is no view of the whole fleet yet that could be asked, so
/// that only a maintenance that does not ask begins.
pub(super) const fn without(_stores: &Stores, _host: &str) -> Foresight {
    Foresight::NotAsked
}
