//! Objects of the infrastructure cluster, from a planned body to a call.

use std::collections::BTreeMap;
use std::fmt::Debug;

use guestcluster_api::labels;
use guestcluster_foreign::cdi::DataVolume;
use guestcluster_foreign::core::SlimService;
use guestcluster_foreign::kubevirt::{
    MigrationPolicy, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
};
use guestcluster_planner::action::{Kind, Object, Victim};
use guestcluster_shell::apply::{Deleted, Target};
use guestcluster_shell::clock::monotonic;
use guestcluster_shell::error::Error as CallError;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::api::{ObjectMeta, PropagationPolicy};
use kube::core::{NamespaceResourceScope, PartialObjectMeta, PartialObjectMetaExt};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::{Context, Round};
use crate::error::Error;
use crate::pointer;
use crate::stores::cluster_of;
use crate::views::SlimSlice;

/// Runs an expression with the way to objects of a kind, as the type that we know it by: the one of its
/// store.
macro_rules! with_api {
    (($context:expr, $round:expr), $kind:expr, $api:ident => $body:expr) => {
        match $kind {
            Kind::VirtualMachine => {
                let $api = $context.api::<VirtualMachine>($round);
                $body
            }
            Kind::Instance => {
                let $api = $context.api::<VirtualMachineInstance>($round);
                $body
            }
            Kind::Migration => {
                let $api = $context.api::<VirtualMachineInstanceMigration>($round);
                $body
            }
            Kind::MigrationPolicy => {
                let $api = Api::<MigrationPolicy>::all($context.client.clone());
                $body
            }
            Kind::DataVolume => {
                let $api = $context.api::<DataVolume>($round);
                $body
            }
            Kind::Claim => {
                let $api = $context.api::<PartialObjectMeta<PersistentVolumeClaim>>($round);
                $body
            }
            Kind::Service => {
                let $api = $context.api::<SlimService>($round);
                $body
            }
            Kind::EndpointSlice => {
                let $api = $context.api::<SlimSlice>($round);
                $body
            }
            Kind::Secret => {
                let $api = $context.api::<PartialObjectMeta<Secret>>($round);
                $body
            }
        }
    };
}

impl Context {
    /// Makes an object that must not exist yet, or finds that it is there and ours.
    pub(super) async fn create(&self, round: &Round<'_>, object: &Object) -> Result<(), Error> {
        with_api!((self, round), object.kind, api => {
            self.create_at(round, &api, &object.body).await.map(drop)
        })
    }

    /// Applies an object. One that we have not seen yet must not be somebody else's.
    pub(super) async fn apply(&self, round: &Round<'_>, object: &Object) -> Result<(), Error> {
        with_api!((self, round), object.kind, api => self.apply_at(round, &api, object).await)
    }

    /// Deletes exactly the object that was seen.
    pub(super) async fn delete(&self, round: &Round<'_>, victim: &Victim) -> Result<(), Error> {
        with_api!((self, round), victim.kind, api => self.delete_at(round, &api, victim).await)
    }

    /// Makes an object; `true` if this call made it.
    pub(super) async fn create_at<K, P>(
        &self,
        round: &Round<'_>,
        api: &Api<K>,
        body: &P,
    ) -> Result<bool, Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
        P: Serialize,
    {
        let created = self.writer.create(api, body).await?;
        let is_new = matches!(created, guestcluster_shell::apply::Created::New(_));
        self.ledger
            .wrote(round.subject.key, &created.into_object(), monotonic());
        Ok(is_new)
    }

