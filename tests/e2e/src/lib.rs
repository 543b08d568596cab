//! The operator, the chart and the CRDs together, on the local infrastructure or any cluster with KubeVirt.
