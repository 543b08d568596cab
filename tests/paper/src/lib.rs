//! A stand-in for guest clusters, where hundreds of copies or crash tables are needed.
//!
//! Paper machines are instances that the local infrastructure runs without booting anything
//! (`paper` in its options). This crate gives each of them what the operator asks of a real one:
//! it reads its first-boot document, joins or begins a guest, and answers over mutual TLS as API
//! server and as etcd, at its own address.
//!
//! # Guarantees
//! - etcd's rules of membership are etcd's own ([`etcd`]).
//! - What the operator decodes of an answer is as a real guest's: `tests/truth.rs` replays exchanges
//!   that were recorded with one.
//! - A request that the paper guest does not know is answered with a refusal and noted in
//!   [`world::World::unknown`].
//!
//! # Caveats
//! - A join looks for its guest by the digest of the authority, not through the endpoint.
//! - Nothing that is applied is validated, and there is no authorization beyond the certificate.

mod boot;
pub mod document;
pub mod etcd;
pub mod gateway;
pub mod guest;
pub mod host;
pub mod json_patch;
pub mod judge;
pub mod network;
pub mod objects;
pub mod pace;
pub mod reply;
pub mod request;
pub mod script;
mod server;
mod tls;
mod watch;
pub mod world;

pub use host::Paper;
pub use judge::{Admission, Judge, Lenient, Outcome};
pub use pace::Pace;
