//! Where joins and kube-proxy of a guest look for its API.

use guestcluster_api::labels;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::config::Kubeconfig;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::GuestApi;
use crate::error::Error;
use crate::pointer;

/// A ConfigMap that holds a kubeconfig, and the key under which it does.
struct Place {
    namespace: &'static str,
    name: &'static str,
    key: &'static str,
}

/// What every join reads before it trusts the guest (kubeadm's `bootstrap-token` phase).
const CLUSTER_INFO: Place = Place {
    namespace: "kube-public",
    name: "cluster-info",
    key: "kubeconfig",
};
const KUBE_PROXY: Place = Place {
    namespace: "kube-system",
    name: "kube-proxy",
    key: "kubeconfig.conf",
};
const SCHEME: &str = "https://";

impl GuestApi<'_> {
    /// `host:port` under which joins look for the guest's API; `None` if nothing tells them.
    pub(super) async fn server(&self, client: &Client) -> Result<Option<String>, Error> {
        let map = self.read_place(client, &CLUSTER_INFO).await?;
        Ok(map.and_then(|(_, text)| server_of(&parse(&text).ok()?)))
    }

    /// Has kube-proxy and joins look elsewhere. Joins come last: what they are told says that all is
    /// done. A kube-proxy that somebody has removed or configured in another way is theirs.
    pub async fn move_endpoint(&self, server: &str) -> Result<(), Error> {
        let client = self.client().await?;
        self.move_place(&client, &KUBE_PROXY, server).await?;
        self.restart_proxy(&client, server).await?;
        self.move_place(&client, &CLUSTER_INFO, server).await
    }

    /// Its Pods read their configuration at their start alone.
    async fn restart_proxy(&self, client: &Client, server: &str) -> Result<(), Error> {
        let api = Api::<DaemonSet>::namespaced(client.clone(), KUBE_PROXY.namespace);
        let found = self.calls.read(&api, KUBE_PROXY.name).await;
        let Some(found) = found.map_err(Error::Guest)? else {
            return Ok(());
        };
        let template = found.spec.and_then(|spec| spec.template.metadata);
        let annotations = template.and_then(|meta| meta.annotations);
        let patch = note_patch(annotations.is_some(), server);
        let patched = self.calls.patch(&api, KUBE_PROXY.name, patch).await;
        patched.map_err(Error::Guest).map(drop)
    }

    async fn read_place(
        &self,
        client: &Client,
        place: &Place,
    ) -> Result<Option<(Api<ConfigMap>, String)>, Error> {
        let api = Api::<ConfigMap>::namespaced(client.clone(), place.namespace);
        let map = self.calls.read(&api, place.name).await;
        let text = map.map_err(Error::Guest)?.and_then(|map| {
            let mut data = map.data?;
            data.remove(place.key)
        });
        Ok(text.map(|text| (api, text)))
    }

    async fn move_place(&self, client: &Client, place: &Place, server: &str) -> Result<(), Error> {
        let Some((api, text)) = self.read_place(client, place).await? else {
            return Ok(());
        };
        let Some(moved) = moved(&text, server)? else {
            return Ok(());
        };
        let key = format!("/data/{}", place.key);
        let patch = json!([
            { "op": "test", "path": key, "value": text },
            { "op": "replace", "path": key, "value": moved },
        ]);
        let patched = self.calls.patch(&api, place.name, patch).await;
        patched.map_err(Error::Guest).map(drop)
    }
}

/// Notes the endpoint on the template of kube-proxy's Pods, so that they are made anew.
fn note_patch(has_annotations: bool, server: &str) -> Value {
    let path = "/spec/template/metadata/annotations";
    let entry = pointer::entry(path, labels::SERVER);
    let note = json!({ "op": "add", "path": entry, "value": server });
    if has_annotations {
        return json!([note]);
    }
    json!([{ "op": "add", "path": path, "value": {} }, note])
}

fn parse(text: &str) -> Result<Kubeconfig, Error> {
    Kubeconfig::from_yaml(text)
        .map_err(|error| Error::Malformed(format!("a kubeconfig of the guest: {error}")))
}

fn server_of(config: &Kubeconfig) -> Option<String> {
    let cluster = config.clusters.first()?.cluster.as_ref()?;
    let server = cluster.server.as_ref()?.strip_prefix(SCHEME)?;
    Some(server.to_owned())
}

/// The kubeconfig with another server; `None` if it has that one already. JSON is YAML as well.
fn moved(text: &str, server: &str) -> Result<Option<String>, Error> {
    let mut config = parse(text)?;
    if server_of(&config).as_deref() == Some(server) {
        return Ok(None);
    }
    for cluster in &mut config.clusters {
        if let Some(cluster) = &mut cluster.cluster {
            cluster.server = Some(format!("{SCHEME}{server}"));
        }
    }
    serde_json::to_string_pretty(&config)
        .map(Some)
        .map_err(|error| Error::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
    server: https://10.79.0.5:6443
  name: default
contexts:
- context:
    cluster: default
    namespace: default
    user: default
  name: default
current-context: default
users:
- name: default
  user:
    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
";

    #[test]
    fn a_kubeconfig_keeps_all_but_its_server() {
        let moved = moved(PROXY, "api.example.com:6443").unwrap().unwrap();
        let before: Value = serde_json::to_value(parse(PROXY).unwrap()).unwrap();
        let mut after: Value = serde_json::from_str(&moved).unwrap();
        let server = &mut after["clusters"][0]["cluster"]["server"];
        assert_eq!(*server, "https://api.example.com:6443");
        *server = json!("https://10.79.0.5:6443");
        assert_eq!(after, before);
        assert_eq!(
            after["users"][0]["user"]["tokenFile"],
            "/var/run/secrets/kubernetes.io/serviceaccount/token"
        );
    }

    #[test]
    fn one_that_is_right_is_not_written() {
        assert_eq!(moved(PROXY, "10.79.0.5:6443").unwrap(), None);
    }

    #[test]
    fn what_joins_are_told_has_no_user() {
        let text = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: QQ==\n    server: https://a:1\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {}\nusers: null\n";
        assert_eq!(server_of(&parse(text).unwrap()).as_deref(), Some("a:1"));
        assert!(moved(text, "b:1").unwrap().unwrap().contains("https://b:1"));
    }
}
