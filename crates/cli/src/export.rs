//! `kubectl guestcluster export`: a guest as manifests of Cluster API.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use guestcluster_api::{GuestCluster, names};
use guestcluster_bridge::export::{self, ApiVersion, Export, Fate};
use guestcluster_shell::error::is_absent;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::connection::Connection;

/// Prints a guest cluster as manifests of Cluster API and its provider for KubeVirt (CAPK v0.11).
///
/// Manifests go to the output; what they cannot say goes to the error output, one line each, with what
/// to do instead. Nothing is changed, and no machine is moved.
#[derive(Args)]
pub struct Options {
    /// Name of the GuestCluster.
    #[arg(value_name = "NAME", required_unless_present = "filename")]
    name: Option<String>,
    /// Namespace; default: that of the context, or the one in the file.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Read the GuestCluster from a YAML or JSON file with this one object, without a cluster.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["name", "with_pki"])]
    filename: Option<PathBuf>,
    /// Version of Cluster API's kinds: v1beta2 for v1.11 and newer, v1beta1 before.
    #[arg(long, value_name = "VERSION", default_value = "v1beta2")]
    api_version: Version,
    /// Print the guest's certificate authorities with their private keys as well, so that the new
    /// cluster has the same. Whoever reads them owns the guest.
    #[arg(long)]
    with_pki: bool,
    /// How to print.
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Output,
}

/// Version of Cluster API's kinds.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Version {
    V1beta1,
    V1beta2,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// YAML documents.
    Yaml,
    /// A list of objects.
    Json,
}

/// Runs the verb.
pub async fn run(connection: &Connection, options: &Options) -> anyhow::Result<()> {
    let (cluster, authorities) = match (&options.filename, &options.name) {
        (Some(file), _) => (from_file(file, options.namespace.as_deref())?, None),
        (None, Some(name)) => from_cluster(connection, options, name).await?,
        (None, None) => bail!("name a GuestCluster, or a file with -f"),
    };
    let asked = export::Options {
        api_version: match options.api_version {
            Version::V1beta1 => ApiVersion::V1Beta1,
            Version::V1beta2 => ApiVersion::V1Beta2,
        },
        authorities: authorities.as_deref(),
    };
    let export = export::export(&cluster, &asked)?;
    print!("{}", printed(&export, options.output)?);
    for one in &export.unmapped {
        let what = match one.fate {
            Fate::Annotation => "not exported",
            Fate::Otherwise => "note",
        };
        eprintln!("# {what}: {one}");
    }
    Ok(())
}

fn from_file(file: &Path, namespace: Option<&str>) -> anyhow::Result<GuestCluster> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let cluster = parse(&text);
    let mut cluster = cluster.with_context(|| format!("cannot export {}", file.display()))?;
    if let Some(namespace) = namespace {
        cluster.metadata.namespace = Some(namespace.to_owned());
    }
    if cluster.metadata.namespace.is_none() {
        bail!("{} names no namespace: name one with -n", file.display());
    }
    Ok(cluster)
}

fn parse(text: &str) -> anyhow::Result<GuestCluster> {
    let value: Value = serde_saphyr::from_str(text)?;
    if value["kind"] != "GuestCluster" {
        bail!("give a file with one object of kind GuestCluster");
    }
    Ok(serde_json::from_value(value)?)
}

async fn from_cluster(
    connection: &Connection,
    options: &Options,
    name: &str,
) -> anyhow::Result<(GuestCluster, Option<Vec<Secret>>)> {
    let (client, own) = connection.open().await?;
    let namespace = options.namespace.as_ref().unwrap_or(&own);
    let clusters: Api<GuestCluster> = Api::namespaced(client.clone(), namespace);
    let cluster = clusters
        .get(name)
        .await
        .map_err(|error| explain(error, &format!("GuestCluster {name}"), namespace))?;
    let authorities = if options.with_pki {
        Some(authorities(client, namespace, name).await?)
    } else {
        None
    };
    Ok((cluster, authorities))
}

async fn authorities(
    client: Client,
    namespace: &str,
    cluster: &str,
) -> anyhow::Result<Vec<Secret>> {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let mut found = Vec::new();
    for name in [
        names::secrets::ca(cluster),
        names::secrets::etcd(cluster),
        names::secrets::proxy(cluster),
        names::secrets::service_account(cluster),
    ] {
        let secret = secrets
            .get(&name)
            .await
            .map_err(|error| explain(error, &format!("Secret {name}"), namespace))?;
        found.push(secret);
    }
    Ok(found)
}

/// What to do about an object that was not read.
fn explain(error: kube::Error, what: &str, namespace: &str) -> anyhow::Error {
    match &error {
        kube::Error::Api(_) if is_absent(&error) => anyhow!(
            "there is no {what} in namespace {namespace}: name another with -n, or another cluster with --context"
        ),
        kube::Error::Api(status) if status.is_forbidden() => {
            anyhow!("you may not get {what} in namespace {namespace}: ask for that right")
        }
        kube::Error::Api(_) => anyhow!("cannot get {what}: {error}"),
        _ => anyhow!(error).context("cannot reach the cluster: see `kubectl cluster-info`"),
    }
}

/// Authorities come first: KubeadmControlPlane looks for them before it mints any.
fn printed(export: &Export, output: Output) -> anyhow::Result<String> {
    let mut objects = Vec::new();
    for secret in &export.secrets {
        objects.push(serde_json::to_value(secret)?);
    }
    objects.extend(export.objects.iter().cloned());
    if output == Output::Json {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        return Ok(format!("{list:#}\n"));
    }
    let mut text = String::new();
    for object in &objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object)?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Export {
        let cluster = parse(include_str!("../../../examples/production.yaml")).unwrap();
        let export = export::export(&cluster, &export::Options::default());
        export.map_err(|error| error.to_string()).unwrap()
    }

    fn documents(text: &str) -> Vec<Value> {
        let parts = text.split("---\n").filter(|part| !part.is_empty());
        parts
            .map(|part| serde_saphyr::from_str(part).unwrap())
            .collect()
    }

    #[test]
    fn what_is_printed_reads_back_as_it_was() {
        let export = example();
        let yaml = printed(&export, Output::Yaml).unwrap();
        assert_eq!(documents(&yaml), export.objects);
        let json: Value = serde_json::from_str(&printed(&export, Output::Json).unwrap()).unwrap();
        assert_eq!(json["items"], json!(export.objects));
    }

    #[test]
    fn no_secret_is_printed_unless_it_is_asked_for() {
        let export = example();
        let yaml = printed(&export, Output::Yaml).unwrap();
        assert!(!yaml.contains("kind: Secret"));
    }

    #[test]
    fn a_file_with_something_else_is_refused_with_what_to_give() {
        let error = parse("kind: Pod\n").unwrap_err().to_string();
        assert_eq!(error, "give a file with one object of kind GuestCluster");
    }
}
