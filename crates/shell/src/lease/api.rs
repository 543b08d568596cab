//! The three requests that an election makes.

use std::future::Future;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;

/// One lease on some API server.
pub trait LeaseApi: Send + Sync {
    /// Reads it; `None` if there is none.
    fn get(&self) -> impl Future<Output = kube::Result<Option<Lease>>> + Send;
    /// Makes it; fails if there is one.
    fn create(&self, lease: &Lease) -> impl Future<Output = kube::Result<Lease>> + Send;
    /// Replaces exactly the version that `lease` carries; fails with a conflict if there is a
    /// newer one.
    fn replace(&self, lease: &Lease) -> impl Future<Output = kube::Result<Lease>> + Send;
}

/// A lease in Kubernetes.
#[derive(Clone, Debug)]
pub struct NamedLease {
    api: Api<Lease>,
    name: String,
}

impl NamedLease {
    /// The lease of that name in the namespace of `api`.
    pub fn new(api: Api<Lease>, name: &str) -> Self {
        Self {
            api,
            name: name.to_owned(),
        }
    }
}

impl LeaseApi for NamedLease {
    async fn get(&self) -> kube::Result<Option<Lease>> {
        self.api.get_opt(&self.name).await
    }

    async fn create(&self, lease: &Lease) -> kube::Result<Lease> {
        let mut lease = lease.clone();
        lease.metadata.name = Some(self.name.clone());
        self.api.create(&PostParams::default(), &lease).await
    }

    async fn replace(&self, lease: &Lease) -> kube::Result<Lease> {
        // The API server takes a PUT without a version as unconditional; ours always has one, as
        // it was read before.
        self.api
            .replace(&self.name, &PostParams::default(), lease)
            .await
    }
}
