//! Which hosts may take a machine, or exactly why they may not.

mod eligible;

pub use eligible::{Refusal, Requirements, Toleration, refusal};
