//! What the Cluster is made of: only kubeadm's control plane on CAPK's machines, all in one place, can
//! be taken over.

use guestcluster_planner::observed::Probe;
use serde_json::Value;

use super::{Case, Reason, Verdict};
use crate::adopt::seen::{Kind, annotation, name, title};
use crate::capi;
use crate::import::value::text;

/// The way for whoever cannot be adopted and wants this operator all the same.
const SERVE: &str = "leave it with Cluster API, or let the operator provide its machines \
                     (--capk-provider)";

/// Control-plane providers that people know by a shorter name.
const KNOWN: [(&str, &str); 6] = [
    ("TalosControlPlane", "Talos"),
    ("RKE2ControlPlane", "RKE2"),
    ("K0sControlPlane", "k0smotron"),
    ("K0smotronControlPlane", "k0smotron"),
    ("KamajiControlPlane", "Kamaji"),
    ("MicroK8sControlPlane", "MicroK8s"),
];

/// What was not read is not judged, and so stands against it.
pub(super) fn read(case: &Case<'_>, verdict: &mut Verdict) {
    let mut missing = |what: &str, why: &str| {
        verdict.say(
            Reason::NotRead,
            what,
            format!("not checked, since {why}"),
            "ask again with the right to list them in this namespace",
        );
    };
    let none = Probe::NotAsked;
    for kind in Kind::ALL {
        let read = case.seen.objects.get(&kind).unwrap_or(&none);
        if let Some(why) = unknown(read) {
            missing(&format!("{}s", kind.as_str()), why);
        }
    }
    if let Some(why) = unknown(&case.seen.secrets) {
        missing("Secrets", why);
    }
}

/// Why something is not known.
pub(super) fn unknown<T>(probe: &Probe<T>) -> Option<&str> {
    match probe {
        Probe::Known(_) => None,
        Probe::Unreachable(why) => Some(why),
        Probe::NotAsked => Some("nobody asked"),
    }
}

/// Who makes its control plane, its first boots and its machines.
pub(super) fn providers(case: &Case<'_>, verdict: &mut Verdict) {
    let Some(cluster) = case.seen.cluster() else {
        return;
    };
    if !cluster["spec"]["topology"].is_null() {
        verdict.say(
            Reason::ClusterClass,
            title(cluster),
            "it is made from a ClusterClass, whose controller changes back what others change",
            SERVE,
        );
    }
    control_plane(case, cluster, verdict);
    infrastructure(case, cluster, verdict);
    bootstrap(case, verdict);
    namespaces(case, verdict);
    for pool in case.seen.own(Kind::MachinePool) {
        verdict.say(
            Reason::MachinePool,
            title(pool),
            "a GuestCluster counts machines one by one",
            "replace it by a MachineDeployment",
        );
    }
    for member in case.members.iter().filter(|one| one.pool.is_none()) {
        verdict.say(
            Reason::StandsAlone,
            format!("Machine {}", member.machine),
            "it belongs to no KubeadmControlPlane and no MachineDeployment",
            "replace it by a Machine of a MachineDeployment",
        );
    }
}

fn control_plane(case: &Case<'_>, cluster: &Value, verdict: &mut Verdict) {
    let kind = text(cluster, "/spec/controlPlaneRef/kind").unwrap_or_default();
    if kind != Kind::KubeadmControlPlane.as_str() {
        let known = KNOWN.iter().find(|(known, _)| *known == kind);
        let made_by = match known {
            Some((_, name)) => format!("its control plane is made by {name} ({kind})"),
            None if kind.is_empty() => "it names no control plane".to_owned(),
            None => format!("its control plane is a {kind}"),
        };
        let what = format!("{made_by}, and only what kubeadm made can be taken over");
        verdict.say(Reason::ControlPlaneProvider, title(cluster), what, SERVE);
        return;
    }
    let Some(kubeadm) = case.seen.control_plane() else {
        verdict.say(
            Reason::ControlPlaneProvider,
            title(cluster),
            "its KubeadmControlPlane is not there",
            "name one that is in controlPlaneRef",
        );
        return;
    };
    let config = "/spec/kubeadmConfigSpec";
    let external = format!("{config}/clusterConfiguration/etcd/external/endpoints");
    if kubeadm.pointer(&external).is_some() {
        verdict.say(
            Reason::ExternalEtcd,
            title(kubeadm),
            "its etcd is not on its machines",
            SERVE,
        );
    }
    let format = text(kubeadm, &format!("{config}/format")).unwrap_or_default();
    if !["", "cloud-config"].contains(&&*format) {
        verdict.say(
            Reason::BootFormat,
            title(kubeadm),
            format!("its machines boot from {format}, and later ones would boot from cloud-config"),
            SERVE,
        );
    }
}

