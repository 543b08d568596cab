//! Gauges, read from the stores when somebody scrapes.

use std::collections::BTreeMap;

use guestcluster_api::spec::Profile;
use guestcluster_api::{ConditionType, GuestCluster, labels};
use guestcluster_planner::chain::{self, Objects};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::metrics::{Metrics, Sink};
use guestcluster_shell::queue::Queue;
use kube::ResourceExt;

use crate::forecast::Forecast;
use crate::stores::Stores;

/// Registers the gauges.
pub fn register(
    metrics: &Metrics,
    stores: &Stores,
    (queue, forecast): (&Queue<NamespacedName>, &Forecast),
) {
    let maintenances = stores.maintenances.clone();
    metrics.collect(move |sink| {
        maintenances.fold((), |(), one| {
            let machines = one.status.iter().flat_map(|status| &status.machines);
            let left = machines
                .filter(|machine| machine.state.is_on_host())
                .count();
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            sink.gauge(
                "maintenance_machines_left",
                "Machines of guests on a host that is to be emptied",
                &[("host", &one.spec.node_name), ("name", &one.name_any())],
                f64::from(left),
            );
        });
    });
    let (clusters, queue) = (stores.clusters.clone(), queue.clone());
    let forecast = forecast.clone();
    let shown = stores.clone();
    metrics.collect(move |sink| {
        let tally = clusters.fold(Tally::default(), |tally, cluster| tally.with(cluster));
        for verdict in ["True", "False", "Unknown"] {
            let count = tally.clusters.get(verdict).copied().unwrap_or_default();
            let help = "Guest clusters by the status of their condition Ready";
            sink.gauge("clusters", help, &[("ready", verdict)], f64::from(count));
        }
        for (cluster, end) in &tally.certificates {
            sink.gauge(
                "certificates_expire_seconds",
                "When the first certificate of a guest's control-plane machines ends, in Unix seconds",
                &[("namespace", &cluster.namespace), ("name", &cluster.name)],
                *end,
            );
        }
        for (phase, count) in &tally.machines {
            sink.gauge(
                "machines",
                "Machines by phase",
                &[("phase", phase)],
                f64::from(*count),
            );
        }
        placement(sink, &tally, &forecast);
        machines(sink, &shown);
        let waiting = u32::try_from(queue.len()).unwrap_or(u32::MAX);
        sink.gauge(
            "queue_length",
            "Clusters that wait for a visit",
            &[],
            f64::from(waiting),
        );
    });
}

/// Says which machine is which VM and Pod, and where it runs, for joins with metrics of Pods and
/// hosts: one series for each machine that has a VM, as kube-state-metrics does for Pods.
fn machines(sink: &mut Sink<'_>, stores: &Stores) {
    let (vms, instances) = (stores.vms.all(), stores.instances.all());
    let launchers = stores.launchers.all();
    let zones = stores.hosts.fold(BTreeMap::new(), |mut zones, host| {
        let zone = host.labels().get(labels::ZONE);
        zones.extend(zone.map(|zone| (host.name_any(), zone.clone())));
        zones
    });
    let links = chain::links(&Objects {
        vms: vms.iter().map(AsRef::as_ref).collect(),
        instances: instances.iter().map(AsRef::as_ref).collect(),
        launchers: launchers.iter().map(AsRef::as_ref).collect(),
    });
    for link in links {
        let host = link.host.as_deref().unwrap_or_default();
        let labels = [
            ("tenant", link.tenant.as_str()),
            ("namespace", &link.namespace),
            ("cluster", &link.cluster),
            ("machine", &link.machine),
            ("role", &link.role),
            ("pool", &link.pool),
            ("vm", link.vm.as_deref().unwrap_or_default()),
            ("pod", link.pod.as_deref().unwrap_or_default()),
            ("host", host),
            ("zone", zones.get(host).map_or("", String::as_str)),
        ];
        let help = "A machine's VM and launcher Pod, and the host and zone in which it runs";
        sink.gauge("machine_info", help, &labels, 1.0);
    }
}

