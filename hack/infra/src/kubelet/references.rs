//! The ConfigMaps and Secrets that a Pod refers to, read before its containers start.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, Client, ResourceExt};

use super::environment::Referents;

/// Their data, by name. What does not exist is not here.
#[derive(Debug, Default)]
pub struct References {
    config_maps: BTreeMap<String, BTreeMap<String, String>>,
    secrets: BTreeMap<String, BTreeMap<String, String>>,
}

impl References {
    /// Reads everything that `pod` names.
    pub async fn read(client: &Client, pod: &Pod) -> Result<Self, kube::Error> {
        let namespace = pod.namespace().unwrap_or_default();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
        let mut found = Self::default();
        let (map_names, secret_names) = names(pod);
        for name in map_names {
            if let Some(map) = maps.get_opt(&name).await? {
                found.config_maps.insert(name, map.data.unwrap_or_default());
            }
        }
        for name in secret_names {
            if let Some(secret) = secrets.get_opt(&name).await? {
                let data = secret.data.unwrap_or_default().into_iter();
                let text =
                    data.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned()));
                found.secrets.insert(name, text.collect());
            }
        }
        Ok(found)
    }
}

impl Referents for References {
    fn config_map(&self, name: &str) -> Option<BTreeMap<String, String>> {
        self.config_maps.get(name).cloned()
    }

    fn secret(&self, name: &str) -> Option<BTreeMap<String, String>> {
        self.secrets.get(name).cloned()
    }
}

/// The names of all ConfigMaps and Secrets in the Pod's volumes and environments.
fn names(pod: &Pod) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    let Some(spec) = &pod.spec else {
        return (maps, secrets);
    };
    for volume in spec.volumes.iter().flatten() {
        maps.extend(volume.config_map.iter().map(|map| map.name.clone()));
        secrets.extend(
            volume
                .secret
                .iter()
                .filter_map(|secret| secret.secret_name.clone()),
        );
        let sources = volume
            .projected
            .iter()
            .flat_map(|projected| &projected.sources);
        for source in sources.flatten() {
            maps.extend(source.config_map.iter().map(|map| map.name.clone()));
            secrets.extend(source.secret.iter().map(|secret| secret.name.clone()));
        }
    }
    let containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    for container in containers {
        for source in container.env_from.iter().flatten() {
            maps.extend(source.config_map_ref.iter().map(|map| map.name.clone()));
            secrets.extend(source.secret_ref.iter().map(|secret| secret.name.clone()));
        }
        for source in container
            .env
            .iter()
            .flatten()
            .filter_map(|env| env.value_from.as_ref())
        {
            maps.extend(source.config_map_key_ref.iter().map(|map| map.name.clone()));
            secrets.extend(
                source
                    .secret_key_ref
                    .iter()
                    .map(|secret| secret.name.clone()),
            );
        }
    }
    (maps, secrets)
}