    async fn apply_at<K>(
        &self,
        round: &Round<'_>,
        api: &Api<K>,
        object: &Object,
    ) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let mut body = object.body.clone();
        let uid = match seen_uid(round, object) {
            Some(uid) => Some(uid),
            None => self.own_uid(round, api, object).await?,
        };
        if let Some(uid) = uid {
            // That object or none: what takes its place meanwhile is left alone.
            body["metadata"]["uid"] = json!(uid);
        }
        let written = self.writer.apply(api, &body).await?;
        self.ledger.wrote(round.subject.key, &written, monotonic());
        Ok(())
    }

    /// The UID of the object of that name, if there is one of ours.
    async fn own_uid<K>(
        &self,
        round: &Round<'_>,
        api: &Api<K>,
        object: &Object,
    ) -> Result<Option<String>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let Some(live) = self.writer.read(api, &object.name).await? else {
            return Ok(None);
        };
        let (owner, uid) = owner_of(&live);
        if uid.as_ref() == Some(&round.subject.wanted.identity.uid) {
            return Ok(live.uid());
        }
        let call = format!("apply {} {}", object.kind.name(), object.name);
        Err(CallError::Taken { call, owner }.into())
    }

    async fn delete_at<K>(
        &self,
        round: &Round<'_>,
        api: &Api<K>,
        victim: &Victim,
    ) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let target = Target {
            name: &victim.name,
            uid: &victim.uid,
            resource_version: Some(&victim.resource_version),
            propagation: PropagationPolicy::Background,
        };
        let (key, time) = (round.subject.key, monotonic());
        match self.writer.delete(api, target).await? {
            Deleted::Terminating(object) => self.ledger.wrote(key, object.as_ref(), time),
            Deleted::Gone => {
                let gone = ObjectMeta {
                    namespace: api.namespace().map(str::to_owned),
                    name: Some(victim.name.clone()),
                    uid: Some(victim.uid.clone()),
                    ..ObjectMeta::default()
                };
                self.ledger
                    .removed(key, &gone.into_response_partial::<K>(), time);
            }
        }
        Ok(())
    }

    /// Lets a disk go: its claim loses its owner and tells by labels what it was, and the
    /// DataVolume that filled it, which owned it, is deleted.
    pub(super) async fn retain(
        &self,
        round: &Round<'_>,
        disk: &Victim,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let api = self.api::<PartialObjectMeta<PersistentVolumeClaim>>(round);
        if let Some(claim) = self.writer.read(&api, &disk.name).await? {
            let patch = release(&claim, labels);
            let written = self.writer.patch(&api, &disk.name, patch).await?;
            self.ledger.wrote(round.subject.key, &written, monotonic());
        }
        match disk.kind {
            Kind::Claim => Ok(()),
            Kind::VirtualMachine
            | Kind::Instance
            | Kind::Migration
            | Kind::MigrationPolicy
            | Kind::DataVolume
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::Secret => self.delete(round, disk).await,
        }
    }

    pub(super) fn api<K>(&self, round: &Round<'_>) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &round.subject.key.namespace)
    }
}

/// Who controls an object, in words and by UID. What is in no namespace cannot have an owner in one:
/// there our labels say whose it is.
fn owner_of<K: Resource>(live: &K) -> (String, Option<String>) {
    let mut owners = live.owner_references().iter();
    if let Some(owner) = owners.find(|owner| owner.controller == Some(true)) {
        let words = format!("{} {}", owner.kind, owner.name);
        return (words, Some(owner.uid.clone()));
    }
    let cluster = cluster_of(live).filter(|_| live.meta().namespace.is_none());
    cluster.map_or_else(
        || ("nobody".to_owned(), None),
        |cluster| {
            let uid = live.labels().get(labels::CLUSTER_UID);
            (format!("GuestCluster {cluster}"), uid.cloned())
        },
    )
}

/// The UID of an object that the plan has seen.
fn seen_uid(round: &Round<'_>, object: &Object) -> Option<String> {
    let (seen, name) = (round.seen, &object.name);
    let meta = match object.kind {
        Kind::VirtualMachine => seen.vms.get(name).map(|vm| &vm.meta),
        Kind::Instance => seen.instances.get(name).map(|instance| &instance.meta),
        Kind::Migration => seen.migrations.get(name).map(|migration| &migration.meta),
        Kind::MigrationPolicy => {
            let policies = seen.migration_policies.as_ref();
            policies.and_then(|all| Some(&all.get(name)?.meta))
        }
        Kind::DataVolume => seen.disks.get(name).map(|disk| &disk.meta),
        Kind::Claim => seen.claims.get(name),
        Kind::Service => seen.services.get(name).map(|service| &service.meta),
        Kind::EndpointSlice => seen.slices.get(name).map(|slice| &slice.meta),
        Kind::Secret => seen.secrets.get(name).map(|secret| &secret.meta),
    };
    meta.map(|meta| meta.uid.clone())
}

/// The patch that takes a claim's owners off and sets labels, if it is still that claim.
fn release<K: Resource>(claim: &K, labels: &BTreeMap<String, String>) -> Value {
    let meta = claim.meta();
    let mut steps = vec![json!({ "op": "test", "path": "/metadata/uid", "value": meta.uid })];
    if meta.owner_references.is_some() {
        steps.push(json!({ "op": "remove", "path": "/metadata/ownerReferences" }));
    }
    if meta.labels.is_none() {
        steps.push(json!({ "op": "add", "path": "/metadata/labels", "value": {} }));
    }
    for (key, value) in labels {
        let path = pointer::label(key);
        steps.push(json!({ "op": "add", "path": path, "value": value }));
    }
    Value::Array(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_kept_has_no_owner_and_says_what_it_was() {
        let claim: PartialObjectMeta<PersistentVolumeClaim> = serde_json::from_value(json!({
            "metadata": {
                "name": "a-cp-1-root", "uid": "u", "labels": {},
                "ownerReferences": [{
                    "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                    "name": "a-cp-1-root", "uid": "d",
                }],
            },
        }))
        .unwrap();
        let labels = [("guestcluster.dev/retained".to_owned(), "true".to_owned())].into();
        assert_eq!(
            release(&claim, &labels),
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "u" },
                { "op": "remove", "path": "/metadata/ownerReferences" },
                {
                    "op": "add", "path": "/metadata/labels/guestcluster.dev~1retained",
                    "value": "true",
                },
            ])
        );
    }
}
