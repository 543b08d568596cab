//! The operator, the chart and the CRDs together, on the local infrastructure or any cluster with
//! KubeVirt. Scenarios of a group run in order and may build on one another's cluster.

pub mod audit;
pub mod bench;
pub mod bridge;
pub mod cluster;
pub mod crash;
pub mod guest;
pub mod inside;
pub mod layers;
pub mod life;
pub mod prober;
pub mod stage;
pub mod suite;
pub mod truth;
pub mod wait;
