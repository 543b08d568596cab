//! Certificates of the infrastructure cluster: one authority for everything in it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::addresses::{KUBERNETES_SERVICE, ROUTER};

/// The authority of one infrastructure, with the folder that its leaves are written to.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Vec<u8>,
    folder: PathBuf,
}

/// A certificate and its key, as files (PEM).
#[derive(Debug, Clone)]
pub struct Leaf {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Authority {
    /// Makes a new authority and writes `ca.crt` and `ca.key` into `folder`.
    pub fn create(folder: &Path) -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "guestcluster local infrastructure");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        set_validity(&mut params);
        let certificate = params.self_signed(&key)?;
        write(&folder.join("ca.crt"), &certificate.pem())?;
        write(&folder.join("ca.key"), &key.serialize_pem())?;
        Ok(Self {
            certificate: certificate.der().to_vec(),
            issuer: Issuer::new(params, key),
            folder: folder.to_owned(),
        })
    }

    /// The authority's certificate (DER).
    pub fn der(&self) -> &[u8] {
        &self.certificate
    }

    /// The file with the authority's certificate (PEM).
    pub fn file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Issues `<name>.crt` and `<name>.key` for `common_name`, good for both ends of a connection.
    ///
    /// `alternatives` are DNS names and IP addresses.
    pub fn issue(
        &self,
        name: &str,
        common_name: &str,
        alternatives: Vec<String>,
    ) -> anyhow::Result<Leaf> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(alternatives)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        set_validity(&mut params);
        let certificate = params.signed_by(&key, &self.issuer)?;
        let leaf = Leaf {
            certificate: self.folder.join(format!("{name}.crt")),
            key: self.folder.join(format!("{name}.key")),
        };
        write(&leaf.certificate, &certificate.pem())?;
        write(&leaf.key, &key.serialize_pem())?;
        Ok(leaf)
    }
}

/// Writes a key pair for signing service-account tokens; returns (private, public) key files.
pub fn service_account_keys(folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let key = KeyPair::generate()?;
    let (private, public) = (folder.join("sa.key"), folder.join("sa.pub"));
    write(&private, &key.serialize_pem())?;
    write(&public, &key.public_key_pem())?;
    Ok((private, public))
}

/// Every name under which the API server of the infrastructure is dialled.
pub fn api_server_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
    ]
    .map(str::to_owned)
    .into();
    names.extend([ROUTER.to_string(), KUBERNETES_SERVICE.to_string()]);
    names
}

/// A year, begun an hour ago: the infrastructure lives for hours.
fn set_validity(params: &mut CertificateParams) {
    let now = time::OffsetDateTime::now_utc();
    params.not_before = now - time::Duration::hours(1);
    params.not_after = now + time::Duration::days(365);
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
