//! Cluster API in and out.
//!
//! Nothing here talks to a server: what is decided is returned as data, and the operator or the
//! command line carries it out.

pub mod capi;
pub mod serve;
