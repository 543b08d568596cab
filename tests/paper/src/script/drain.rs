//! Questions of a drain, and of what follows a machine's end.

use serde_json::{Value, json};

use super::{Asker, PATCH, REFUSED, SYSTEM, Tape, get, send};

const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const WORKER: &str = "/api/v1/nodes/truth-general-1";

impl<A: Asker + Send> Tape<'_, A> {
    pub(super) async fn drain(&mut self) -> anyhow::Result<()> {
        let node = self
            .api("the worker", get(WORKER), &["=/metadata/name"])
            .await?;
        let uid = &node["metadata"]["uid"];
        let path = "/metadata/annotations/example.com~1drain";
        let begin = json!([
            { "op": "test", "path": "/metadata/uid", "value": uid },
            { "op": "add", "path": path, "value": "now" },
            { "op": "add", "path": "/spec/unschedulable", "value": true },
        ]);
        let fields = [
            "=/metadata/annotations/example.com~1drain",
            "=/spec/unschedulable",
        ];
        self.api("cordon", send("PATCH", WORKER, PATCH, begin), &fields)
            .await?;
        let selector = "spec.nodeName%3Dtruth-general-1%2Cstatus.phase%21%3DSucceeded\
                        %2Cstatus.phase%21%3DFailed";
        let mut request = get(&format!("/api/v1/pods?&fieldSelector={selector}"));
        METADATA_LIST.clone_into(&mut request.accept);
        let fields = [
            "=/kind",
            "=/apiVersion",
            "~/items/0/metadata/uid",
            "~/items/0/metadata/namespace",
            "=/items/[metadata.namespace=kube-system]/metadata/ownerReferences/0/controller",
        ];
        self.api("its Pods", request, &fields).await?;
        let end = json!([
            { "op": "test", "path": "/metadata/uid", "value": uid },
            { "op": "remove", "path": path },
            { "op": "add", "path": "/spec/unschedulable", "value": false },
        ]);
        let fields = [
            "~/metadata/annotations/example.com~1drain",
            "~/spec/unschedulable",
        ];
        self.api("uncordon", send("PATCH", WORKER, PATCH, end), &fields)
            .await?;
        Ok(())
    }

    pub(super) async fn evictions(&mut self) -> anyhow::Result<()> {
        let pods = get(&format!("{SYSTEM}/pods?"));
        let pods = self.api("Pods", pods, &["=/kind"]).await?;
        let all = pods["items"].as_array().cloned().unwrap_or_default();
        let name = |pod: &&Value| {
            let name = pod["metadata"]["name"].as_str();
            name.is_some_and(|name| name.starts_with("coredns-"))
        };
        let pod = all.iter().find(name).cloned().unwrap_or_default();
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let evict = |name: &str, uid: &Value| {
            let body = json!({
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": { "name": name, "namespace": "kube-system" },
                "deleteOptions": { "preconditions": { "uid": uid } },
            });
            let path = format!("{SYSTEM}/pods/{name}/eviction?");
            send("POST", &path, "application/json", body)
        };
        self.api("evict another", evict(name, &json!("other")), REFUSED)
            .await?;
        let uid = &pod["metadata"]["uid"];
        self.api("evict", evict(name, uid), &["=/kind", "=/status", "=/code"])
            .await?;
        self.api("evict what is gone", evict("absent", uid), REFUSED)
            .await?;
        let delete = |uid: &Value| {
            let options = json!({ "preconditions": { "uid": uid } });
            send("DELETE", &format!("{WORKER}?"), "application/json", options)
        };
        self.api("delete another Node", delete(&json!("other")), REFUSED)
            .await?;
        let node = self
            .api("the worker", get(WORKER), &["=/metadata/name"])
            .await?;
        let uid = &node["metadata"]["uid"];
        self.api("delete a Node", delete(uid), &["=/kind", "=/status"])
            .await?;
        self.api("delete it again", delete(uid), REFUSED).await?;
        Ok(())
    }
}
