//! Writing to an API server: server-side apply, create-only, guarded delete, finalizers, status.
//!
//! # Guarantees
//! - Every call ends within the writer's timeout, whatever the client does inside (kube retries
//!   429, 503 and 504 for minutes).
//! - Nothing is written by PUT or merge patch, so fields that our types do not know survive.
//! - A delete and a finalizer patch name the uid they mean, and the patch the list that it has
//!   seen: a namesake made meanwhile is left alone.
//!
//! # Assumes
//! - One field manager for one intent: what an earlier apply of the same manager stated and this
//!   one does not is removed by the server.
//!
//! # Caveats
//! - A timeout does not say whether the call took effect. Observe before trying again.
//! - An apply with a field that the server's version of the kind does not have is refused as a
//!   whole ([`Rejected`](crate::error::Class::Rejected)), whatever `fieldValidation` says; a create
//!   loses the field with a warning.
//! - A status can land on a namesake made meanwhile, until that one's own first report: the server
//!   takes a custom resource's metadata from what is stored before it could compare the uid.

mod finalizer;
mod status;

pub use status::{StatusWrite, TIMES, equal_ignoring};

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use kube::api::{
    DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy, Request,
};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;

/// The outcome of a write.
pub type Result<T> = std::result::Result<T, Error>;

/// Writes objects in the name of one field manager.
#[derive(Clone, Debug)]
pub struct Writer {
    manager: &'static str,
    timeout: Duration,
}

/// What a create-only call found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created<K> {
    /// The object was made by this call.
    New(K),
    /// An object of that name with the same controller was there already; this is the live one.
    Existing(K),
}

impl<K> Created<K> {
    /// The live object, however it came about.
    pub fn into_object(self) -> K {
        match self {
            Self::New(object) | Self::Existing(object) => object,
        }
    }
}

/// What a delete found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted<K> {
    /// The object is gone, by this call or before it.
    Gone,
    /// The server has marked the object; finalizers or a grace period keep it for now.
    Terminating(Box<K>),
}

/// Which object a delete means, and what becomes of its dependents.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// The object's name.
    pub name: &'a str,
    /// Its uid. Another object of the same name is not deleted.
    pub uid: &'a str,
    /// Its resource version, where the decision rests on its content. A newer one is not deleted.
    pub resource_version: Option<&'a str>,
    /// What becomes of objects that it owns.
    pub propagation: PropagationPolicy,
}

impl Writer {
    /// A writer for a field manager. `timeout` bounds each single call.
    pub fn new(manager: &'static str, timeout: Duration) -> Self {
        Self { manager, timeout }
    }

    /// The longest that one call can take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// States the whole intent for an object by server-side apply, taking fields from others.
    ///
    /// `intent` is any form of the object that serialises with `apiVersion`, `kind` and
    /// `metadata.name`. An intent that carries `metadata.uid` changes that object or nothing.
    pub async fn apply<K, P>(&self, api: &Api<K>, intent: &P) -> Result<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
        P: Serialize,
    {
        let (name, body) = body::<K, P>("apply", intent)?;
        let call = call::<K>("apply", &name);
        self.within(
            call,
            api.patch(&name, &self.apply_params(), &Patch::Apply(&body)),
        )
        .await
    }

    /// Makes an object, or finds that it is there with the same controller.
    ///
    /// The intent should have a controller reference; without one, an existing object counts as
    /// ours when it has no controller either. An existing object's content is not looked at.
    ///
    /// # Errors
    /// [`Error::Taken`] if an object of that name has another controller.
    pub async fn create<K, P>(&self, api: &Api<K>, intent: &P) -> Result<Created<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
        P: Serialize,
    {
        let (name, body) = body::<K, P>("create", intent)?;
        let call = call::<K>("create", &name);
        match self.within(call.clone(), self.post(api, &body)).await {
            Ok(object) => Ok(Created::New(object)),
            Err(Error::Kube {
                source: kube::Error::Api(status),
                ..
            }) if status.is_already_exists() => {
                let live = self.within(call.clone(), api.get(&name)).await?;
                let owner = controller_uid(live.meta());
                if owner == intended_controller(&body) {
                    Ok(Created::Existing(live))
                } else {
                    Err(Error::Taken {
                        call,
                        owner: describe_owner(&live),
                    })
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes exactly the object that was observed.
    ///
    /// # Errors
    /// A failure of class [`Conflict`](crate::error::Class::Conflict) if the name now belongs to
    /// another object or the object has changed.
    pub async fn delete<K>(&self, api: &Api<K>, target: Target<'_>) -> Result<Deleted<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let params = DeleteParams {
            propagation_policy: Some(target.propagation),
            preconditions: Some(Preconditions {
                uid: Some(target.uid.to_owned()),
                resource_version: target.resource_version.map(str::to_owned),
            }),
            ..DeleteParams::default()
        };
        let call = call::<K>("delete", target.name);
        match self.within(call, api.delete(target.name, &params)).await {
            // Some kinds are answered as they were when they went; only what is marked is kept.
            Ok(either) => Ok(either
                .left()
                .filter(is_marked)
                .map_or(Deleted::Gone, |object| {
                    Deleted::Terminating(Box::new(object))
                })),
            Err(error) if error.is_not_found() => Ok(Deleted::Gone),
            Err(error) => Err(error),
        }
    }

    /// Reads an object from the server, past all stores. `None` if there is none.
    pub async fn read<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        self.within(call::<K>("get", name), api.get_opt(name)).await
    }

    /// Changes an object by a JSON patch (RFC 6902) that first tests what was observed.
    ///
    /// # Errors
    /// [`Error::Changed`] if a test fails: the object is not as observed any more.
    pub async fn patch<K>(&self, api: &Api<K>, name: &str, steps: Value) -> Result<K>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let call = format!("patch {name}");
        let patch = serde_json::from_value(steps).map_err(|error| Error::Malformed {
            call: call.clone(),
            reason: error.to_string(),
        })?;
        let params = PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Json::<()>(patch);
        match self.within(call, api.patch(name, &params, &patch)).await {
            Err(Error::Kube {
                call,
                source: kube::Error::Api(status),
            }) if is_failed_test(&status) => Err(Error::Changed { call }),
            other => other,
        }
    }

    /// Runs one call of the client under the writer's timeout. `call` is a verb and an object.
    pub async fn within<T>(
        &self,
        call: String,
        future: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.timeout, future).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => Err(Error::Kube { call, source }),
            Err(_elapsed) => Err(Error::Timeout {
                call,
                limit: self.timeout,
            }),
        }
    }

    fn apply_params(&self) -> PatchParams {
        PatchParams::apply(self.manager).force()
    }

    /// `Api::create` wants the stored type; what we send may know more fields than what we keep.
    async fn post<K>(&self, api: &Api<K>, body: &Value) -> kube::Result<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let params = PostParams {
            field_manager: Some(self.manager.to_owned()),
            ..PostParams::default()
        };
        let bytes = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
        let request = Request::new(api.resource_url())
            .create(&params, bytes)
            .map_err(kube::Error::BuildRequest)?;
        api.clone().into_client().request(request).await
    }
}

