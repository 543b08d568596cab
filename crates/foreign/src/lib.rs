//! The few fields that we read of kinds owned by others. Decoding is a field mask: what is not
//! modelled here is dropped, which keeps stores small. For the same reason these types are never
//! written back whole; objects are rendered as JSON and applied server-side.

pub mod capi;
pub mod capk;
pub mod cdi;
pub mod core;
pub mod kubevirt;
