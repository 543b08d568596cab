//! The steps, in the only order in which nothing is lost.

use std::collections::BTreeMap;

use guestcluster_api::{labels, names};
use guestcluster_planner::{Wanted, render};
use serde_json::{Value, json};

use super::{Change, Plan, Step};
use crate::adopt::guest;
use crate::adopt::inventory::Member;
use crate::adopt::seen::{Kind, Seen, title};
use crate::capi;

/// Stands for what only the API server knows, once the GuestCluster is there.
const UID: &str = "<uid of the GuestCluster>";

/// The whole plan for a Cluster that nothing stands against.
pub(in crate::adopt) fn plan(seen: &Seen, members: &[Member], wanted: &Wanted) -> Plan {
    let mut wanted = wanted.clone();
    UID.clone_into(&mut wanted.identity.uid);
    Plan {
        steps: vec![
            pause(seen, members),
            shadow(seen),
            keep_secrets(seen, &wanted),
            mark_machines(members, &wanted),
            mark_place(seen, &wanted),
            let_go(seen, members),
            take_over(seen, members),
        ],
        afterwards: afterwards(seen, members),
    }
}

/// Kind and name, of a name.
fn object(kind: Kind, name: &str) -> String {
    format!("{} {name}", kind.as_str())
}

fn pause(seen: &Seen, members: &[Member]) -> Step {
    let mut changes = vec![Change::Set {
        object: object(Kind::Cluster, &seen.name),
        field: "spec.paused".to_owned(),
        value: json!(true),
    }];
    let machines = members
        .iter()
        .map(|one| object(Kind::KubevirtMachine, &one.infrastructure));
    let own = seen.infrastructure().map(title);
    changes.extend(
        own.into_iter()
            .chain(machines)
            .map(|object| Change::Annotate {
                object,
                annotations: [(capi::PAUSED.to_owned(), "true".to_owned())].into(),
            }),
    );
    Step {
        title: "Pause Cluster API and CAPK".to_owned(),
        why: "two must never act on one machine; CAPK heeds no pause of the Cluster, only the \
              annotation on its own objects"
            .to_owned(),
        undo: Some("take the annotations and the pause off".to_owned()),
        changes,
    }
}

fn shadow(seen: &Seen) -> Step {
    Step {
        title: "Keep a copy of every object, and create the GuestCluster, paused".to_owned(),
        why:
            "all is read once more under the pause, etcd's members from etcd itself, and compared \
              with this plan; a paused GuestCluster is not acted on"
                .to_owned(),
        undo: Some("delete the GuestCluster while it is paused".to_owned()),
        changes: vec![Change::Create {
            object: object(Kind::GuestCluster, &seen.name),
        }],
    }
}

/// Secrets keep their names, which are ours as well.
fn keep_secrets(seen: &Seen, wanted: &Wanted) -> Step {
    let mut changes = Vec::new();
    let keys = seen.infrastructure().map(|object| {
        let name = crate::adopt::seen::name(object);
        (format!("{name}-ssh-keys"), None)
    });
    let kept = guest::secrets(&seen.name).into_iter().map(|(name, _)| {
        let purpose = if name == names::secrets::kubeconfig(&seen.name) {
            labels::secret_purpose::KUBECONFIG
        } else {
            labels::secret_purpose::AUTHORITY
        };
        (name, Some(purpose))
    });
    for (name, purpose) in kept.chain(keys) {
        let Some(secret) = seen.secret(&name) else {
            continue;
        };
        let owners = secret.metadata.owner_references.iter().flatten();
        changes.extend(owners.map(|owner| Change::Disown {
            object: format!("Secret {name}"),
            owner: format!("{} {}", owner.kind, owner.name),
        }));
        if let Some(purpose) = purpose {
            let mut labels = render::cluster_labels(wanted);
            labels.insert(labels::SECRET.to_owned(), purpose.to_owned());
            changes.push(Change::Label {
                object: format!("Secret {name}"),
                labels,
            });
        }
    }
    Step {
        title: "Keep the guest's authorities, its kubeconfig and its SSH keys".to_owned(),
        why:
            "they would go with the KubeadmControlPlane and the KubevirtCluster that own them, and \
              the guest with them; they keep their names and what they say"
                .to_owned(),
        undo: Some("put owners back and take the labels off, as the copy has it".to_owned()),
        changes,
    }
}

fn mark_machines(members: &[Member], wanted: &Wanted) -> Step {
    let mut changes = Vec::new();
    for member in members {
        let marks = marks(member, wanted);
        let name = &member.infrastructure;
        let places = [
            object(Kind::VirtualMachine, name),
            object(Kind::VirtualMachineInstance, name),
            format!("launcher Pod of {name}"),
        ];
        changes.extend(places.map(|object| Change::Label {
            object,
            labels: marks.clone(),
        }));
        changes.extend(member.user_data.iter().map(|secret| Change::Label {
            object: format!("Secret {secret}"),
            labels: marks.clone(),
        }));
    }
    Step {
        title: "Mark each machine as one of the GuestCluster".to_owned(),
        why:
            "the operator knows its own by labels; they go on the VM's metadata and on what runs, \
              never into its template, since that would ask for a restart; CAPK's labels stay"
                .to_owned(),
        undo: Some("take the labels off".to_owned()),
        changes,
    }
}

