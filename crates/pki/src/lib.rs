//! From keys, time and what exists: certificates, kubeconfigs and bootstrap tokens.
