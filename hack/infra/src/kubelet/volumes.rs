//! The volumes of a Pod that is really run, as folders.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    KeyToPath, Pod, ProjectedVolumeSource, ServiceAccount, ServiceAccountTokenProjection, Volume,
};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};

use super::environment::{Referents, field_value};
use super::references::References;

/// What a Pod's volumes are made from.
pub struct VolumeMaker<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// A client that may request tokens.
    pub client: &'a Client,
    /// What the Pod refers to.
    pub references: &'a References,
    /// Where the volumes' folders are made.
    pub folder: &'a Path,
}

/// The default life of a token, and after which share of it a kubelet replaces it.
const TOKEN_SECONDS: i64 = 3607;
const TOKEN_REFRESH_PERCENT: u64 = 80;

impl VolumeMaker<'_> {
    /// Makes every volume; returns the folders by volume name.
    pub async fn make(&self) -> anyhow::Result<BTreeMap<String, PathBuf>> {
        let mut folders = BTreeMap::new();
        let spec = self.pod.spec.clone().unwrap_or_default();
        for volume in spec.volumes.iter().flatten() {
            let folder = self.folder.join(&volume.name);
            fs::create_dir_all(&folder)?;
            self.fill(volume, &folder)
                .await
                .with_context(|| format!("volume \"{}\"", volume.name))?;
            folders.insert(volume.name.clone(), folder);
        }
        Ok(folders)
    }

    /// Replaces the Pod's tokens before they end, for as long as it is polled.
    pub async fn refresh_tokens(&self) {
        let life = Duration::from_secs(TOKEN_SECONDS.cast_unsigned() * TOKEN_REFRESH_PERCENT / 100);
        let tokens = self.tokens();
        loop {
            tokio::time::sleep(life).await;
            for (volume, token) in &tokens {
                if let Err(error) = self.write_token(token, &self.folder.join(volume)).await {
                    tracing::warn!(pod = self.pod.name_any(), "token: {error:#}");
                }
            }
        }
    }

    /// Every token among the volumes, with the name of its volume.
    fn tokens(&self) -> Vec<(String, ServiceAccountTokenProjection)> {
        let volumes = self
            .pod
            .spec
            .iter()
            .flat_map(|spec| spec.volumes.iter().flatten());
        volumes
            .flat_map(|volume| {
                let sources = volume
                    .projected
                    .iter()
                    .flat_map(|projected| &projected.sources);
                let tokens = sources
                    .flatten()
                    .filter_map(|s| s.service_account_token.clone());
                tokens.map(|token| (volume.name.clone(), token))
            })
            .collect()
    }

    async fn fill(&self, volume: &Volume, folder: &Path) -> anyhow::Result<()> {
        if volume.empty_dir.is_some() {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o777))?;
        } else if let Some(map) = &volume.config_map {
            let data = self.references.config_map(&map.name);
            write_data(
                data,
                map.optional,
                (&map.name, map.items.as_deref()),
                folder,
            )?;
        } else if let Some(secret) = &volume.secret {
            let name = secret.secret_name.clone().unwrap_or_default();
            let data = self.references.secret(&name);
            write_data(
                data,
                secret.optional,
                (&name, secret.items.as_deref()),
                folder,
            )?;
        } else if let Some(projected) = &volume.projected {
            self.project(projected, folder).await?;
        } else {
            anyhow::bail!("volumes of this kind are not supported");
        }
        Ok(())
    }

    async fn project(&self, volume: &ProjectedVolumeSource, folder: &Path) -> anyhow::Result<()> {
        for source in volume.sources.iter().flatten() {
            if let Some(token) = &source.service_account_token {
                self.write_token(token, folder).await?;
            }
            if let Some(map) = &source.config_map {
                let data = self.references.config_map(&map.name);
                write_data(
                    data,
                    map.optional,
                    (&map.name, map.items.as_deref()),
                    folder,
                )?;
            }
            if let Some(secret) = &source.secret {
                let data = self.references.secret(&secret.name);
                write_data(
                    data,
                    secret.optional,
                    (&secret.name, secret.items.as_deref()),
                    folder,
                )?;
            }
            let fields = source
                .downward_api
                .iter()
                .flat_map(|api| api.items.iter().flatten());
            for file in fields {
                let field = file
                    .field_ref
                    .as_ref()
                    .context("only fieldRef is supported")?;
                write(&folder.join(&file.path), &field_value(self.pod, field)?)?;
            }
        }
        Ok(())
    }

    /// Asks for a token that is bound to the Pod, as a kubelet does.
    async fn write_token(
        &self,
        token: &ServiceAccountTokenProjection,
        folder: &Path,
    ) -> anyhow::Result<()> {
        let namespace = self.pod.namespace().unwrap_or_default();
        let account = self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.clone());
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: token.audience.iter().cloned().collect(),
                expiration_seconds: Some(token.expiration_seconds.unwrap_or(TOKEN_SECONDS)),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: self.pod.metadata.name.clone(),
                    uid: self.pod.metadata.uid.clone(),
                }),
            },
            ..TokenRequest::default()
        };
        let name = account.unwrap_or_else(|| "default".to_owned());
        let answer = accounts
            .create_token_request(&name, &PostParams::default(), &request)
            .await?;
        let status = answer.status.context("the API server gave no token")?;
        write(&folder.join(&token.path), &status.token)
    }
}

/// Writes the keys of a ConfigMap or Secret as files, all of them or those that are listed.
fn write_data(
    data: Option<BTreeMap<String, String>>,
    optional: Option<bool>,
    (name, items): (&str, Option<&[KeyToPath]>),
    folder: &Path,
) -> anyhow::Result<()> {
    let data = match (data, optional) {
        (Some(data), _) => data,
        (None, Some(true)) => return Ok(()),
        (None, _) => anyhow::bail!("\"{name}\" not found"),
    };
    match items {
        None => data
            .iter()
            .try_for_each(|(key, value)| write(&folder.join(key), value)),
        Some(items) => items.iter().try_for_each(|item| match data.get(&item.key) {
            Some(value) => write(&folder.join(&item.path), value),
            None if optional == Some(true) => Ok(()),
            None => anyhow::bail!("\"{name}\" has no key {}", item.key),
        }),
    }
}

/// Replaces a file at once: a reader sees the old or the new content.
fn write(path: &Path, content: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let partial = path.with_extension("partial");
    fs::write(&partial, content)?;
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o644))?;
    // Files of a kubelet are root's, and readable for the Pod's group.
    chown(&partial, Some(0), None)?;
    fs::rename(&partial, path).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::write_data;
    use k8s_openapi::api::core::v1::KeyToPath;

    #[test]
    fn listed_keys_go_where_the_list_says() {
        let folder = std::env::temp_dir().join(format!("volumes-{}", std::process::id()));
        let data = [
            ("ca.crt".to_owned(), "pem".to_owned()),
            ("x".to_owned(), "y".to_owned()),
        ];
        let items = [KeyToPath {
            key: "ca.crt".into(),
            path: "certs/ca".into(),
            ..KeyToPath::default()
        }];
        write_data(Some(data.into()), None, ("map", Some(&items)), &folder).unwrap();
        assert_eq!(
            std::fs::read_to_string(folder.join("certs/ca")).unwrap(),
            "pem"
        );
        assert!(!folder.join("x").exists());
        assert!(write_data(None, None, ("map", None), &folder).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
