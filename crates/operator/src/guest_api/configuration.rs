//! What kubeadm keeps in a guest: its configuration and its add-ons.

use guestcluster_api::labels;
use guestcluster_planner::render;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec};
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::GuestApi;
use crate::error::Error;

const NAMESPACE: &str = "kube-system";
const CONFIGURATION: &str = "kubeadm-config";

/// CoreDNS that kubeadm installs, by minor of Kubernetes (`CoreDNSVersion` in kubeadm's
/// `constants.go`). From one to the next the default Corefile stays valid.
const CORE_DNS: [(&str, &str); 4] = [
    ("v1.34.", "v1.12.1"),
    ("v1.35.", "v1.13.1"),
    ("v1.36.", "v1.14.2"),
    ("v1.37.", "v1.14.6"),
];

impl GuestApi<'_> {
    /// Digest of kubeadm's configuration as we wrote it, and the version that the add-ons were brought
    /// to.
    pub(super) async fn configuration(
        &self,
        client: &Client,
    ) -> Result<(Option<String>, Option<String>), Error> {
        let api = Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), NAMESPACE);
        let found = self.calls.read(&api, CONFIGURATION).await;
        let found = found.map_err(Error::Guest)?;
        let note = |key: &str| found.as_ref()?.annotations().get(key).cloned();
        Ok((note(render::RENDER), note(labels::ADDONS)))
    }

    /// Writes kubeadm's configuration, from which control-plane machines join.
    pub async fn write_configuration(&self, digest: &str, text: &str) -> Result<(), Error> {
        let map = json!({
            "metadata": { "annotations": { render::RENDER: digest } },
            "data": { "ClusterConfiguration": text },
        });
        self.apply_configuration(labels::managers::GUEST, map).await
    }

    /// Brings kube-proxy and CoreDNS to a version. One that somebody has removed or replaced by an
    /// image of another name is theirs; a registry of their own is kept.
    pub async fn upgrade_addons(&self, version: &str) -> Result<(), Error> {
        let client = self.client().await?;
        let proxies = Api::<DaemonSet>::namespaced(client.clone(), NAMESPACE);
        let proxy = self.calls.read(&proxies, "kube-proxy").await;
        if let Some(proxy) = proxy.map_err(Error::Guest)? {
            let template = proxy.spec.map(|spec| spec.template);
            if let Some(patch) = image_patch(template.as_ref(), ("kube-proxy", version)) {
                let patched = self.calls.patch(&proxies, "kube-proxy", patch).await;
                patched.map_err(Error::Guest)?;
            }
        }
        let core_dns = CORE_DNS
            .iter()
            .find(|(minor, _)| version.starts_with(minor));
        let servers = Api::<Deployment>::namespaced(client, NAMESPACE);
        let server = self.calls.read(&servers, "coredns").await;
        if let (Some((_, tag)), Some(server)) = (core_dns, server.map_err(Error::Guest)?) {
            let template = server.spec.map(|spec| spec.template);
            if let Some(patch) = image_patch(template.as_ref(), ("coredns", tag)) {
                let patched = self.calls.patch(&servers, "coredns", patch).await;
                patched.map_err(Error::Guest)?;
            }
        }
        let map = json!({ "metadata": { "annotations": { labels::ADDONS: version } } });
        self.apply_configuration(labels::managers::GUEST_ADDONS, map)
            .await
    }

    async fn apply_configuration(&self, manager: &str, mut map: Value) -> Result<(), Error> {
        let api = Api::<PartialObjectMeta<ConfigMap>>::namespaced(self.client().await?, NAMESPACE);
        map["apiVersion"] = json!("v1");
        map["kind"] = json!("ConfigMap");
        map["metadata"]["name"] = json!(CONFIGURATION);
        let params = PatchParams::apply(manager).force();
        let patch = Patch::Apply(&map);
        let call = format!("apply {CONFIGURATION}");
        let applied = self
            .calls
            .within(call, api.patch(CONFIGURATION, &params, &patch));
        applied.await.map_err(Error::Guest).map(drop)
    }
}

/// The patch that sets an image's tag where the image of that name has another one.
fn image_patch(template: Option<&PodTemplateSpec>, (name, tag): (&str, &str)) -> Option<Value> {
    let containers = &template?.spec.as_ref()?.containers;
    let mut numbered = containers.iter().enumerate();
    let (number, image) = numbered.find_map(|(number, container)| {
        let image = container.image.as_deref()?;
        let (repository, _) = image.rsplit_once(':')?;
        let is_named = repository.rsplit('/').next() == Some(name);
        is_named.then_some((number, image))
    })?;
    let wanted = format!("{}:{tag}", image.rsplit_once(':')?.0);
    let path = format!("/spec/template/spec/containers/{number}/image");
    (image != wanted).then(|| {
        json!([
            { "op": "test", "path": path, "value": image },
            { "op": "replace", "path": path, "value": wanted },
        ])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(image: &str) -> PodTemplateSpec {
        let container = json!({ "name": "c", "image": image });
        serde_json::from_value(json!({ "spec": { "containers": [container] } })).unwrap()
    }

    #[test]
    fn an_addon_keeps_its_registry_and_gets_the_version() {
        let own = template("mirror.example.com:5000/k8s/kube-proxy:v1.36.3");
        let patch = image_patch(Some(&own), ("kube-proxy", "v1.37.2")).unwrap();
        assert_eq!(
            patch[1]["value"],
            "mirror.example.com:5000/k8s/kube-proxy:v1.37.2"
        );
    }

    #[test]
    fn what_is_right_or_somebody_elses_is_left_alone() {
        let right = template("registry.k8s.io/coredns/coredns:v1.14.6");
        assert_eq!(image_patch(Some(&right), ("coredns", "v1.14.6")), None);
        let other = template("quay.io/cilium/proxy:v1");
        assert_eq!(image_patch(Some(&other), ("kube-proxy", "v1.37.2")), None);
    }
}
