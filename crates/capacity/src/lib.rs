//! What a host can hold: quantities, hosts and what they offer.

mod host;
mod quantity;

pub use host::{Host, Taint};
pub use quantity::{NotAQuantity, Quantity};
