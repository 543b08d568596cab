//! Cluster API in and out.
//!
//! Nothing here talks to a server: what is decided is returned as data, and the operator or the
//! command line carries it out.
//!
//! - [`export::export`]: the manifests of Cluster API and CAPK that come closest to a GuestCluster,
//!   and a list of all that they cannot say.
//! - [`import::import`]: the GuestCluster that such manifests come from, and a list of all that it
//!   cannot say.
//! - [`adopt::adopt`]: whether a Cluster that runs can become a GuestCluster as it runs, and how.
//!
//! # Guarantees
//! - What the manifests do not say is found by reading them back: it is listed, and kept in an
//!   annotation of the Cluster. Nothing is left out in silence.
//! - Import after export gives the specification that was exported.

pub mod adopt;
pub mod capi;
pub mod export;
pub mod import;
mod leaves;
pub mod serve;
