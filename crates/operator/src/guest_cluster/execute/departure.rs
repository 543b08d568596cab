//! What a machine's departure takes in the infrastructure cluster and in etcd.

use std::collections::BTreeMap;

use guestcluster_api::labels;
use guestcluster_foreign::core::LauncherPod;
use guestcluster_planner::observed::Launcher;
use guestcluster_shell::clock::monotonic;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::super::observe::member_doors;
use super::super::{Context, Round};
use crate::error::Error;
use crate::etcd::{EtcdClient, MemberDoor};
use crate::pointer;

impl Context {
    /// Takes a machine out of the endpoint, or puts it back, by the label that the endpoint Service
    /// selects launcher Pods by. KubeVirt copies labels to a Pod when it makes it, never later.
    pub(super) async fn set_serving(
        &self,
        round: &Round<'_>,
        pod: &Launcher,
        out_since: Option<Timestamp>,
    ) -> Result<(), Error> {
        self.patch_launcher(round, pod, serving_patch(pod, out_since))
            .await
    }

    /// Notes on a launcher Pod that its machine is not moved out of it alive.
    pub(super) async fn rule_out_migration(
        &self,
        round: &Round<'_>,
        pod: &Launcher,
    ) -> Result<(), Error> {
        let note = pointer::annotation(labels::MIGRATION_RULED_OUT);
        let patch = json!([
            { "op": "test", "path": "/metadata/uid", "value": pod.meta.uid },
            { "op": "add", "path": note, "value": "true" },
        ]);
        self.patch_launcher(round, pod, patch).await
    }

    async fn patch_launcher(
        &self,
        round: &Round<'_>,
        pod: &Launcher,
        patch: Value,
    ) -> Result<(), Error> {
        let api = self.api::<LauncherPod>(round);
        let written = self.writer.patch(&api, &pod.name, patch).await?;
        self.ledger.wrote(round.subject.key, &written, monotonic());
        Ok(())
    }

    pub(super) async fn remove_etcd_member(
        &self,
        round: &Round<'_>,
        id: u64,
        machine: &str,
    ) -> Result<(), Error> {
        let members = self.members(round);
        self.etcd(&members).remove(id, machine).await
    }

    pub(super) async fn move_leader(
        &self,
        round: &Round<'_>,
        from: &str,
        to: u64,
    ) -> Result<(), Error> {
        let members = self.members(round);
        self.etcd(&members).move_leader(from, to).await
    }

    /// The ways to etcd's members, of which something changes now: what they said is out of date.
    fn members(&self, round: &Round<'_>) -> BTreeMap<String, MemberDoor> {
        self.memories.invalidate(round.subject.key);
        member_doors(round.subject.key, round.seen)
    }

    const fn etcd<'a>(&'a self, members: &'a BTreeMap<String, MemberDoor>) -> EtcdClient<'a> {
        EtcdClient {
            doors: &self.doors,
            calls: &self.guest_calls,
            members,
        }
    }
}

/// Launcher Pods always have labels and annotations: KubeVirt's own.
fn serving_patch(pod: &Launcher, out_since: Option<Timestamp>) -> Value {
    let label = pointer::label(labels::ENDPOINT);
    let note = pointer::annotation(labels::LEFT_ENDPOINT);
    let meta = &pod.meta;
    // A Pod's status changes all the time, so its version is no guard; its label is.
    let mut steps = vec![json!({ "op": "test", "path": "/metadata/uid", "value": meta.uid })];
    let serving = labels::ENDPOINT_SERVING;
    if let Some(time) = out_since {
        steps.push(json!({ "op": "test", "path": label, "value": serving }));
        steps.push(json!({ "op": "remove", "path": label }));
        steps.push(json!({ "op": "add", "path": note, "value": time.to_string() }));
    } else {
        if pod.out_since.is_some() {
            steps.push(json!({ "op": "remove", "path": note }));
        }
        steps.push(json!({ "op": "add", "path": label, "value": serving }));
    }
    Value::Array(steps)
}

#[cfg(test)]
mod tests {
    use guestcluster_planner::observed::Meta;

    use super::*;

    #[test]
    fn a_pod_that_leaves_the_endpoint_notes_when() {
        let pod = Launcher {
            name: "virt-launcher-a-cp-1-x".to_owned(),
            meta: Meta {
                uid: "u".to_owned(),
                ..Meta::default()
            },
            serving: true,
            ..Launcher::default()
        };
        let time: Option<Timestamp> = "2026-12-01T00:00:00Z".parse().ok();
        let patch = serving_patch(&pod, time);
        assert_eq!(
            patch[2]["path"],
            "/metadata/labels/guestcluster.dev~1endpoint"
        );
        assert_eq!(patch[3]["value"], "2026-12-01T00:00:00Z");
        let out = Launcher {
            serving: false,
            out_since: time,
            ..pod
        };
        let back = serving_patch(&out, None);
        assert_eq!(back[1]["op"], "remove");
        assert_eq!(back[2]["value"], "serving");
    }
}
