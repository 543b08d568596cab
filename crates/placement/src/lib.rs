//! Which hosts may take a machine, or exactly why they may not.

mod eligible;
mod fit;
mod rollout;

pub use eligible::{Refusal, Requirements, Toleration, refusal};
pub use fit::{Needs, fit};
pub use rollout::{Replacement, Rollout, reasons, rollout};
