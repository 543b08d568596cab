//! Key material of a cluster: authorities and the administrator's kubeconfig.

use guestcluster_pki::{
    ADMIN_LIFETIME, AUTHORITY_LIFETIME, Authority as Signer, CLUSTER_SECRET_TYPE,
    CertificateAuthority, ClientProfile, Kubeconfig, SecretData, ServiceAccountKeys, Validity,
};
use guestcluster_planner::action::Authority;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::super::{Context, Round};
use crate::error::Error;
use crate::secret_body::secret_body;

impl Context {
    /// Makes an authority's Secret. One of ours that is there already stays as it is.
    pub(super) async fn mint_authority(
        &self,
        round: &Round<'_>,
        (authority, key): (Authority, Option<ServiceAccountKeys>),
        metadata: &Value,
    ) -> Result<(), Error> {
        let validity = Validity::starting(round.now.as_second(), AUTHORITY_LIFETIME);
        let generate = |signer| {
            CertificateAuthority::generate(signer, validity)
                .map(|authority| authority.to_secret())
                .map_err(Error::Minting)
        };
        let data = match authority {
            Authority::Kubernetes => generate(Signer::Kubernetes)?,
            Authority::Etcd => generate(Signer::Etcd)?,
            Authority::FrontProxy => generate(Signer::FrontProxy)?,
            Authority::ServiceAccount => {
                let missing = || Error::Malformed("no service-account key was prepared".to_owned());
                key.ok_or_else(missing)?.to_secret()
            }
        };
        self.create_secret(round, (metadata, CLUSTER_SECRET_TYPE), &data)
            .await
            .map(drop)
    }

    /// Makes the administrator's kubeconfig.
    pub(super) async fn mint_kubeconfig(
        &self,
        round: &Round<'_>,
        endpoint: &(String, u16),
        metadata: &Value,
    ) -> Result<(), Error> {
        let cluster = &round.subject.wanted.identity.name;
        let authority = self.read_authority(round, Authority::Kubernetes).await?;
        let validity = Validity::starting(round.now.as_second(), ADMIN_LIFETIME);
        let credentials = authority
            .issue_client(ClientProfile::Admin, validity)
            .map_err(Error::Minting)?;
        let server = format!("https://{}:{}", endpoint.0, endpoint.1);
        let kubeconfig = Kubeconfig {
            cluster,
            server: &server,
            authority: authority.certificate(),
            credentials: &credentials,
        };
        let data = kubeconfig.render().map_err(Error::Minting)?.to_secret();
        self.create_secret(round, (metadata, CLUSTER_SECRET_TYPE), &data)
            .await
            .map(drop)
    }

    /// Makes a Secret; `true` if this call made it.
    pub(super) async fn create_secret(
        &self,
        round: &Round<'_>,
        (metadata, type_): (&Value, &'static str),
        data: &SecretData,
    ) -> Result<bool, Error> {
        let body = secret_body(metadata.clone(), type_, data);
        self.create_as::<PartialObjectMeta<Secret>, _>(round, &body)
            .await
    }

    /// An authority from its Secret.
    pub(super) async fn read_authority(
        &self,
        round: &Round<'_>,
        authority: Authority,
    ) -> Result<CertificateAuthority, Error> {
        let (secret, data) = self.read_material(round, authority).await?;
        CertificateAuthority::from_secret(&data)
            .map_err(|source| Error::DamagedSecret { secret, source })
    }

    /// Name and content of an authority's Secret.
    pub(super) async fn read_material(
        &self,
        round: &Round<'_>,
        authority: Authority,
    ) -> Result<(String, SecretData), Error> {
        let name = authority.secret(&round.subject.wanted.identity.name);
        let data = self
            .secrets
            .read(&round.subject.key.namespace, &name)
            .await?;
        Ok((name, data))
    }
}
