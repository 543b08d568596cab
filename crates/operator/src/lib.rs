//! Observes, plans, executes and reports for GuestCluster and HostMaintenance.

pub mod args;
pub mod capi;
pub mod doors;
pub mod error;
pub mod etcd;
pub mod forecast;
pub mod gauges;
pub mod guest_api;
pub mod guest_cluster;
pub mod host_maintenance;
pub mod host_pod;
pub mod keys;
pub mod leader;
pub mod memory;
pub mod pointer;
pub mod run;
pub mod secret_body;
pub mod secrets;
pub mod stores;
pub mod views;
pub mod wiring;

pub use error::Error;
