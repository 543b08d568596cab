//! Actions of a plan, carried out one by one.

use std::collections::BTreeSet;

use guestcluster_api::labels;
use guestcluster_bridge::capi as names;
use guestcluster_bridge::serve::{Action, Owner, Plan, Seen, Target, user_data};
use guestcluster_foreign::core::SlimService;
use guestcluster_foreign::kubevirt::{VirtualMachine, VirtualMachineInstance};
use guestcluster_pki::SecretData;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::apply::{self, Deleted};
use guestcluster_shell::clock::monotonic;
use guestcluster_shell::error::{Class, Classify};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PropagationPolicy;
use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::memory::Memory;
use super::{ACTION, Context};
use crate::error::Error;
use crate::guest_api::{GuestApi, Way};
use crate::secret_body::secret_body;

/// Key of the document in the Secret that a machine boots from, as KubeVirt wants it.
const USER_DATA: &str = "userdata";
/// Key of the document in a bootstrap Secret, by Cluster API's contract.
const BOOTSTRAP: &str = "value";
/// Key of the public key in a Secret of SSH keys.
const PUBLIC_KEY: &str = "pub";

impl Context {
    /// Carries a plan out. What fails holds up its own machine and no other: it is answered at the end.
    pub(super) async fn execute(
        &self,
        key: &NamespacedName,
        (seen, plan): (&Seen, &Plan),
        memory: &mut Memory,
    ) -> Result<Vec<&'static str>, Error> {
        let (mut done, mut failed, mut failure) = (Vec::new(), BTreeSet::new(), None);
        for action in &plan.actions {
            if failed.contains(&action.machine()) {
                continue;
            }
            if !self.leader.allows(monotonic(), ACTION) {
                return Err(Error::NotLeading.after(done.len()));
            }
            match Box::pin(self.carry_out(key, (seen, action), memory)).await {
                Ok(()) => done.push(action.kind()),
                Err(error) => {
                    failed.insert(action.machine());
                    if !remember(action, &error, memory) {
                        failure.get_or_insert(error);
                    }
                }
            }
        }
        match failure {
            Some(error) => Err(error.after(done.len())),
            None => Ok(done),
        }
    }

    async fn carry_out(
        &self,
        key: &NamespacedName,
        (seen, action): (&Seen, &Action),
        memory: &mut Memory,
    ) -> Result<(), Error> {
        match action {
            Action::AddFinalizer(owner) => self.finalizer(key, (seen, owner), true).await,
            Action::RemoveFinalizer(owner) => self.finalizer(key, (seen, owner), false).await,
            Action::ApplyService(body) => {
                let written = self
                    .writer
                    .apply(&self.api_of::<SlimService>(body), body)
                    .await?;
                self.ledger.wrote(key, &written, monotonic());
                Ok(())
            }
            Action::DeleteService(target) => self.delete::<SlimService>(key, target).await,
            Action::SetEndpoint(endpoint) => {
                let infra = seen
                    .infra
                    .as_ref()
                    .ok_or_else(|| gone("KubevirtCluster", &key.name))?;
                let value = json!({ "host": endpoint.host, "port": endpoint.port });
                self.set(key, infra, ("/spec/controlPlaneEndpoint", value))
                    .await
            }
            Action::SetProviderId { machine, id } => {
                let object = &seen.machines.get(machine);
                let object = object.ok_or_else(|| gone("KubevirtMachine", machine))?;
                self.set(key, &object.object, ("/spec/providerID", json!(id)))
                    .await
            }
            Action::WriteUserData { .. } | Action::ScrubUserData { .. } => {
                self.write_user_data(key, action).await
            }
            Action::DeleteUserData { secret, .. } => {
                self.delete::<PartialObjectMeta<Secret>>(key, secret).await
            }
            Action::CreateVm { machine, body } => {
                let api = self.api_of::<VirtualMachine>(body);
                let made = self.writer.create(&api, body).await?.into_object();
                memory.refused.remove(machine);
                self.ledger.wrote(key, &made, monotonic());
                Ok(())
            }
            Action::DeleteVm(target) => self.delete::<VirtualMachine>(key, target).await,
            Action::DeleteInstance(target) => {
                self.delete::<VirtualMachineInstance>(key, target).await
            }
            Action::SetNodeProviderId { .. } | Action::SetDrain { .. } | Action::Evict { .. } => {
                // What the guest says next is another answer.
                memory.guest = None;
                self.change_guest(key, action, memory).await
            }
        }
    }

    async fn finalizer(
        &self,
        key: &NamespacedName,
        (seen, owner): (&Seen, &Owner),
        add: bool,
    ) -> Result<(), Error> {
        match owner {
            Owner::Cluster => {
                let infra = seen
                    .infra
                    .as_ref()
                    .ok_or_else(|| gone("KubevirtCluster", &key.name))?;
                self.hold(key, infra, (names::CLUSTER_FINALIZER, add)).await
            }
            Owner::Machine(name) => {
                let machine = seen.machines.get(name);
                let machine = machine.ok_or_else(|| gone("KubevirtMachine", name))?;
                self.hold(key, &machine.object, (names::MACHINE_FINALIZER, add))
                    .await
            }
        }
    }

    async fn hold<K>(
        &self,
        key: &NamespacedName,
        object: &K,
        (finalizer, add): (&str, bool),
    ) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api = self.api::<K>(&key.namespace);
        let written = if add {
            self.writer.add_finalizer(&api, object, finalizer).await?
        } else {
            self.writer
                .remove_finalizer(&api, object, finalizer)
                .await?
        };
        let Some(written) = written else {
            return Ok(());
        };
        // Without finalizers the server has removed the object instead of changing it.
        if !add && written.finalizers().is_empty() && written.meta().deletion_timestamp.is_some() {
            self.ledger.removed(key, &written, monotonic());
        } else {
            self.ledger.wrote(key, &written, monotonic());
        }
        Ok(())
    }

    /// Sets one field of the object that was seen.
    async fn set<K>(
        &self,
        key: &NamespacedName,
        object: &K,
        (path, value): (&str, Value),
    ) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let steps = json!([
            { "op": "test", "path": "/metadata/uid", "value": object.uid() },
            { "op": "add", "path": path, "value": value },
        ]);
        let api = self.api::<K>(&key.namespace);
        let written = self.writer.patch(&api, &object.name_any(), steps).await?;
        self.ledger.wrote(key, &written, monotonic());
        Ok(())
    }

    async fn write_user_data(&self, key: &NamespacedName, action: &Action) -> Result<(), Error> {
        let (namespace, body) = match action {
            Action::WriteUserData {
                machine,
                namespace,
                bootstrap,
                ssh_keys,
            } => {
                let keys = ssh_keys.as_deref();
                let place = (machine.as_str(), namespace.as_str());
                let made = self.boot_document(key, place, (bootstrap, keys)).await?;
                (namespace, made)
            }
            Action::ScrubUserData { machine, secret } => (
                &secret.namespace,
                self.scrubbed_document(key, (machine, secret)).await?,
            ),
            _ => return Ok(()),
        };
        let (metadata, data) = body;
        let body = secret_body(metadata, names::SECRET_TYPE, &data);
        let api = self.api::<PartialObjectMeta<Secret>>(namespace);
        let written = self.writer.apply(&api, &body).await?;
        self.ledger.wrote(key, &written, monotonic());
        Ok(())
    }

    /// Metadata and data of the Secret that a machine boots from.
    async fn boot_document(
        &self,
        key: &NamespacedName,
        (machine, namespace): (&str, &str),
        (bootstrap, ssh_keys): (&str, Option<&str>),
    ) -> Result<(Value, SecretData), Error> {
        let data = self.secrets.read(&key.namespace, bootstrap).await?;
        let document = entry(&data, (bootstrap, BOOTSTRAP))?;
        let document = match ssh_keys {
            None => document.to_vec(),
            Some(name) => {
                let keys = self.secrets.read(&key.namespace, name).await?;
                let public =
                    String::from_utf8_lossy(entry(&keys, (name, PUBLIC_KEY))?).into_owned();
                user_data::with_user(document, &public)
                    .map_err(|error| first_boot(machine, &error))?
            }
        };
        let secret = NamespacedName::new(&key.namespace, bootstrap);
        let copied = self.stores.secrets.get(&secret);
        let copied = copied
            .map(|secret| secret.labels().clone())
            .unwrap_or_default();
        let mut all = copied;
        all.extend(own_labels(key, machine));
        let metadata = json!({
            "name": names::user_data_secret(bootstrap), "namespace": namespace, "labels": all,
        });
        Ok((metadata, SecretData::from_iter([(USER_DATA, document)])))
    }

    /// The same without what is secret, for exactly the Secret that was seen.
    async fn scrubbed_document(
        &self,
        key: &NamespacedName,
        (machine, secret): (&str, &Target),
    ) -> Result<(Value, SecretData), Error> {
        let data = self.secrets.read(&secret.namespace, &secret.name).await?;
        let document = entry(&data, (&secret.name, USER_DATA))?;
        let document =
            user_data::scrubbed(document).map_err(|error| first_boot(machine, &error))?;
        let name = NamespacedName::new(&secret.namespace, &secret.name);
        let live = self.stores.secrets.get(&name);
        let mut all = live.map(|live| live.labels().clone()).unwrap_or_default();
        all.extend(own_labels(key, machine));
        let metadata = json!({
            "name": secret.name,
            "namespace": secret.namespace,
            "uid": secret.uid,
            "resourceVersion": secret.resource_version,
            "labels": all,
            "annotations": { labels::SCRUBBED: "true" },
        });
        Ok((metadata, SecretData::from_iter([(USER_DATA, document)])))
    }

    async fn change_guest(
        &self,
        key: &NamespacedName,
        action: &Action,
        memory: &mut Memory,
    ) -> Result<(), Error> {
        let name = names::kubeconfig_secret(&key.name);
        let secret = self
            .stores
            .secrets
            .get(&NamespacedName::new(&key.namespace, &name));
        let version = secret
            .and_then(|secret| secret.resource_version())
            .unwrap_or_default();
        let client = self.guests.client(key, (&name, &version)).await?;
        let guest = GuestApi {
            way: Way::Client(client),
            calls: &self.guest_calls,
        };
        match action {
            Action::SetNodeProviderId { node, uid, id } => {
                guest.set_provider_id(node, uid, id).await
            }
            Action::SetDrain { node, uid, since } => guest.set_drain(node, uid, *since).await,
            Action::Evict { pods, .. } => {
                for pod in pods {
                    let refused = guest.evict(pod).await?;
                    match refused {
                        Some(why) => memory.refusals.insert(pod.uid.clone(), (monotonic(), why)),
                        None => memory.refusals.remove(&pod.uid),
                    };
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn delete<K>(&self, key: &NamespacedName, target: &Target) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
        K: Resource<Scope = kube::core::NamespaceResourceScope>,
    {
        let api = self.api::<K>(&target.namespace);
        let means = apply::Target {
            name: &target.name,
            uid: &target.uid,
            resource_version: Some(&target.resource_version),
            propagation: PropagationPolicy::Foreground,
        };
        if let Deleted::Terminating(object) = self.writer.delete(&api, means).await? {
            self.ledger.wrote(key, object.as_ref(), monotonic());
        }
        Ok(())
    }

    fn api_of<K>(&self, body: &Value) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        let namespace = body.pointer("/metadata/namespace").and_then(Value::as_str);
        self.api(namespace.unwrap_or_default())
    }

    /// Objects of a kind in a namespace.
    pub(super) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// Keeps what was said against a virtual machine, which its status tells. Whether it was that.
fn remember(action: &Action, error: &Error, memory: &mut Memory) -> bool {
    let is_refusal = matches!(error.class(), Class::Rejected | Class::Denied);
    let Action::CreateVm { machine, .. } = action else {
        return false;
    };
    if is_refusal {
        let told = (monotonic(), error.explain());
        memory.refused.insert(machine.clone(), told);
    }
    is_refusal
}

/// Labels by which a machine's Secret is found, wherever it is.
fn own_labels(key: &NamespacedName, machine: &str) -> [(String, String); 3] {
    [
        (names::CLUSTER_NAME, &*key.name),
        (names::MACHINE_NAME, machine),
        (names::MACHINE_NAMESPACE, &*key.namespace),
    ]
    .map(|(label, value)| (label.to_owned(), value.to_owned()))
}

fn entry<'a>(data: &'a SecretData, (secret, key): (&str, &str)) -> Result<&'a [u8], Error> {
    let found = data.iter().find(|(name, _)| *name == key);
    let missing = || Error::Gone(format!("the Secret {secret} has no key {key}"));
    found.map(|(_, value)| value).ok_or_else(missing)
}

fn first_boot(machine: &str, error: &user_data::Error) -> Error {
    Error::FirstBoot {
        machine: machine.to_owned(),
        reason: error.to_string(),
    }
}

fn gone(kind: &str, name: &str) -> Error {
    Error::Gone(format!("{kind} {name} is gone"))
}