/// What foresight and the detector of shared hosts say.
fn placement(sink: &mut Sink<'_>, tally: &Tally, forecast: &Forecast) {
    for (cluster, survives) in &tally.survives {
        sink.gauge(
            "survives_host_loss",
            "Whether all machines of a guest would find another host whichever host died (1 or 0); \
             absent if not known",
            &[("namespace", &cluster.namespace), ("name", &cluster.name)],
            f64::from(u8::from(*survives)),
        );
    }
    for (cluster, survives) in &tally.survives_zone {
        sink.gauge(
            "survives_zone_loss",
            "Whether all machines of a guest would find a host in another zone whichever zone was lost \
             (1 or 0); absent if not known, or not asked",
            &[("namespace", &cluster.namespace), ("name", &cluster.name)],
            f64::from(u8::from(*survives)),
        );
    }
    for (cluster, count) in &tally.colocated {
        sink.gauge(
            "colocated_control_planes",
            "Control-plane machines of a guest that share their host with another of it, where none may",
            &[("namespace", &cluster.namespace), ("name", &cluster.name)],
            f64::from(*count),
        );
    }
    for (cluster, count) in &tally.sharing_storage {
        sink.gauge(
            "etcd_disks_sharing_storage",
            "Disks of a guest's etcd that are lost together with one storage host, or with a zone that \
             takes the quorum; absent if not known",
            &[("namespace", &cluster.namespace), ("name", &cluster.name)],
            f64::from(*count),
        );
    }
    if let Some(short) = forecast.short() {
        sink.gauge(
            "hosts_not_survived",
            "Hosts whose loss would leave machines of guests without a host",
            &[],
            f64::from(u32::try_from(short).unwrap_or(u32::MAX)),
        );
    }
}

/// How many control-plane machines share their host with another one.
fn colocated(cluster: &GuestCluster) -> u32 {
    let status = cluster.status.iter();
    let machines = status.flat_map(|status| &status.control_plane.machines);
    let mut hosts = BTreeMap::<&String, u32>::new();
    for host in machines.filter_map(|machine| machine.host.as_ref()) {
        *hosts.entry(host).or_default() += 1;
    }
    let is_lab = cluster.spec.profile == Profile::Lab;
    let shared = hosts.values().filter(|count| **count > 1 && !is_lab);
    shared.sum()
}

#[derive(Default)]
struct Tally {
    clusters: BTreeMap<String, u32>,
    machines: BTreeMap<String, u32>,
    certificates: BTreeMap<NamespacedName, f64>,
    survives: BTreeMap<NamespacedName, bool>,
    survives_zone: BTreeMap<NamespacedName, bool>,
    colocated: BTreeMap<NamespacedName, u32>,
    sharing_storage: BTreeMap<NamespacedName, i32>,
}

impl Tally {
    fn with(mut self, cluster: &GuestCluster) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        let ready = ConditionType::Ready.as_str();
        let verdict = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == ready);
        let verdict = verdict.map_or("Unknown", |condition| &condition.status);
        *self.clusters.entry(verdict.to_owned()).or_default() += 1;
        if let Some(end) = &status.control_plane.certificates_expire {
            let end = end.0.as_duration().as_secs_f64();
            self.certificates.insert(NamespacedName::of(cluster), end);
        }
        let name = NamespacedName::of(cluster);
        self.colocated.insert(name.clone(), colocated(cluster));
        if let Some(count) = status.control_plane.disks_sharing_storage {
            self.sharing_storage.insert(name.clone(), count);
        }
        if let Some(survives) = status.capacity.survives_host_loss {
            self.survives.insert(name.clone(), survives);
        }
        if let Some(survives) = status.capacity.survives_zone_loss {
            self.survives_zone.insert(name, survives);
        }
        let workers = status.workers.iter().flat_map(|pool| &pool.machines);
        for machine in status.control_plane.machines.iter().chain(workers) {
            *self.machines.entry(machine.phase.clone()).or_default() += 1;
        }
        self
    }
}
