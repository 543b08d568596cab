//! What a GuestCluster has left behind outside its namespace, where no owner reference can take it
//! along: its finalizer was taken off by force while the operator was away.

use guestcluster_api::{GuestCluster, labels, names};
use guestcluster_foreign::kubevirt::MigrationPolicy;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::apply::Target;
use guestcluster_shell::clock::monotonic;
use kube::api::PropagationPolicy;
use kube::{Api, ResourceExt};
use tracing::info;

use super::Context;
use super::execute::ACTION;
use crate::error::Error;
use crate::stores::cluster_of;

impl Context {
    /// Deletes the MigrationPolicy that a former cluster of this name has left behind; `true` if there
    /// was one. `uid` is that of the cluster that has the name now.
    pub(super) async fn sweep(
        &self,
        key: &NamespacedName,
        uid: Option<&str>,
    ) -> Result<bool, Error> {
        let name = names::migration_policy(&key.namespace, &key.name);
        let store = &self.stores.migration_policies;
        let policy = store.get(&NamespacedName::new("", &name));
        let Some(policy) = policy else {
            return Ok(false);
        };
        match former(&policy, key, uid) {
            Some(former) => self.delete_policy(key, &policy, former).await,
            None => Ok(false),
        }
    }

    /// The stores may be behind, so that the API server is asked whether the maker is really gone.
    pub(super) async fn delete_policy(
        &self,
        key: &NamespacedName,
        policy: &MigrationPolicy,
        maker: &str,
    ) -> Result<bool, Error> {
        let clusters = Api::<GuestCluster>::namespaced(self.client.clone(), &key.namespace);
        let live = self.writer.read(&clusters, &key.name).await?;
        if live.is_some_and(|live| live.metadata.uid.as_deref() == Some(maker)) {
            return Ok(false);
        }
        if !self.leader.allows(monotonic(), ACTION) {
            return Err(Error::NotLeading);
        }
        let name = policy.name_any();
        let target = Target {
            name: &name,
            uid: policy.metadata.uid.as_deref().unwrap_or_default(),
            resource_version: policy.metadata.resource_version.as_deref(),
            propagation: PropagationPolicy::Background,
        };
        let policies = Api::<MigrationPolicy>::all(self.client.clone());
        self.writer.delete(&policies, target).await?;
        info!(cluster = %key, policy = name, maker, "stray deleted");
        Ok(true)
    }
}

/// The UID of the cluster that made a policy, if it is another one than has the name now.
fn former<'a>(
    policy: &'a MigrationPolicy,
    key: &NamespacedName,
    uid: Option<&str>,
) -> Option<&'a str> {
    if cluster_of(policy).as_ref() != Some(key) {
        return None;
    }
    let maker = policy.labels().get(labels::CLUSTER_UID)?;
    (Some(maker.as_str()) != uid).then_some(maker)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_policy_of_a_former_cluster_of_the_name_is_a_stray() {
        let of = |labels: serde_json::Value| -> MigrationPolicy {
            let meta = json!({ "name": "n.a", "uid": "p", "labels": labels });
            serde_json::from_value(json!({ "metadata": meta, "spec": {} })).unwrap()
        };
        let ours = of(json!({
            labels::NAMESPACE: "n", labels::CLUSTER: "a", labels::CLUSTER_UID: "former",
        }));
        let key = NamespacedName::new("n", "a");
        assert_eq!(former(&ours, &key, None), Some("former"));
        assert_eq!(former(&ours, &key, Some("now")), Some("former"));
        assert_eq!(former(&ours, &key, Some("former")), None);
        let half = of(json!({ labels::CLUSTER: "a", labels::CLUSTER_UID: "former" }));
        assert_eq!(
            former(&half, &key, None),
            None,
            "nobody says which namespace"
        );
        let other = NamespacedName::new("m", "a");
        assert_eq!(former(&ours, &other, None), None);
    }
}
