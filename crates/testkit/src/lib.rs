//! Builders that read as sentences and a simulated world for the planner; for tests alone.
//!
//! [`world::World`] is a model of all that a GuestCluster lives in: the infrastructure cluster's
//! objects, KubeVirt, hosts, machines that boot, kubeadm, etcd, and the operator that carries plans
//! out. It models objects and their effects, not HTTP, so that thousands of histories with faults
//! can be walked in seconds; each is repeated exactly by its seed and its steps. [`model::walk`] goes
//! through all of them, in worlds small enough.

pub mod build;
mod chance;
pub mod model;
pub mod world;

pub use build::{cluster, guest_infra};
pub use world::{Fault, Mishap, Move, Step, World};
