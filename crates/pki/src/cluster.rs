//! Everything that a control-plane machine must be given.

use crate::{
    Authority, CertificateAuthority, Error, ServiceAccountKeys, SigningAlgorithm, Validity,
};

/// The key material of one guest cluster.
#[derive(Clone, Debug)]
pub struct ClusterPki {
    /// `<cluster>-ca`.
    pub kubernetes: CertificateAuthority,
    /// `<cluster>-etcd`.
    pub etcd: CertificateAuthority,
    /// `<cluster>-proxy`.
    pub front_proxy: CertificateAuthority,
    /// `<cluster>-sa`.
    pub service_account: ServiceAccountKeys,
}

impl ClusterPki {
    /// All new, with keys from the operating system's generator. `tokens` is how service-account
    /// tokens are signed.
    pub fn generate(validity: Validity, tokens: SigningAlgorithm) -> Result<Self, Error> {
        Ok(Self {
            kubernetes: CertificateAuthority::generate(Authority::Kubernetes, validity)?,
            etcd: CertificateAuthority::generate(Authority::Etcd, validity)?,
            front_proxy: CertificateAuthority::generate(Authority::FrontProxy, validity)?,
            service_account: ServiceAccountKeys::generate(tokens)?,
        })
    }
}
