//! What a host can hold: quantities, hosts, what machines ask of them and what is left.

mod amount;
mod host;
mod launcher;
mod pod;
mod quantity;
mod requests;
mod usage;

pub use amount::{Rounding, amount};
pub use host::{Host, Taint};
pub use launcher::Launcher;
pub use pod::{InitContainer, PodShape};
pub use quantity::{NotAQuantity, Quantity};
pub use requests::{Requests, resource};
pub use usage::{Holding, Usage};
