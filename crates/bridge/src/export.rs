//! A GuestCluster as manifests of Cluster API and its provider for KubeVirt (CAPK).
//!
//! Machines are rendered by the planner's rules and then put into CAPK's terms. Only what CAPK v0.11
//! knows is written, so that no field is pruned in silence.

mod control_plane;
mod health;
mod kubeadm;
mod machine;
mod network;
mod shape;
mod unmapped;
mod workers;

use std::collections::BTreeMap;

use guestcluster_api::labels::Role;
use guestcluster_api::{GuestCluster, names};
use guestcluster_planner::Wanted;
use guestcluster_planner::wanted::{Pool, Settings, SpecErrors};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use crate::capi;
use crate::import::{self, ImportError};
use crate::leaves::{self, Kept, Path};

pub use shape::ApiVersion;
pub use unmapped::{Fate, Unmapped};

/// What is asked for beside the GuestCluster itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Version of Cluster API's own kinds.
    pub api_version: ApiVersion,
    /// The guest's authorities as they are stored; without them Cluster API mints others.
    pub authorities: Option<&'a [Secret]>,
}

/// Manifests, and what they cannot say.
pub struct Export {
    /// The manifests, in the order in which they are applied.
    pub objects: Vec<Value>,
    /// The guest's authorities, for before the manifests. Empty unless they were asked for.
    pub secrets: Vec<Secret>,
    /// What the manifests cannot say, or say otherwise.
    pub unmapped: Vec<Unmapped>,
}

/// Why nothing is exported.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExportError {
    /// The specification itself is wrong.
    #[error(transparent)]
    Spec(#[from] SpecErrors),
    /// An authority is not among the Secrets.
    #[error(
        "the Secret {0} with tls.crt and tls.key is not there: wait until the guest has its authorities, or export without them"
    )]
    MissingAuthority(String),
    /// The manifests could not be read back.
    #[error("the manifests cannot be read back: {0}")]
    Unreadable(#[from] ImportError),
    /// The specification could not be written as JSON.
    #[error("the specification cannot be written: {0}")]
    Unwritable(String),
}

/// The manifests of a GuestCluster.
///
/// # Errors
/// If the specification is wrong, or an authority that was asked for is not there.
pub fn export(cluster: &GuestCluster, options: &Options<'_>) -> Result<Export, ExportError> {
    let wanted = Wanted::parse(cluster, &Settings::default())?;
    let mut objects = manifests(&wanted, cluster.spec.tenant.as_deref(), options.api_version);
    let read = import::read(&objects)?;
    let json = |spec: &_| {
        serde_json::to_value(spec).map_err(|error| ExportError::Unwritable(error.to_string()))
    };
    let kept = leaves::difference(&json(&cluster.spec)?, &json(&read.cluster.spec)?);
    annotate(&mut objects[0], &kept);
    let secrets = match options.authorities {
        Some(given) => authorities(&wanted, given)?,
        None => Vec::new(),
    };
    let runs = cluster.status.is_some() && options.authorities.is_none();
    Ok(Export {
        objects,
        secrets,
        unmapped: unmapped::list(&wanted, &kept, runs),
    })
}

/// All objects but Secrets; the Cluster is the first.
fn manifests(wanted: &Wanted, tenant: Option<&str>, version: ApiVersion) -> Vec<Value> {
    let mut objects = Vec::new();
    let mut later = Vec::new();
    for pool in &wanted.pools {
        let template = machine::template(wanted, pool, tenant);
        let of_template = name(&template);
        match pool.role {
            Role::ControlPlane => {
                objects.extend(network::cluster(wanted, version));
                later.push(control_plane::kubeadm(wanted, pool, &of_template, version));
            }
            Role::Worker => {
                later.extend(workers::deployment(wanted, pool, &of_template, version));
            }
        }
        objects.push(template);
        later.push(health::check(wanted, pool, version));
    }
    objects.extend(later);
    objects
}

fn annotate(cluster: &mut Value, kept: &BTreeMap<Path, Kept>) {
    if !kept.is_empty() {
        cluster["metadata"]["annotations"] = json!({ capi::KEPT: json!(kept).to_string() });
    }
}

/// The four authorities, as KubeadmControlPlane looks for them: made by somebody else, so without an
/// owner.
fn authorities(wanted: &Wanted, given: &[Secret]) -> Result<Vec<Secret>, ExportError> {
    let cluster = &wanted.identity.name;
    let wanted_names = [
        names::secrets::ca(cluster),
        names::secrets::etcd(cluster),
        names::secrets::proxy(cluster),
        names::secrets::service_account(cluster),
    ];
    let copies = wanted_names.into_iter().map(|name| {
        let found = given
            .iter()
            .find(|secret| secret.metadata.name.as_ref() == Some(&name));
        let data = found.and_then(|secret| secret.data.clone());
        let mut data = data.unwrap_or_default();
        data.retain(|key, _| ["tls.crt", "tls.key"].contains(&key.as_str()));
        if data.len() < 2 {
            return Err(ExportError::MissingAuthority(name));
        }
        let mut copy = Secret {
            type_: Some(capi::SECRET_TYPE.to_owned()),
            data: Some(data),
            ..Secret::default()
        };
        copy.metadata.name = Some(name);
        copy.metadata.namespace = Some(wanted.identity.namespace.clone());
        copy.metadata.labels = Some([(capi::CLUSTER_NAME.to_owned(), cluster.clone())].into());
        Ok(copy)
    });
    copies.collect()
}

/// Name and namespace of an object.
fn metadata(wanted: &Wanted, name: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": { capi::CLUSTER_NAME: wanted.identity.name },
    });
    if !wanted.identity.namespace.is_empty() {
        metadata["namespace"] = json!(wanted.identity.namespace);
    }
    metadata
}

fn name(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// `<cluster>-<pool>`, and for templates a digest of what they say: Cluster API takes a template of
/// another name for a change, and the same name for none.
fn pool_name(wanted: &Wanted, pool: &Pool) -> String {
    format!("{}-{}", wanted.identity.name, pool.name)
}

fn template_name(wanted: &Wanted, pool: &Pool, spec: &Value) -> String {
    format!("{}-{}", pool_name(wanted, pool), shape::digest(spec))
}