/// Whether the server has marked the object for deletion and keeps it for now.
fn is_marked<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// A verb and an object, for the messages of errors.
/// The server reports a failed `test` step as Invalid without naming a field; what it finds
/// malformed in the outcome comes with the field at fault.
fn is_failed_test(status: &kube::core::Status) -> bool {
    let causes = status.details.as_ref().map(|details| &details.causes);
    status.is_invalid() && causes.is_none_or(Vec::is_empty)
}

fn call<K: Resource<DynamicType = ()>>(verb: &str, name: &str) -> String {
    format!("{verb} {} {name}", K::kind(&()))
}

/// The intent as JSON, without what only the server may state, and its name.
fn body<K, P>(verb: &str, intent: &P) -> Result<(String, Value)>
where
    K: Resource<DynamicType = ()>,
    P: Serialize,
{
    let malformed = |reason: String| Error::Malformed {
        call: call::<K>(verb, "?"),
        reason,
    };
    let mut body = serde_json::to_value(intent).map_err(|error| malformed(error.to_string()))?;
    let name = body
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let Some(name) = name else {
        return Err(malformed("the intent has no metadata.name".to_owned()));
    };
    if let Some(meta) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
    for (field, value) in [("apiVersion", K::api_version(&())), ("kind", K::kind(&()))] {
        if body.get(field).and_then(Value::as_str) != Some(&*value) {
            return Err(malformed(format!("the intent's {field} is not {value}")));
        }
    }
    Ok((name, body))
}

fn controller_uid(meta: &kube::api::ObjectMeta) -> Option<String> {
    let owners = meta.owner_references.iter().flatten();
    owners
        .into_iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.clone())
}

fn intended_controller(body: &Value) -> Option<String> {
    let owners = body
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let controller = |owner: &&Value| owner.get("controller") == Some(&Value::Bool(true));
    let owner = owners.into_iter().flatten().find(controller)?;
    owner.get("uid").and_then(Value::as_str).map(str::to_owned)
}

fn describe_owner<K: Resource>(object: &K) -> String {
    let owners = object.owner_references();
    owners
        .iter()
        .find(|owner| owner.controller == Some(true))
        .map_or_else(
            || "nobody".to_owned(),
            |owner| format!("{} {}", owner.kind, owner.name),
        )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::error::{Class, Classify};

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends_in_time() {
        let writer = Writer::new("test", Duration::from_secs(10));
        let began = tokio::time::Instant::now();
        let silence = std::future::pending::<kube::Result<()>>();
        let error = writer
            .within("get something".to_owned(), silence)
            .await
            .unwrap_err();
        assert_eq!(began.elapsed(), Duration::from_secs(10));
        assert_eq!(error.class(), Class::Transient);
        assert_eq!(
            error.to_string(),
            "cannot get something: no answer within 10s"
        );
    }

    #[test]
    fn an_intent_has_a_name_and_the_kind_that_it_is_sent_to() {
        let sent = |intent| body::<ConfigMap, _>("apply", &intent).map(|(name, _)| name);
        let meta = json!({"name": "a", "managedFields": []});
        let named = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta});
        assert_eq!(sent(named).unwrap(), "a");
        for wrong in [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta}),
            json!({"metadata": meta}),
        ] {
            assert_eq!(sent(wrong).unwrap_err().class(), Class::Bug);
        }
    }
}
