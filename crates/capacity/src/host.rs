//! Hosts, as placement sees them.

use std::collections::BTreeMap;

use crate::Quantity;

/// A physical node of the infrastructure cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Name of its Node.
    pub name: String,
    /// Labels of its Node.
    pub labels: BTreeMap<String, String>,
    /// Taints of its Node.
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Its kubelet reports it ready.
    pub ready: bool,
    /// Allocatable by resource name; `cpu` in CPUs, `memory` in bytes.
    pub allocatable: BTreeMap<String, Quantity>,
}

/// A taint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}
