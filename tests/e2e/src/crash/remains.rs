//! What there is of a cluster, in the infrastructure and in its guest, in words that depend neither
//! on the cluster's name nor on the ordinals that its machines happen to have.

use std::collections::{BTreeMap, BTreeSet};

use guestcluster_api::{labels, names};
use guestcluster_foreign::kubevirt::MigrationPolicy;
use guestcluster_paper::world::World;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::Value;

use crate::cluster::Cluster;

/// Kinds that a cluster has objects of, and what is told of each besides its name.
const KINDS: [(&str, &str, &str, &[&str]); 9] = [
    ("kubevirt.io", "v1", "VirtualMachine", &["/status/ready"]),
    (
        "kubevirt.io",
        "v1",
        "VirtualMachineInstance",
        &["/status/phase"],
    ),
    (
        "cdi.kubevirt.io",
        "v1beta1",
        "DataVolume",
        &["/status/phase"],
    ),
    ("", "v1", "PersistentVolumeClaim", &["/status/phase"]),
    ("", "v1", "Secret", &[]),
    ("", "v1", "Service", &[]),
    ("", "v1", "Pod", &["/status/phase"]),
    ("discovery.k8s.io", "v1", "EndpointSlice", &[]),
    ("rbac.authorization.k8s.io", "v1", "Role", &[]),
];

/// What golden images are called.
const GOLDEN: &str = "guest-image-";

/// One line for each thing. Two of the same are two lines.
pub type Remains = BTreeSet<String>;

/// What there is now.
pub async fn remains(cluster: &Cluster<'_>, world: &Told) -> anyhow::Result<Remains> {
    let ranks = ranks(cluster).await?;
    let mut told: Vec<String> = world.0.clone();
    for (group, version, kind, fields) in KINDS {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api = Api::<DynamicObject>::namespaced_with(
            cluster.stage.client(),
            cluster.namespace,
            &resource,
        );
        let objects = api.list(&ListParams::default()).await?.items;
        let lines = objects
            .iter()
            .filter_map(|object| line(cluster.name, kind, (object, fields)));
        told.extend(lines);
    }
    told.extend(policy(cluster).await?);
    told.extend(conditions(cluster).await?);
    let mut lines = Remains::new();
    for line in told {
        let line = plain(&line, cluster.name, &ranks);
        let copies = (1..).map(|n| {
            if n == 1 {
                line.clone()
            } else {
                format!("{line} (no. {n})")
            }
        });
        for copy in copies {
            if lines.insert(copy) {
                break;
            }
        }
    }
    Ok(lines)
}

/// An object of the cluster. By its name and not by its label: an orphan may have lost that.
fn line(cluster: &str, kind: &str, (object, fields): (&DynamicObject, &[&str])) -> Option<String> {
    let name = object.name_any();
    let is_slice_of_controller =
        kind == "EndpointSlice" && !object.labels().contains_key(labels::MACHINE);
    let name = match name.strip_prefix("virt-launcher-") {
        // Without the letters that were drawn for it.
        Some(launcher) => launcher.rsplit_once('-')?.0.to_owned(),
        None => name,
    };
    let is_ours = name.starts_with(&format!("{cluster}-")) || name.starts_with(GOLDEN);
    if !is_ours || is_slice_of_controller {
        return None;
    }
    let values = fields.iter().map(|field| {
        let value = object.data.pointer(field).unwrap_or(&Value::Null);
        format!(" {value}")
    });
    let scrubbed = object.annotations().get(labels::SCRUBBED);
    let notes = [
        scrubbed.map(|value| format!(" scrubbed={value}")),
        object
            .labels()
            .get(labels::ENDPOINT)
            .map(|value| format!(" endpoint={value}")),
        object
            .labels()
            .get(labels::TEMPLATE_HASH)
            .map(|hash| format!(" template={hash}")),
        object
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|_| " going".to_owned()),
    ];
    let words = values.chain(notes.into_iter().flatten());
    Some(
        [format!("{kind} {name}")]
            .into_iter()
            .chain(words)
            .collect(),
    )
}

