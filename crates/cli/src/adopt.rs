//! `kubectl guestcluster adopt`: what it would take to make a Cluster of Cluster API a GuestCluster.

mod read;
mod text;

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use guestcluster_bridge::adopt::{Adoption, Kind, Seen, adopt};
use kube::Client;
use serde_json::{Value, json};

use crate::connection::Connection;

/// Says whether a Cluster of Cluster API and CAPK can become a GuestCluster without a machine that
/// restarts, and what that would do.
///
/// This version only reads: it prints the machines, what stands against it, what to know, and the
/// steps, and changes nothing, neither here nor in the guest. Taking over is not there yet. It fails if
/// something stands against it. Secrets are read to see which keys they have; from the guest's
/// kubeconfig, with which Nodes and members of etcd are looked at, nothing is printed.
#[derive(Args)]
pub struct Options {
    /// Name of the Cluster.
    #[arg(value_name = "NAME")]
    name: String,
    /// Namespace; default: that of the context.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// How to print.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// Print only the GuestCluster that it would become, which is paused; what it cannot say goes to
    /// the error output.
    #[arg(long, conflicts_with = "output")]
    guest_cluster: bool,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// One object.
    Json,
    /// One document.
    Yaml,
}

/// Runs the verb.
pub async fn run(connection: &Connection, options: &Options) -> anyhow::Result<()> {
    let (client, own) = connection.open().await?;
    let namespace = options.namespace.as_ref().unwrap_or(&own);
    let seen = read::seen(&client, namespace, &options.name).await?;
    if seen.cluster().is_none() {
        bail!("{}", missing(&client, &seen).await);
    }
    let adoption = adopt(&seen);
    if options.guest_cluster {
        let cluster = adoption.guest_cluster.as_ref();
        let cluster = cluster.ok_or_else(|| anyhow!("{}", refusals(&adoption)))?;
        print!("{}", serde_saphyr::to_string(cluster)?);
        for one in &adoption.unread {
            eprintln!("# not read: {one}");
        }
    } else {
        print!("{}", printed(&seen, &adoption, options.output)?);
    }
    if !adoption.verdict.is_accepted() {
        bail!(
            "Cluster {} cannot be adopted: {}",
            options.name,
            refusals(&adoption)
        );
    }
    Ok(())
}

/// Why there is no Cluster to look at.
async fn missing(client: &Client, seen: &Seen) -> String {
    let (name, namespace) = (&seen.name, &seen.namespace);
    let known = seen
        .objects
        .get(&Kind::Cluster)
        .and_then(|read| read.known());
    if known.is_none() {
        return format!(
            "you may not list Clusters in namespace {namespace}: ask for that right, or name another \
             namespace with -n"
        );
    }
    if read::serves(client, Kind::Cluster).await {
        return format!(
            "there is no Cluster {name} in namespace {namespace}: name another with -n, or another \
             cluster with --context"
        );
    }
    "the cluster does not know cluster.x-k8s.io/v1beta2: Cluster API v1.11 or newer is needed"
        .to_owned()
}

/// All that stands against it, in one line.
fn refusals(adoption: &Adoption) -> String {
    let reasons = adoption.verdict.reasons.iter().map(ToString::to_string);
    reasons.collect::<Vec<_>>().join("; ")
}

fn printed(seen: &Seen, adoption: &Adoption, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Text => text::text(seen, adoption),
        Output::Json => format!("{:#}\n", document(seen, adoption)),
        Output::Yaml => serde_saphyr::to_string(&document(seen, adoption))?,
    })
}

fn document(seen: &Seen, adoption: &Adoption) -> Value {
    let unread = adoption.unread.iter().map(ToString::to_string);
    json!({
        "namespace": seen.namespace,
        "cluster": seen.name,
        "accepted": adoption.verdict.is_accepted(),
        "reasons": adoption.verdict.reasons,
        "warnings": adoption.verdict.warnings,
        "machines": adoption.inventory,
        "guestCluster": adoption.guest_cluster,
        "unread": unread.collect::<Vec<_>>(),
        "plan": adoption.plan,
    })
}

#[cfg(test)]
mod tests;