fn infrastructure(case: &Case<'_>, cluster: &Value, verdict: &mut Verdict) {
    let kind = text(cluster, "/spec/infrastructureRef/kind").unwrap_or_default();
    let Some(object) = case.seen.infrastructure() else {
        let what = if kind == Kind::KubevirtCluster.as_str() {
            "its KubevirtCluster is not there".to_owned()
        } else {
            format!("its infrastructure is {kind:?} and not a KubevirtCluster")
        };
        let cure = "only clusters of CAPK can be adopted";
        verdict.say(Reason::InfrastructureProvider, title(cluster), what, cure);
        return;
    };
    if let Some(manager) = annotation(object, capi::MANAGED_BY) {
        verdict.say(
            Reason::ManagedElsewhere,
            title(object),
            format!("its annotation {} names {manager:?}", capi::MANAGED_BY),
            "take the annotation off, and let CAPK make its Service, or leave it with Cluster API",
        );
    }
    let machines = case.members.iter().filter_map(|member| {
        case.seen
            .named(Kind::KubevirtMachine, &member.infrastructure)
    });
    let elsewhere = std::iter::once(object)
        .chain(machines)
        .find(|one| text(one, "/spec/infraClusterSecretRef/name").is_some());
    if let Some(one) = elsewhere {
        verdict.say(
            Reason::OtherInfrastructure,
            title(one),
            "its VMs run in another cluster (infraClusterSecretRef), and this operator runs \
             machines where it runs itself",
            "leave it with Cluster API",
        );
    }
}

/// Each Machine, and each MachineDeployment, which may have none.
fn bootstrap(case: &Case<'_>, verdict: &mut Verdict) {
    let machines = case.seen.own(Kind::Machine).map(|one| (one, "/spec"));
    let pools = case.seen.own(Kind::MachineDeployment);
    let pools = pools.map(|one| (one, "/spec/template/spec"));
    for (object, spec) in machines.chain(pools) {
        let kind = text(object, &format!("{spec}/bootstrap/configRef/kind")).unwrap_or_default();
        if !["KubeadmConfig", "KubeadmConfigTemplate"].contains(&&*kind) {
            verdict.say(
                Reason::BootstrapProvider,
                title(object),
                format!("its first boot comes from {kind:?} and not from kubeadm's provider"),
                SERVE,
            );
        }
        let kind = text(object, &format!("{spec}/infrastructureRef/kind")).unwrap_or_default();
        if !["KubevirtMachine", "KubevirtMachineTemplate"].contains(&&*kind) {
            verdict.say(
                Reason::InfrastructureProvider,
                title(object),
                format!("its machine is a {kind:?} and not CAPK's"),
                "move its pool to KubevirtMachineTemplates",
            );
        }
    }
}

/// A GuestCluster has all its machines beside itself.
fn namespaces(case: &Case<'_>, verdict: &mut Verdict) {
    let here = &case.seen.namespace;
    let places = [(
        case.seen.infrastructure(),
        "/spec/controlPlaneServiceTemplate/metadata/namespace",
        "its Service is",
    )];
    let machines = case.members.iter().map(|member| {
        let machine = case
            .seen
            .named(Kind::KubevirtMachine, &member.infrastructure);
        (
            machine,
            "/spec/virtualMachineTemplate/metadata/namespace",
            "its VM is",
        )
    });
    for (object, path, what) in places.into_iter().chain(machines) {
        let Some(object) = object else { continue };
        let there = text(object, path).filter(|there| !there.is_empty());
        if let Some(there) = there.filter(|there| there != here) {
            verdict.say(
                Reason::OtherNamespace,
                title(object),
                format!(
                    "{what} in namespace {there}, and a GuestCluster has all of its own beside it"
                ),
                SERVE,
            );
        }
    }
    let others = case.seen.all(Kind::Cluster).iter().map(name);
    let others: Vec<_> = others.filter(|other| *other != case.seen.name).collect();
    if !others.is_empty() {
        verdict.say(
            Reason::SharesNamespace,
            format!("Namespace {here}"),
            format!("it also holds {}", others.join(", ")),
            "adopt them too, or move them: a namespace of guests admits no new machines of others",
        );
    }
}