/// Limits of migrations, which are in no namespace.
async fn policy(cluster: &Cluster<'_>) -> anyhow::Result<Option<String>> {
    let api = Api::<MigrationPolicy>::all(cluster.stage.client());
    let name = names::migration_policy(cluster.namespace, cluster.name);
    let policy = api.get_opt(&name).await?;
    Ok(policy.map(|_| "MigrationPolicy of the cluster".to_owned()))
}

async fn conditions(cluster: &Cluster<'_>) -> anyhow::Result<Vec<String>> {
    let api = Api::<guestcluster_api::GuestCluster>::namespaced(
        cluster.stage.client(),
        cluster.namespace,
    );
    let status = api
        .get_opt(cluster.name)
        .await?
        .and_then(|found| found.status);
    let conditions = status.unwrap_or_default().conditions;
    Ok(conditions
        .iter()
        .map(|c| format!("condition {}={}", c.type_, c.status))
        .collect())
}

/// Machines in the order of their ordinals, which are counted anew within each pool.
async fn ranks(cluster: &Cluster<'_>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut pools: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
    for (name, vm) in cluster.vms().await? {
        let pool = vm.labels().get(labels::POOL).cloned().unwrap_or_default();
        if let Some(ordinal) = names::ordinal(cluster.name, &pool, &name) {
            pools.entry(pool).or_default().push((ordinal, name));
        }
    }
    let mut ranks = BTreeMap::new();
    for (pool, mut machines) in pools {
        machines.sort();
        for (rank, (_, name)) in machines.into_iter().enumerate() {
            ranks.insert(name, format!("<{pool} {}>", rank + 1));
        }
    }
    Ok(ranks)
}

/// The line with the names of machines replaced by their ranks, word by word.
fn plain(line: &str, cluster: &str, ranks: &BTreeMap<String, String>) -> String {
    let words = line.split(' ').map(|word| {
        for (name, rank) in ranks {
            let rest = word.strip_prefix(name.as_str());
            if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('-')) {
                return format!("{rank}{rest}");
            }
        }
        match word.strip_prefix(cluster) {
            Some(rest) if rest.starts_with('-') => format!("<cluster>{rest}"),
            _ => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// What a paper guest tells of itself.
#[derive(Clone, Debug, Default)]
pub struct Told(Vec<String>);

impl Told {
    /// The guest of the machines of a cluster.
    pub fn of(world: &World, namespace: &str, cluster: &str) -> Self {
        let prefix = format!("{cluster}-");
        let own = |key: &&(String, String)| key.0 == namespace && key.1.starts_with(&prefix);
        let runs = world.runs.iter().filter(|(key, _)| own(key));
        let guests: BTreeSet<u64> = runs
            .filter_map(|(_, run)| world.disks.get(&run.disk)?.guest)
            .collect();
        let mut lines = Vec::new();
        for guest in guests.iter().filter_map(|id| world.guests.get(id)) {
            lines.push(format!(
                "guest with a leader: {}",
                guest.etcd.leader.is_some()
            ));
            for member in &guest.etcd.members {
                lines.push(format!(
                    "member {} learner={}",
                    member.machine, member.learner
                ));
            }
            for name in guest.nodes() {
                let node = guest.objects.get(&format!("/api/v1/nodes/{name}"));
                let node = node.cloned().unwrap_or_default();
                let drained = &node["spec"]["unschedulable"] == true;
                let ready = &node["status"]["conditions"][0]["status"];
                lines.push(format!("Node {name} ready={ready} cordoned={drained}"));
            }
        }
        Self(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_named_by_rank_and_an_orphan_keeps_its_ordinal() {
        let ranks = BTreeMap::from([("c1-cp-4".to_owned(), "<cp 1>".to_owned())]);
        assert_eq!(
            plain("Secret c1-cp-4-user-data", "c1", &ranks),
            "Secret <cp 1>-user-data"
        );
        assert_eq!(
            plain("Secret c1-cp-40-user-data", "c1", &ranks),
            "Secret <cluster>-cp-40-user-data"
        );
        assert_eq!(plain("Secret c1-ca", "c1", &ranks), "Secret <cluster>-ca");
    }
}
