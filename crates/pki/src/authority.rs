//! Certificate authorities of a guest, and what they sign.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use zeroize::Zeroizing;

use crate::{
    Certificate, ClientCredentials, ClientProfile, Error, PrivateKey, SecretData, SubjectAltName,
    Validity, pem,
};

/// The three authorities of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    /// Signs API servers, kubelets and users.
    Kubernetes,
    /// Signs etcd's servers, peers and clients.
    Etcd,
    /// Signs the API server's requests to aggregated API servers.
    FrontProxy,
}

impl Authority {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Kubernetes, Self::Etcd, Self::FrontProxy];

    /// What follows the cluster's name in the Secret's name: `prod-ca`, `prod-etcd`,
    /// `prod-proxy`.
    pub const fn secret_suffix(self) -> &'static str {
        match self {
            Self::Kubernetes => "ca",
            Self::Etcd => "etcd",
            Self::FrontProxy => "proxy",
        }
    }

    /// Common name of a generated authority.
    pub const fn common_name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes-ca",
            Self::Etcd => "etcd-ca",
            Self::FrontProxy => "front-proxy-ca",
        }
    }
}

/// A certificate that may sign others, with its key.
#[derive(Clone, Debug)]
pub struct CertificateAuthority {
    certificate: Certificate,
    key: PrivateKey,
}

impl CertificateAuthority {
    /// A new self-signed authority with an ECDSA P-256 key from the operating system's
    /// generator.
    pub fn generate(authority: Authority, validity: Validity) -> Result<Self, Error> {
        let key = PrivateKey::generate_ecdsa()?;
        let mut params = params(authority.common_name(), None, validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let signed = params.self_signed(&*key.key_pair()?).map_err(generation)?;
        let certificate = Certificate::from_pem(&pem::encode("CERTIFICATE", signed.der()))?;
        Ok(Self { certificate, key })
    }

    /// An authority that exists: the certificate must be one, and the key must be its own.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, Error> {
        let certificate = Certificate::from_pem(certificate)?;
        let key = PrivateKey::from_pem(key)?;
        if !certificate.is_authority() {
            return Err(Error::NotAnAuthority);
        }
        if !certificate.matches(&key)? {
            return Err(Error::KeyMismatch("certificate"));
        }
        Ok(Self { certificate, key })
    }

    /// An authority from its Secret, which a user may have brought.
    pub fn from_secret(data: &SecretData) -> Result<Self, Error> {
        let (public, private) = data.pair()?;
        Self::from_pem(public, private)
    }

    /// `data` of its Secret.
    pub fn to_secret(&self) -> SecretData {
        SecretData::from_pair(self.certificate.pem(), self.key.expose_pem())
    }

    /// Its certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Its key.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// Signs a client certificate with a fresh key. It ends no later than the authority itself.
    pub fn issue_client(
        &self,
        profile: ClientProfile,
        validity: Validity,
    ) -> Result<ClientCredentials, Error> {
        let validity = validity.until_at_most(self.certificate.not_after());
        let mut params = params(profile.common_name(), profile.organization(), validity)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    /// Signs a server certificate for `names` with a fresh key. It ends no later than the
    /// authority itself.
    pub fn issue_server(
        &self,
        names: &[SubjectAltName],
        validity: Validity,
    ) -> Result<ClientCredentials, Error> {
        let validity = validity.until_at_most(self.certificate.not_after());
        let mut params = params("server", None, validity)?;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.subject_alt_names = names.iter().map(san).collect::<Result<_, _>>()?;
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<ClientCredentials, Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = PrivateKey::generate_ecdsa()?;
        let own_key = self.key.key_pair()?;
        let issuer = issuer(&self.certificate, &own_key)?;
        let signed = params
            .signed_by(&*key.key_pair()?, &issuer)
            .map_err(generation)?;
        let certificate = Certificate::from_pem(&pem::encode("CERTIFICATE", signed.der()))?;
        Ok(ClientCredentials { certificate, key })
    }
}

fn issuer<'a>(
    certificate: &Certificate,
    key: &'a Zeroizing<KeyPair>,
) -> Result<Issuer<'static, &'a KeyPair>, Error> {
    Issuer::from_ca_cert_pem(certificate.pem(), &**key).map_err(generation)
}

fn params(
    common_name: &str,
    organization: Option<&str>,
    validity: Validity,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = validity.checked()?.to_dates()?;
    let mut name = DistinguishedName::new();
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name.push(DnType::CommonName, common_name);
    params.distinguished_name = name;
    Ok(params)
}

fn san(name: &SubjectAltName) -> Result<SanType, Error> {
    match name {
        SubjectAltName::Ip(address) => Ok(SanType::IpAddress(IpAddr::clone(address))),
        SubjectAltName::Dns(host) => host
            .as_str()
            .try_into()
            .map(SanType::DnsName)
            .map_err(generation),
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the signature that map_err wants"
)]
fn generation(error: rcgen::Error) -> Error {
    Error::Generation(error.to_string())
}
