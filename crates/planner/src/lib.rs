//! Given what is wanted, what was seen and the time: what to do next, and what to say about it.
//!
//! Nothing here talks to a server, reads a clock or draws a random number. [`plan`] takes one
//! snapshot and returns actions with their reasons, what holds back further ones, and when to look
//! again; [`report::status`] turns the same snapshot into the status that a user reads.
//!
//! Promises, each held against thousands of histories with faults in `tests/laws.rs`, and those of a
//! control plane's life against all that can happen in small worlds in `tests/model.rs`:
//! 1. Equal input gives the equal plan.
//! 2. At most one disruptive action a plan, except in a deletion.
//! 3. Nothing is deleted because something could not be reached, nor because a person deleted a part
//!    of it; and nothing of ours costs etcd its quorum.
//! 4. A machine's name is recorded in status before its first object is made, and used once.
//! 5. A machine that joined goes by a departure that status has told of, or not at all; one that a
//!    person stopped stays stopped, unless it is out of etcd for good.
//! 6. Once faults stop, the guest becomes ready, whatever happened before; then nothing is written.
//! 7. A deletion ends with nothing left, or with the disks that were to be kept, whatever the guest
//!    says.

pub mod action;
pub mod chain;
pub mod cidr;
pub mod decide;
pub mod departure;
pub mod foresight;
mod home;
pub mod machines;
pub mod maintenance;
pub mod observed;
pub mod ordinals;
pub mod permissions;
pub mod render;
pub mod report;
pub mod wanted;

pub use action::{Action, Hold, Plan, Requeue};
pub use decide::plan;
pub use observed::Observed;
pub use wanted::Wanted;
