//! The way to the infrastructure cluster, and what a list that fails means to its reader.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use guestcluster_shell::error::is_absent;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;

/// A person waits for the answer.
const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(30);
/// Objects in one answer; the rest comes in further ones.
const PAGE: u32 = 500;

/// Which cluster to ask.
#[derive(Args)]
pub struct Connection {
    /// Kubeconfig of the infrastructure cluster; default: $KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; default: its current one.
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
}

impl Connection {
    /// A client, and the namespace that the context names.
    pub async fn open(&self) -> anyhow::Result<(Client, String)> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match &self.kubeconfig {
            Some(file) => {
                let read = Kubeconfig::read_from(file)?;
                Config::from_custom_kubeconfig(read, &options).await
            }
            None => Config::from_kubeconfig(&options).await,
        };
        let config = config.context(
            "no cluster is configured: name a kubeconfig with --kubeconfig or $KUBECONFIG",
        )?;
        let namespace = config.default_namespace.clone();
        Ok((impatient(config)?, namespace))
    }
}

/// A client for which a person waits.
pub fn impatient(mut config: Config) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(READ);
    // A person rather asks again than waits for what hides behind repeated attempts.
    config.default_retry = false;
    Client::try_from(config)
}

/// All objects that carry a label, or those that a selector of labels takes.
pub async fn list<K>(api: Api<K>, label: Option<&str>) -> Result<Vec<K>, kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    params.label_selector = label.map(str::to_owned);
    let mut items = Vec::new();
    loop {
        let page = api.list(&params).await?;
        items.extend(page.items);
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(items);
        }
    }
}

/// What to do about a list that failed.
pub fn explain<K: Resource<DynamicType = ()>>(error: kube::Error) -> anyhow::Error {
    let kind = K::plural(&());
    match &error {
        kube::Error::Api(_) if is_absent(&error) => anyhow!(
            "the cluster does not know {kind}: install KubeVirt, or name the infrastructure cluster with --context"
        ),
        kube::Error::Api(status) if status.is_forbidden() => {
            anyhow!(
                "you may not list {kind} there: ask for that right, or name another namespace with -n"
            )
        }
        kube::Error::Api(_) => anyhow!("cannot list {kind}: {error}"),
        _ => anyhow!(error).context("cannot reach the cluster: see `kubectl cluster-info`"),
    }
}

/// Whether the list was refused for lack of rights.
pub fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}