fn marks(member: &Member, wanted: &Wanted) -> BTreeMap<String, String> {
    let own = member.pool.as_deref().unwrap_or_default();
    let of_cluster = format!("{}-", wanted.identity.name);
    let name = if member.is_control_plane() {
        names::CONTROL_PLANE_POOL
    } else {
        own.strip_prefix(&of_cluster).unwrap_or(own)
    };
    wanted.pool(name).map_or_else(BTreeMap::new, |pool| {
        render::machine_labels(wanted, pool, &member.infrastructure)
    })
}

fn mark_place(seen: &Seen, wanted: &Wanted) -> Step {
    let mut changes: Vec<_> = seen
        .endpoint_service()
        .map(|service| Change::Label {
            object: title(service),
            labels: render::cluster_labels(wanted),
        })
        .into_iter()
        .collect();
    let marked = seen.namespace_labels.known();
    if !marked.is_some_and(|all| all.contains_key(labels::GUESTS_NAMESPACE)) {
        changes.push(Change::Label {
            object: format!("Namespace {}", seen.namespace),
            labels: [(labels::GUESTS_NAMESPACE.to_owned(), "true".to_owned())].into(),
        });
    }
    Step {
        title: "Mark the endpoint's Service and the namespace".to_owned(),
        why:
            "the Service and its address stay what they are, since certificates and kubelets name \
              them; the operator acts only in namespaces of guests, and from then on no machine of \
              anybody else is made there"
                .to_owned(),
        undo: Some(
            "take the labels off; then un-pause: Cluster API has everything back".to_owned(),
        ),
        changes,
    }
}

/// Leaves first: nothing is deleted before what it owns, so that nothing of it is collected.
fn let_go(seen: &Seen, members: &[Member]) -> Step {
    let machines = || members.iter();
    let of_members = |kind, name: fn(&Member) -> Option<&str>| {
        machines()
            .filter_map(name)
            .filter_map(move |name| seen.named(kind, name))
    };
    let mut leaving: Vec<&Value> = Vec::new();
    leaving.extend(of_members(Kind::KubevirtMachine, |one| {
        Some(&one.infrastructure)
    }));
    leaving.extend(of_members(Kind::KubeadmConfig, |one| {
        one.bootstrap.as_deref()
    }));
    leaving.extend(of_members(Kind::Machine, |one| Some(&one.machine)));
    leaving.extend(seen.own(Kind::MachineSet));
    leaving.extend(seen.own(Kind::MachineDeployment));
    leaving.extend(seen.own(Kind::MachineHealthCheck));
    leaving.extend(seen.control_plane());
    leaving.extend(guest::templates(seen));
    leaving.extend(seen.infrastructure());
    leaving.extend(seen.cluster());
    let changes = leaving.into_iter().map(|object| {
        let finalizers = object["metadata"]["finalizers"].as_array();
        let finalizers = finalizers.into_iter().flatten().filter_map(Value::as_str);
        Change::Remove {
            object: title(object),
            finalizers: finalizers.map(str::to_owned).collect(),
        }
    });
    Step {
        title: "Let Cluster API's objects go, from leaf to root".to_owned(),
        why:
            "they are deleted with propagation policy Orphan, and only then lose their finalizers, \
              which Cluster API would put back on what is not being deleted; none of their \
              finalizers may run, since CAPK's deletes VM and first-boot document"
                .to_owned(),
        undo: None,
        changes: changes.collect(),
    }
}

fn take_over(seen: &Seen, members: &[Member]) -> Step {
    let instances = members.iter().filter_map(|one| {
        let uid = one.instance_uid.as_ref()?;
        Some(format!("{} {uid}", one.infrastructure))
    });
    let instances: Vec<_> = instances.collect();
    Step {
        title: "Check that nothing restarted, and un-pause the GuestCluster".to_owned(),
        why: format!(
            "instances must have the UIDs that they have now: {}",
            instances.join(", ")
        ),
        undo: Some("pause the GuestCluster; it goes on without anybody's care".to_owned()),
        changes: vec![Change::Set {
            object: object(Kind::GuestCluster, &seen.name),
            field: "spec.paused".to_owned(),
            value: json!(false),
        }],
    }
}

/// What the next steps in the guest's life meet.
fn afterwards(seen: &Seen, members: &[Member]) -> Vec<String> {
    let name = &seen.name;
    let left: Vec<_> = members
        .iter()
        .filter_map(|one| one.user_data.as_deref()?.strip_suffix("-userdata"))
        .collect();
    vec![
        format!(
            "Machines are replaced one by one, when their specification changes or they fail: a new \
             one is called {name}-{}-1 and so on, has disks of the operator's making and, in the \
             control plane, a Service address for life; the last one of Cluster API's making has \
             gone when no machine has another name.",
            names::CONTROL_PLANE_POOL
        ),
        "Until the last control-plane machine of Cluster API's making is gone, members of etcd check \
         the address from which another one calls against its certificate: each new member needs a \
         peer certificate that holds the address of its Pod beside that of its Service, and must not \
         restart under another before that."
            .to_owned(),
        format!(
            "The endpoint stays behind Service {}, which also selects new machines by their labels \
             {} and {}; a machine that leaves is not taken out of it first, as it is out of a \
             Service of the operator's making.",
            capi::endpoint_service(name),
            capi::CLUSTER_NAME,
            capi::ROLE
        ),
        "KubeVirt's cloud provider and CSI driver go on: labels of machines and annotations of Nodes \
         that they look for stay. What ClusterResourceSets brought into the guest stays, and nobody \
         brings it again."
            .to_owned(),
        format!(
            "Nobody needs these Secrets any more, and they hold keys: {}.",
            left.join(", ")
        ),
    ]
}
