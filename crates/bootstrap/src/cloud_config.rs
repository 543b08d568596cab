//! The `#cloud-config` document itself.

use std::fmt;

use guestcluster_pki::SecretData;
use serde::Serialize;
use zeroize::Zeroizing;

use crate::Error;

/// Key of the document in its Secret, as KubeVirt reads it.
pub const USER_DATA_KEY: &str = "userdata";

/// The text of a document. May hold secrets, so it is wiped when dropped and never shown.
#[derive(Clone)]
pub struct UserData(Zeroizing<String>);

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData(<{} bytes>)", self.0.len())
    }
}

impl UserData {
    /// The document itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `data` of its Secret.
    pub fn to_secret(&self) -> SecretData {
        SecretData::from_iter([(USER_DATA_KEY, self.expose())])
    }
}

/// A file that cloud-init writes.
#[derive(Clone, Serialize)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) owner: &'static str,
    pub(crate) permissions: &'static str,
    pub(crate) content: Zeroizing<String>,
}

/// Readable by root alone.
const SECRET: &str = "0600";
const PUBLIC: &str = "0644";

impl File {
    pub(crate) fn public(path: &str, content: &str) -> Self {
        Self {
            path: path.to_owned(),
            owner: "root:root",
            permissions: PUBLIC,
            content: Zeroizing::new(content.to_owned()),
        }
    }

    pub(crate) fn secret(path: &str, content: &str) -> Self {
        Self {
            permissions: SECRET,
            ..Self::public(path, content)
        }
    }
}

/// What cloud-init does at the first boot, and only then.
#[derive(Serialize)]
pub(crate) struct CloudConfig<'a> {
    hostname: &'a str,
    /// Some distributions would name the machine by a domain name, which then is not the name
    /// of its Node.
    prefer_fqdn_over_hostname: bool,
    preserve_hostname: bool,
    /// The machine finds its own name without a name server: kubelet looks it up each time it
    /// registers, and waits for seconds where no server answers.
    manage_etc_hosts: &'static str,
    write_files: Vec<File>,
    runcmd: Vec<Vec<&'a str>>,
}

impl<'a> CloudConfig<'a> {
    pub(crate) fn new(hostname: &'a str, write_files: Vec<File>, command: Vec<&'a str>) -> Self {
        Self {
            hostname,
            prefer_fqdn_over_hostname: false,
            preserve_hostname: false,
            manage_etc_hosts: "localhost",
            write_files,
            runcmd: vec![command],
        }
    }

    /// JSON is YAML, and nothing that stands in it can break out of a string.
    pub(crate) fn to_user_data(&self) -> Result<UserData, Error> {
        let json = serde_json::to_string_pretty(self)
            .map(Zeroizing::new)
            .map_err(|error| Error::Unwritable(error.to_string()))?;
        Ok(UserData(Zeroizing::new(format!(
            "#cloud-config\n{}\n",
            json.as_str()
        ))))
    }
}
