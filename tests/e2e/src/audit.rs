//! The infrastructure API server's audit log: who wrote what.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Seek, SeekFrom};

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use crate::stage::{RELEASE, SYSTEM, Stage};

/// A request that changes objects.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Write {
    /// Verb.
    pub verb: String,
    user: User,
    request_received_timestamp: Timestamp,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Clone, Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct ResponseStatus {
    code: Option<u16>,
}

const WRITING: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

impl Write {
    /// `verb resource[/subresource] namespace/name`.
    pub fn line(&self) -> String {
        let object = self.object_ref.clone().unwrap_or_default();
        let sub = if object.subresource.is_empty() {
            ""
        } else {
            "/"
        };
        format!(
            "{} {}{sub}{} {}/{}",
            self.verb, object.resource, object.subresource, object.namespace, object.name
        )
    }

    /// The resource, without subresource.
    pub fn resource(&self) -> &str {
        self.object_ref
            .as_ref()
            .map_or("", |object| &object.resource)
    }

    /// The namespace of the object.
    pub fn namespace(&self) -> &str {
        self.object_ref
            .as_ref()
            .map_or("", |object| &object.namespace)
    }

    /// Whose it is.
    pub fn user(&self) -> &str {
        &self.user.username
    }

    /// When it was asked for.
    pub const fn at(&self) -> Timestamp {
        self.request_received_timestamp
    }

    fn code(&self) -> u16 {
        self.response_status
            .as_ref()
            .and_then(|status| status.code)
            .unwrap_or_default()
    }

    /// The operator's own.
    fn is_operators(&self) -> bool {
        self.user.username == format!("system:serviceaccount:{SYSTEM}:{RELEASE}")
    }

    /// Leases and Events are not counted.
    fn counts(&self) -> bool {
        WRITING.contains(&self.verb.as_str()) && !["leases", "events"].contains(&self.resource())
    }
}

/// A place in the audit log.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl Mark {
    /// The beginning of the log.
    pub const START: Self = Self(0);

    /// The end of the log, now.
    pub fn now(stage: &Stage) -> anyhow::Result<Self> {
        let file = stage.infra()?.run_dir().audit_log();
        let length = std::fs::metadata(&file)
            .with_context(|| format!("{}", file.display()))?
            .len();
        Ok(Self(length))
    }

    /// What the operator wrote since: requests that changed an object.
    pub fn writes(self, stage: &Stage) -> anyhow::Result<Vec<Write>> {
        Ok(self
            .requests(stage)?
            .into_iter()
            .filter(|write| write.code() < 300)
            .collect())
    }

    /// What everyone wrote since: requests that changed an object.
    pub fn everyones_writes(self, stage: &Stage) -> anyhow::Result<Vec<Write>> {
        let mut writes = self.everyones_requests(stage)?;
        writes.retain(|write| write.code() < 300);
        Ok(writes)
    }

    /// How many times each user changed an object since.
    pub fn writes_by_user(self, stage: &Stage) -> anyhow::Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for write in self.everyones_writes(stage)? {
            *counts.entry(write.user.username).or_default() += 1;
        }
        Ok(counts)
    }

    /// What the operator was refused since.
    pub fn refused(self, stage: &Stage) -> anyhow::Result<Vec<Write>> {
        Ok(self
            .requests(stage)?
            .into_iter()
            .filter(|write| write.code() == 403)
            .collect())
    }

    fn requests(self, stage: &Stage) -> anyhow::Result<Vec<Write>> {
        let mut requests = self.everyones_requests(stage)?;
        requests.retain(Write::is_operators);
        Ok(requests)
    }

    fn everyones_requests(self, stage: &Stage) -> anyhow::Result<Vec<Write>> {
        let mut file = std::fs::File::open(stage.infra()?.run_dir().audit_log())?;
        file.seek(SeekFrom::Start(self.0))?;
        let mut writes = Vec::new();
        for line in BufReader::new(file).lines() {
            // The last line may be half written.
            if let Ok(write) = serde_json::from_str::<Write>(&line?)
                && write.counts()
            {
                writes.push(write);
            }
        }
        Ok(writes)
    }
}
