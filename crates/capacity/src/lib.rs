//! What a host can hold: quantities, hosts, what machines ask of them and what is left;
//! and what a machine's own Node offers.

mod amount;
mod host;
mod kubelet;
mod launcher;
mod pod;
mod quantity;
mod requests;
mod usage;

pub use amount::{Rounding, amount};
pub use host::{Host, Taint};
pub use kubelet::{Kubelet, Threshold, guest_memory};
pub use launcher::Launcher;
pub use pod::{InitContainer, PodShape};
pub use quantity::{NotAQuantity, Quantity};
pub use requests::{Requests, resource};
pub use usage::{Holding, Usage};
