//! What a machine's first-boot document asks for, read as the real machine reads it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::Context as _;
use guestcluster_pki::Certificate;
use serde_json::Value;

/// The file in which kubeadm finds its configuration.
const KUBEADM: &str = "/run/kubeadm/kubeadm.yaml";
/// Where `kubeadm init` finds the authority that it is to use.
const AUTHORITY: &str = "/etc/kubernetes/pki/ca.crt";

/// A first boot.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// The machine becomes a node.
    FirstBoot(Box<FirstBoot>),
    /// The document of a machine that has joined before.
    Restart,
}

/// What kubeadm is told.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstBoot {
    /// Name of the Node.
    pub name: String,
    /// Which verb.
    pub verb: Verb,
    /// The address that a control-plane machine tells others.
    pub advertise: Option<Ipv4Addr>,
    /// Labels that the kubelet registers with.
    pub labels: BTreeMap<String, String>,
    /// Taints that it registers with.
    pub taints: Value,
    /// kubeadm is to label and taint the Node of the control plane.
    pub marks: bool,
    /// The token, `<id>.<secret>`.
    pub token: String,
    /// Digest of the public key of the guest's authority, `sha256:…`.
    pub authority: String,
    /// `host:port` of the guest's API.
    pub endpoint: String,
}

/// `kubeadm init`, or `kubeadm join`.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// Begins a guest.
    Init {
        /// kubeadm's ClusterConfiguration.
        cluster: Value,
    },
    /// Joins one.
    Join {
        /// With an API server and a member of etcd.
        control_plane: bool,
    },
}

impl FirstBoot {
    /// Whether the machine is to run an API server and etcd.
    pub fn is_control_plane(&self) -> bool {
        !matches!(
            self.verb,
            Verb::Join {
                control_plane: false,
                ..
            }
        )
    }
}

impl Document {
    /// Reads a `#cloud-config` document.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        let json = text
            .strip_prefix("#cloud-config")
            .context("no #cloud-config")?;
        let config: Value = serde_json::from_str(json)?;
        let file = |path: &str| {
            let mut files = config["write_files"].as_array()?.iter();
            files.find(|file| file["path"] == path)?["content"].as_str()
        };
        let Some(text) = file(KUBEADM) else {
            return Ok(Self::Restart);
        };
        let documents: Vec<Value> = text
            .split("\n---\n")
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        first_boot(&documents, file(AUTHORITY)).map(|boot| Self::FirstBoot(Box::new(boot)))
    }
}

fn first_boot(documents: &[Value], authority: Option<&str>) -> anyhow::Result<FirstBoot> {
    let of_kind = |kind: &str| documents.iter().find(|document| document["kind"] == kind);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (document, verb) = match (of_kind("InitConfiguration"), of_kind("JoinConfiguration")) {
        (Some(init), _) => {
            let cluster = of_kind("ClusterConfiguration").context("no ClusterConfiguration")?;
            let cluster = cluster.clone();
            (init, Verb::Init { cluster })
        }
        (None, Some(join)) => {
            let control_plane = join["controlPlane"].is_object();
            (join, Verb::Join { control_plane })
        }
        (None, None) => anyhow::bail!("neither init nor join"),
    };
    let advertise = ["/localAPIEndpoint", "/controlPlane/localAPIEndpoint"];
    let advertise = advertise.iter().find_map(|path| {
        document.pointer(path)?["advertiseAddress"]
            .as_str()?
            .parse()
            .ok()
    });
    let registration = &document["nodeRegistration"];
    let discovery = &document["discovery"]["bootstrapToken"];
    let (token, endpoint, authority) = match &verb {
        Verb::Init { cluster } => {
            let authority = Certificate::from_pem(authority.context("no authority")?)?;
            (
                text(&document["bootstrapTokens"][0]["token"]),
                text(&cluster["controlPlaneEndpoint"]),
                Some(authority.public_key_hash().to_string()),
            )
        }
        Verb::Join { .. } => (
            text(&discovery["token"]),
            text(&discovery["apiServerEndpoint"]),
            text(&discovery["caCertHashes"][0]),
        ),
    };
    Ok(FirstBoot {
        name: text(&registration["name"]).context("no name of a Node")?,
        verb,
        advertise,
        labels: labels(&registration["kubeletExtraArgs"]),
        taints: registration["taints"].clone(),
        marks: document["skipPhases"].is_null(),
        token: token.context("no token")?,
        authority: authority.context("no digest of the authority")?,
        endpoint: endpoint.context("no endpoint")?,
    })
}

fn labels(arguments: &Value) -> BTreeMap<String, String> {
    let mut arguments = arguments.as_array().into_iter().flatten();
    let labels = arguments.find(|argument| argument["name"] == "node-labels");
    let labels = labels.and_then(|argument| argument["value"].as_str());
    let pairs = labels.unwrap_or_default().split(',');
    pairs
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Document, Verb};

    #[test]
    fn a_join_is_read_from_the_document_of_kubeadm() {
        let join = json!({
            "kind": "JoinConfiguration",
            "discovery": { "bootstrapToken": {
                "token": "abcdef.0123456789abcdef", "caCertHashes": ["sha256:1"],
                "apiServerEndpoint": "10.79.0.1:6443",
            }},
            "nodeRegistration": { "name": "a-w-1", "taints": [], "kubeletExtraArgs": [
                { "name": "node-labels", "value": "l=v" },
            ]},
        });
        let files = [json!({ "path": super::KUBEADM, "content": join.to_string() })];
        let text = format!("#cloud-config\n{}\n", json!({ "write_files": files }));
        let Document::FirstBoot(boot) = Document::read(&text).unwrap() else {
            panic!("a restart");
        };
        assert_eq!((&*boot.name, &*boot.labels["l"]), ("a-w-1", "v"));
        let control_plane = false;
        assert_eq!(boot.verb, Verb::Join { control_plane });
        assert_eq!(
            (&*boot.authority, &*boot.endpoint),
            ("sha256:1", "10.79.0.1:6443")
        );
    }

    #[test]
    fn without_a_configuration_of_kubeadm_it_is_a_restart() {
        let text = "#cloud-config\n{\"write_files\": []}\n";
        assert_eq!(Document::read(text).unwrap(), Document::Restart);
    }
}
