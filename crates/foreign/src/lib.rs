//! The few fields we read or set of types owned by others: KubeVirt and CDI.
