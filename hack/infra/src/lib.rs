//! A local infrastructure cluster with KubeVirt's controllers, hosts and guest machines on one Linux box.
