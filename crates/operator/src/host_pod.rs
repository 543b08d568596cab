//! Pods as what they hold on hosts: a view for a store that has every running Pod of the
//! infrastructure cluster.

use std::collections::BTreeMap;

use guestcluster_capacity::{InitContainer, NotAQuantity, PodShape, Requests};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;

use crate::stores::slim;

/// Selects the Pods that hold something: on a host, and not over.
pub const HOLDS: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// A Pod: its host, and what the scheduler counts for it there. Its containers are added up as it
/// is read and not kept.
///
/// # Caveats
/// - A Pod that is resized as a whole (`status.resources` of the Pod) counts as it is specified.
/// - Devices that it has by resource claims are not counted.
#[derive(Resource, Deserialize, Clone, Debug, Default, PartialEq)]
#[resource(inherit = Pod)]
#[serde(try_from = "Whole")]
pub struct HostPod {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The host.
    pub host: Box<str>,
    /// What it requests.
    pub requests: Requests,
}

/// Takes from a Pod's metadata all but its name and labels of ours.
pub fn slim_pod(pod: &mut HostPod) {
    slim(pod);
    let meta = &mut pod.metadata;
    meta.uid = None;
    meta.annotations = None;
    meta.creation_timestamp = None;
    meta.labels = meta.labels.take().filter(|labels| !labels.is_empty());
}

type Amounts = BTreeMap<String, Quantity>;

fn read(amounts: &Amounts) -> Result<Requests, NotAQuantity> {
    amounts
        .iter()
        .map(|(name, amount)| Ok((name, amount.0.parse()?)))
        .collect()
}

/// A Pod as the API server shows it, as far as it matters.
#[derive(Deserialize)]
struct Whole {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Box<str>,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    resources: Resources,
    overhead: Amounts,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    restart_policy: Option<String>,
    resources: Resources,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Resources {
    requests: Amounts,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    /// What it runs with.
    resources: Option<Resources>,
    /// What the kubelet has set aside for it.
    allocated_resources: Amounts,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    reason: String,
}

impl TryFrom<Whole> for HostPod {
    type Error = NotAQuantity;

    fn try_from(pod: Whole) -> Result<Self, NotAQuantity> {
        let status = &pod.status;
        let containers = pod.spec.containers.iter();
        let init = pod.spec.init_containers.iter().map(|container| {
            let stays = container.restart_policy.as_deref() == Some("Always");
            let statuses = if stays {
                &*status.init_container_statuses
            } else {
                &[]
            };
            Ok(InitContainer {
                requests: status.effective(container, statuses)?,
                stays,
            })
        });
        let shape = PodShape {
            containers: containers
                .map(|container| status.effective(container, &status.container_statuses))
                .collect::<Result<_, _>>()?,
            init: init.collect::<Result<_, _>>()?,
            whole: read(&pod.spec.resources.requests)?,
            overhead: read(&pod.spec.overhead)?,
        };
        Ok(Self {
            metadata: pod.metadata,
            host: pod.spec.node_name,
            requests: shape.requests(),
        })
    }
}

impl Status {
    /// A container's requests while it may be resized: the largest of what is wanted, set aside
    /// and in use, without what is wanted if its host can never give it
    /// (`determineEffectiveRequests` in `k8s.io/component-helpers/resource`).
    fn effective(
        &self,
        container: &Container,
        statuses: &[ContainerStatus],
    ) -> Result<Requests, NotAQuantity> {
        let wanted = read(&container.resources.requests)?;
        let of_this = |status: &&ContainerStatus| status.name == container.name;
        let status = statuses.iter().find(of_this);
        let Some((status, in_use)) = status.and_then(|s| Some((s, s.resources.as_ref()?))) else {
            return Ok(wanted);
        };
        let mut requests = read(&in_use.requests)?;
        requests.raise(&read(&status.allocated_resources)?);
        if !self.cannot_be_resized() {
            requests.raise(&wanted);
        }
        Ok(requests)
    }

    fn cannot_be_resized(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|c| c.type_ == "PodResizePending" && c.reason == "Infeasible")
    }
}

#[cfg(test)]
mod tests {
    use guestcluster_api::labels;
    use guestcluster_capacity::{Launcher, Quantity};
    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value, status: &Value) -> HostPod {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "virt-launcher-a-cp-1-x7x2p", "namespace": "guests", "uid": "u",
                "labels": { labels::MACHINE: "a-cp-1", "kubevirt.io": "virt-launcher" },
                "annotations": { "kubevirt.io/domain": "a-cp-1" },
            },
            "spec": spec, "status": status,
        });
        let mut pod = serde_json::from_value(object).unwrap();
        slim_pod(&mut pod);
        pod
    }

    fn requests(cpu: &str, memory: &str) -> Value {
        json!({ "requests": { "cpu": cpu, "memory": memory } })
    }

    #[test]
    fn a_launcher_pod_holds_what_the_model_of_it_says() {
        let mut compute = requests("4", "8984199168");
        compute["requests"]["ephemeral-storage"] = json!("50M");
        let log = json!({
            "name": "guest-console-log", "restartPolicy": "Always",
            "resources": requests("15m", "60M"),
        });
        let spec = json!({
            "nodeName": "host-1",
            "containers": [{ "name": "compute", "resources": compute }],
            "initContainers": [log],
        });
        let pod = pod(&spec, &json!({ "phase": "Running" }));
        let model = Launcher::new(4, Quantity::units(8 << 30));
        assert_eq!((&*pod.host, pod.requests), ("host-1", model.requests()));
    }

    #[test]
    fn a_container_that_is_resized_holds_the_larger_amount() {
        let spec = json!({
            "nodeName": "host-1",
            "containers": [{ "name": "c", "resources": requests("1", "1Gi") }],
        });
        let status = |reason: &str| {
            json!({
                "conditions": [{ "type": "PodResizePending", "reason": reason }],
                "containerStatuses": [{
                    "name": "c",
                    "resources": requests("500m", "3Gi"),
                    "allocatedResources": { "cpu": "500m", "memory": "2Gi" },
                }],
            })
        };
        let cpu = |reason| pod(&spec, &status(reason)).requests.of("cpu").milli();
        assert_eq!(cpu("Deferred"), 1000, "what is wanted is kept for it");
        assert_eq!(cpu("Infeasible"), 500, "what it never gets is not");
        let memory = pod(&spec, &status("Deferred")).requests.of("memory");
        assert_eq!(memory, Quantity::units(3 << 30));
    }

    #[test]
    fn only_its_name_and_our_labels_are_kept() {
        let pod = pod(&json!({ "containers": [] }), &json!({}));
        let expected: ObjectMeta = serde_json::from_value(json!({
            "name": "virt-launcher-a-cp-1-x7x2p", "namespace": "guests",
            "labels": { labels::MACHINE: "a-cp-1" },
        }))
        .unwrap();
        assert_eq!(pod.metadata, expected);
        assert_eq!(pod.labels().len(), 1);
    }

    #[test]
    fn an_amount_that_cannot_be_read_is_an_error_and_not_nothing() {
        let spec = json!({ "containers": [{ "name": "c", "resources": requests("much", "1") }] });
        let object = json!({ "metadata": {}, "spec": spec });
        let read = serde_json::from_value::<HostPod>(object);
        assert!(read.unwrap_err().to_string().contains("much"));
    }
}
