//! A local infrastructure cluster with KubeVirt's controllers, hosts and guest machines on one Linux box.

pub mod addresses;
mod build_command;
pub mod cache;
pub mod cluster_api;
pub mod control;
mod control_plane;
mod data_centre;
pub mod faults;
mod guests;
mod handler;
pub mod host_packages;
mod hosts;
mod identity;
mod informer;
mod kubectl;
pub mod kubelet;
mod kubevirt;
mod load_balancer;
pub mod machine;
pub mod network;
pub mod node_image;
pub mod options;
mod pki;
pub mod process;
pub mod progress;
mod room;
pub mod run_dir;
pub mod runner;
mod static_binary;
pub mod status;
mod storage;
pub mod tools;
pub mod up;

pub use data_centre::{ANSWERS, PAPER_LABEL};
