//! Which hosts may take a machine, or exactly why they may not; and whether all still have a home if
//! hosts died; and what of etcd's disks is lost together.

mod eligible;
mod fit;
mod rollout;
mod storage;
mod what_if;

pub use eligible::{Refusal, Requirements, Toleration, refusal};
pub use fit::{Needs, fit};
pub use rollout::{Replacement, Rollout, reasons, rollout};
pub use storage::{Demand, Domain, EtcdDisk, Property, Reach, Spread, Test, Together, spread};
pub use what_if::{Cure, Fleet, Machine, NewHost, NoSuchHost, Outcome, Shortfall, WhatIf};
