//! Key material of a cluster: authorities and the administrator's kubeconfig.

use guestcluster_api::labels;
use guestcluster_pki::{
    ADMIN_LIFETIME, AUTHORITY_LIFETIME, Authority as Signer, CLUSTER_SECRET_TYPE,
    CertificateAuthority, ClientProfile, Kubeconfig, SecretData, ServiceAccountKeys, Validity,
};
use guestcluster_planner::action::{Authority, Victim};
use guestcluster_planner::decide::endpoint::server;
use guestcluster_shell::clock::monotonic;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::jiff::SignedDuration;
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};

use super::super::{Context, Round};
use crate::error::Error;
use crate::secret_body::secret_body;

/// The longest life of a kubeconfig.
const A_YEAR: SignedDuration = SignedDuration::from_secs(ADMIN_LIFETIME);

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

    /// Makes the administrator's kubeconfig, and before it the Role that lets a tenant read it: where
    /// the Secret is, so is the Role.
    pub(super) async fn mint_kubeconfig(
        &self,
        round: &Round<'_>,
        (endpoint, former): (&(String, u16), Option<&Victim>),
        metadata: &Value,
    ) -> Result<(), Error> {
        let cluster = &round.subject.wanted.identity.name;
        let authority = self.read_authority(round, Authority::Kubernetes).await?;
        let life = round.subject.wanted.certificate_life.as_secs();
        let validity = Validity::starting(round.now.as_second(), life.min(ADMIN_LIFETIME));
        let credentials = authority
            .issue_client(ClientProfile::Admin, validity)
            .map_err(Error::Minting)?;
        let address = server(endpoint);
        let server = format!("https://{address}");
        let kubeconfig = Kubeconfig {
            cluster,
            server: &server,
            authority: authority.certificate(),
            credentials: &credentials,
        };
        let data = kubeconfig.render().map_err(Error::Minting)?.to_secret();
        let mut metadata = metadata.clone();
        let renew_at = round.now + round.subject.wanted.certificate_life.min(A_YEAR) * 2 / 3;
        metadata["annotations"][labels::RENEW_AT] = json!(renew_at.to_string());
        metadata["annotations"][labels::SERVER] = json!(address);
        if let Some(former) = former {
            return self
                .replace_kubeconfig(round, (metadata, former), &data)
                .await;
        }
        self.create_reader_role(round, &metadata).await?;
        self.create_secret(round, (&metadata, CLUSTER_SECRET_TYPE), &data)
            .await
            .map(drop)
    }

    /// Writes a new kubeconfig over the one that was seen.
    async fn replace_kubeconfig(
        &self,
        round: &Round<'_>,
        (mut metadata, former): (Value, &Victim),
        data: &SecretData,
    ) -> Result<(), Error> {
        metadata["uid"] = json!(former.uid);
        metadata["resourceVersion"] = json!(former.resource_version);
        let body = secret_body(metadata, CLUSTER_SECRET_TYPE, data);
        let api = self.api::<PartialObjectMeta<Secret>>(round);
        let written = self.writer.apply(&api, &body).await?;
        self.ledger.wrote(round.subject.key, &written, monotonic());
        Ok(())
    }

    /// Makes a Role that may read the Secret of this metadata and nothing else. It is not watched:
    /// its owner takes it along when it goes.
    async fn create_reader_role(&self, round: &Round<'_>, secret: &Value) -> Result<(), Error> {
        let body = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": secret,
            "rules": [{
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": [secret["name"]],
                "verbs": ["get"],
            }],
        });
        let api = self.api::<PartialObjectMeta<Role>>(round);
        self.writer.create(&api, &body).await?;
        Ok(())
    }

    /// Makes a Secret; `true` if this call made it.
    pub(super) async fn create_secret(
        &self,
        round: &Round<'_>,
        (metadata, type_): (&Value, &'static str),
        data: &SecretData,
    ) -> Result<bool, Error> {
        let body = secret_body(metadata.clone(), type_, data);
        let api = self.api::<PartialObjectMeta<Secret>>(round);
        self.create_at(round, &api, &body).await
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
