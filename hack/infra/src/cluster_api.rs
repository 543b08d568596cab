//! Cluster API's controllers on the infrastructure cluster, with the KubeVirt provider or without it.
//!
//! They are installed as any cluster has them: Deployments under accounts of their own with the rights that they
//! ship, and webhooks behind Services. Only cert-manager is stood in for: the run's own authority issues what it
//! would, and each Deployment's image is a program of the box.

use std::path::PathBuf;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::kubectl::Kubectl;
use crate::kubelet::images::{Image, Images};
use crate::pki::Authority;
use crate::tools::ClusterApi;

/// Core, whose kinds all others look for when they start.
const CORE: &str = "capi-core";
/// The kubeadm bootstrap provider and the kubeadm control-plane provider.
const KUBEADM: [&str; 2] = ["capi-kubeadm-bootstrap", "capi-kubeadm-control-plane"];
/// The KubeVirt provider.
const CAPK: &str = "capk";

/// The annotation by which cert-manager knows whose authority an object wants: `namespace/certificate`.
const WANTS_AUTHORITY: &str = "cert-manager.io/inject-ca-from";

/// Where every provider's image has its program.
const ENTRY_POINT: &str = "/manager";

/// Who provides machines for Cluster API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// The KubeVirt provider of the Cluster API project.
    Capk,
    /// Nobody yet: its kinds are defined, and whoever serves them can be started.
    None,
}

/// What is to be installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The folder of the programs.
    bin: PathBuf,
    /// The folder of the objects.
    objects: PathBuf,
    provider: Provider,
}

impl Order {
    /// Everything that was built, with this provider.
    pub fn new(built: &ClusterApi, provider: Provider) -> Self {
        Self {
            bin: built.bin.clone(),
            objects: built.objects.clone(),
            provider,
        }
    }
}

/// What it is installed with.
pub struct Installer<'a> {
    /// The authority of the run.
    pub authority: &'a Authority,
    /// kubectl as administrator.
    pub kubectl: &'a Kubectl,
    /// The images that hosts can pull.
    pub images: &'a watch::Sender<Images>,
}

impl Installer<'_> {
    /// Installs everything and returns once each controller is available, and with it its webhooks. Doing it again
    /// brings back what was changed since.
    ///
    /// # Errors
    /// When an object is refused or a controller does not become available.
    pub async fn install(&self, order: &Order) -> anyhow::Result<()> {
        self.component(order, CORE).await?;
        let kubeadm = KUBEADM.map(|program| self.component(order, program));
        futures::future::try_join_all(kubeadm).await?;
        match order.provider {
            Provider::Capk => self.component(order, CAPK).await,
            Provider::None => {
                let objects = read(order, CAPK)?.into_iter();
                let definitions = objects.filter(|object| object["kind"] == DEFINITION);
                self.kubectl.apply(definitions.collect()).await
            }
        }
    }

    async fn component(&self, order: &Order, program: &str) -> anyhow::Result<()> {
        let objects = self.without_cert_manager(read(order, program)?)?;
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
        let deployment = deployment.with_context(|| format!("{program} has no Deployment"))?;
        let image = text(deployment, "/spec/template/spec/containers/0/image")?;
        let namespace = format!("--namespace={}", text(deployment, "/metadata/namespace")?);
        let name = format!("deployment/{}", text(deployment, "/metadata/name")?);
        self.images.send_modify(|images| {
            let image_of_box = Image {
                entry_point: ENTRY_POINT.to_owned(),
                binary: order.bin.join(program),
            };
            images.set(image, image_of_box);
        });
        let wait = [
            "wait",
            &namespace,
            "--for=condition=Available",
            "--timeout=120s",
            &name,
        ];
        self.kubectl.apply(objects.clone()).await?;
        self.kubectl.run(&wait, String::new()).await
    }

    /// The objects with what cert-manager would make of and put into them.
    fn without_cert_manager(&self, objects: Vec<Value>) -> anyhow::Result<Vec<Value>> {
        let authority = std::fs::read_to_string(self.authority.file())?;
        let mut kept = Vec::new();
        for mut object in objects {
            match object["kind"].as_str() {
                Some("Certificate") => kept.push(self.secret(&object, &authority)?),
                Some("Issuer") => {}
                _ => {
                    trust(&mut object, &authority);
                    kept.push(object);
                }
            }
        }
        Ok(kept)
    }

    /// The Secret that a Certificate asks for.
    fn secret(&self, certificate: &Value, authority: &str) -> anyhow::Result<Value> {
        let name = text(certificate, "/spec/secretName")?;
        let names = certificate["spec"]["dnsNames"].as_array();
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        let leaf = self
            .authority
            .issue(name, name, names.map(str::to_owned).collect())?;
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": text(certificate, "/metadata/namespace")?},
            "type": "kubernetes.io/tls",
            "stringData": {
                "tls.crt": std::fs::read_to_string(leaf.certificate)?,
                "tls.key": std::fs::read_to_string(leaf.key)?,
                "ca.crt": authority,
            },
        }))
    }
}

const DEFINITION: &str = "CustomResourceDefinition";

fn read(order: &Order, program: &str) -> anyhow::Result<Vec<Value>> {
    let file = order.objects.join(format!("{program}.json"));
    let bytes = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("parse {}", file.display()))
}

/// Puts the authority where the API server looks for whom to trust, in an object that asks for one.
fn trust(object: &mut Value, authority: &str) {
    let annotations = object.pointer_mut("/metadata/annotations");
    let wanted = annotations
        .and_then(Value::as_object_mut)
        .and_then(|annotations| annotations.remove(WANTS_AUTHORITY));
    if wanted.is_none() {
        return;
    }
    let bundle = STANDARD.encode(authority);
    if let Some(client) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
        client["caBundle"] = json!(bundle);
    }
    let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks.into_iter().flatten() {
        webhook["clientConfig"]["caBundle"] = json!(bundle);
    }
}

fn text<'a>(object: &'a Value, path: &str) -> anyhow::Result<&'a str> {
    let found = object.pointer(path).and_then(Value::as_str);
    found.with_context(|| {
        format!(
            "no {path} in {} {}",
            object["kind"], object["metadata"]["name"]
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{WANTS_AUTHORITY, trust};
    use serde_json::{Value, json};

    fn asking(mut object: Value) -> Value {
        object["metadata"] = json!({"annotations": {WANTS_AUTHORITY: "ns/cert"}});
        object
    }

    #[test]
    fn definitions_and_webhooks_that_ask_for_an_authority_get_it() {
        let mut definition =
            asking(json!({"spec": {"conversion": {"webhook": {"clientConfig": {}}}}}));
        trust(&mut definition, "pem");
        let client = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
        assert_eq!(client["caBundle"], "cGVt");
        let mut webhooks = asking(json!({"webhooks": [{"clientConfig": {"service": {}}}]}));
        trust(&mut webhooks, "pem");
        assert_eq!(webhooks["webhooks"][0]["clientConfig"]["caBundle"], "cGVt");
        assert!(
            webhooks["metadata"]["annotations"]
                .as_object()
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn an_object_that_asks_for_nothing_stays_as_it_is() {
        let before = json!({"metadata": {"name": "a"}, "webhooks": [{"clientConfig": {}}]});
        let mut after = before.clone();
        trust(&mut after, "pem");
        assert_eq!(after, before);
    }
}
