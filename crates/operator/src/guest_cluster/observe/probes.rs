//! Asking a guest: when it can matter, and no more often than it does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use guestcluster_api::names;
use guestcluster_bootstrap::API_SERVER_PORT;
use guestcluster_planner::action::Authority;
use guestcluster_planner::decide::endpoint;
use guestcluster_planner::observed::{Meta, Observed, Probe};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::clock::{Instant, monotonic};

use super::Subject;
use crate::doors::Door;
use crate::etcd::{CLIENT_PORT, EtcdClient, MemberDoor};
use crate::guest_api::EVICTION_RETRY;
use crate::guest_cluster::Context;
use crate::memory::{Memory, Probes, TOLERATED};

/// How old an answer may be while something is on its way.
const FRESH: Duration = Duration::from_millis(400);
/// How old it may be while nothing is.
const SETTLED: Duration = Duration::from_secs(45);
/// How soon a guest is asked again that has failed to answer.
const WAVERING: Duration = Duration::from_secs(1);
/// The longest that a guest which does not answer is left alone while something is on its way.
const SILENT: Duration = Duration::from_secs(15);

/// A name that kubeadm puts into the certificate of every API server, whatever its endpoint is called.
const KUBERNETES: &str = "kubernetes";

/// How long all answers together may take of a guest that has never answered.
const UNBORN: Duration = Duration::from_secs(1);
/// After so many vain attempts each the pause before a guest's first answer doubles.
const HOPE: u32 = 40;
/// How long a member of etcd may take to say how it is.
const PATIENT: Duration = Duration::from_millis(2500);
/// The same where the machine's API server, which needs it, does not answer either. While a member
/// joins, it serves nobody for seconds, and the plan would wait for it.
const DOUBTFUL: Duration = Duration::from_millis(500);

impl Context {
    /// Asks the guest, or answers from memory.
    pub(super) async fn probe(
        &self,
        subject: &Subject<'_>,
        seen: &mut Observed,
        memory: &mut Memory,
    ) {
        if !matters(subject, seen) {
            memory.probes = Probes::default();
            return;
        }
        let time = monotonic();
        let initialised = is_initialised(subject);
        // A first machine that still boots owes no answer.
        let owed = initialised || serves(seen);
        let stale = self.memories.take_stale(subject.key);
        let settled = self.memories.is_settled(subject.key);
        let probes = &mut memory.probes;
        if stale || is_due(probes, (initialised, settled), time) {
            let known = initialised || probes.init_finished;
            let asked = futures::future::join4(
                self.ask_guest(subject, seen),
                self.ask_etcd(subject, seen),
                self.ask_init(subject, seen, known),
                self.ask_endpoint(subject, seen, initialised),
            );
            // While it boots, questions vanish; other clusters must not wait for that.
            let limit = if owed { Duration::MAX } else { UNBORN };
            let asked = tokio::time::timeout(limit, Box::pin(asked)).await;
            let (guest, (etcd, quorum_lost), finished, endpoint) =
                asked.unwrap_or_else(|_elapsed| {
                    let silent = Probe::Unreachable("nothing answers yet".to_owned());
                    (silent, (Probe::NotAsked, false), known, Probe::NotAsked)
                });
            probes.asked = Some(time);
            probes.init_finished = finished;
            // Where the guest itself is silent, a silent endpoint is no news.
            let endpoint = guest.known().map_or(Probe::NotAsked, |_| endpoint);
            probes.endpoint.take_in(endpoint);
            probes.guest.take_in(guest);
            probes.etcd.take_in(etcd);
            probes.quorum_lost = quorum_lost;
        }
        seen.init_unfinished = !initialised && !probes.init_finished;
        let answer = probes.guest.answer.clone();
        seen.guest = match answer {
            Probe::Unreachable(_) if !owed => Probe::NotAsked,
            answer => answer,
        };
        seen.etcd = probes.etcd.answer.clone();
        seen.endpoint = probes.endpoint.answer.clone();
        seen.quorum_lost = probes.quorum_lost && matches!(seen.etcd, Probe::Unreachable(_));
        for pod in seen.guest_pods_mut() {
            let refusal = memory.refusals.get(&pod.uid);
            pod.refused = refusal.map(|refusal| refusal.why.clone());
            pod.due =
                refusal.is_none_or(|r| time.saturating_duration_since(r.at) >= EVICTION_RETRY);
        }
        seen.certificates = self.certificates(subject, seen, memory).await;
    }

    async fn ask_guest(
        &self,
        subject: &Subject<'_>,
        seen: &Observed,
    ) -> Probe<guestcluster_planner::observed::Guest> {
        let Some(door) = endpoint_door(subject, seen) else {
            return Probe::NotAsked;
        };
        let guest = self.guest_api(&door);
        let tokens: BTreeSet<String> = seen
            .secrets
            .values()
            .filter_map(|secret| secret.token_id.clone())
            .collect();
        guest.observe(&tokens).await
    }

    /// Whether a connection comes about at the address that users and workers dial. All other questions
    /// go to the endpoint Service itself, past whatever stands before it.
    async fn ask_endpoint(
        &self,
        subject: &Subject<'_>,
        seen: &Observed,
        initialised: bool,
    ) -> Probe<()> {
        let Some(door) = front_door(subject, seen).filter(|_| initialised) else {
            return Probe::NotAsked;
        };
        match self.doors.certificate(&door).await {
            Ok(_) => Probe::Known(()),
            Err(error) => Probe::Unreachable(error.explain()),
        }
    }

    /// Whether `kubeadm init` has come to its end, which is asked until it is `known`.
    async fn ask_init(&self, subject: &Subject<'_>, seen: &Observed, known: bool) -> bool {
        match endpoint_door(subject, seen).filter(|_| !known) {
            Some(door) => self.guest_api(&door).has_finished_init().await,
            None => known,
        }
    }

    async fn ask_etcd(
        &self,
        subject: &Subject<'_>,
        seen: &Observed,
    ) -> (Probe<guestcluster_planner::observed::Etcd>, bool) {
        let members = member_doors(subject.key, seen);
        let etcd = EtcdClient {
            doors: &self.doors,
            calls: &self.guest_calls,
            members: &members,
        };
        etcd.observe().await
    }
}

/// A guest is asked from the moment that a control-plane machine of it runs, and no more once it is
/// to go: a deletion does not depend on it.
fn matters(subject: &Subject<'_>, seen: &Observed) -> bool {
    let runs = || runs(seen).next().is_some();
    !subject.wanted.identity.deleting && (is_initialised(subject) || serves(seen) || runs())
}

/// A control-plane machine answers KubeVirt's probe, and so is behind the endpoint.
fn serves(seen: &Observed) -> bool {
    let mut vms = seen.vms.values();
    vms.any(|vm| vm.ready && is_control_plane(&vm.meta))
}

fn is_control_plane(meta: &Meta) -> bool {
    meta.pool.as_deref() == Some(names::CONTROL_PLANE_POOL)
}

/// Addresses of the Services of control-plane machines that run, by machine. One whose Service does
/// not lead to it yet is left out: the question would be lost, and the plan that is to lead the
/// Service there would wait for it.
fn runs(seen: &Observed) -> impl Iterator<Item = (&String, &String)> {
    let services = seen.services.iter();
    services.filter_map(move |(name, service)| {
        let instance = seen.instances.get(name)?;
        let leads_there = seen
            .slices
            .get(name)?
            .addresses
            .contains(instance.address.as_ref()?);
        let is_on = instance.phase == "Running" && leads_there;
        let address = service.cluster_ip.as_ref()?;
        (is_on && is_control_plane(&service.meta)).then_some((name, address))
    })
}

fn is_initialised(subject: &Subject<'_>) -> bool {
    let status = subject.cluster.status.as_ref();
    status.is_some_and(|status| status.initialised)
}

/// Whether it is time to ask again. A guest that falls silent is asked less and less often: each
/// attempt costs a reconcile the wait for its timeout. One that is being born is awaited, with less
/// and less hope.
fn is_due(probes: &Probes, (initialised, settled): (bool, bool), time: Instant) -> bool {
    let Some(asked) = probes.asked else {
        return true;
    };
    let failures = probes.guest.failures;
    let doublings = failures.saturating_sub(TOLERATED).min(6);
    let pause = match (settled, failures) {
        _ if !initialised => FRESH
            .saturating_mul(1 << (failures / HOPE).min(6))
            .min(SILENT),
        (true, 0) if !probes.wavers() => SETTLED,
        (_, 0) => FRESH,
        _ => WAVERING.saturating_mul(1 << doublings).min(SILENT),
    };
    time.saturating_duration_since(asked) >= pause
}

/// The way to the guest's API server: through its endpoint Service, whatever clients use; while
/// no machine is behind that, straight to one that runs.
pub(in crate::guest_cluster) fn endpoint_door(
    subject: &Subject<'_>,
    seen: &Observed,
) -> Option<Door> {
    let cluster = &*subject.key.name;
    let service = seen.services.get(&names::endpoint_service(cluster))?;
    let port = subject.wanted.endpoint().port;
    let direct = runs(seen).next().filter(|_| seen.serving.is_empty());
    let (address, port) = match direct {
        Some((_, address)) => (address, i32::from(API_SERVER_PORT)),
        None => (service.cluster_ip.as_ref()?, port),
    };
    door(subject.key, seen, Authority::Kubernetes).map(|door| Door {
        url: format!("https://{address}:{port}"),
        server_name: Some(KUBERNETES.to_owned()),
        ..door
    })
}

/// The way that users and workers take, while somebody is behind it; none if that is the endpoint
/// Service's own address.
fn front_door(subject: &Subject<'_>, seen: &Observed) -> Option<Door> {
    let service = names::endpoint_service(&subject.key.name);
    let own = seen.services.get(&service)?.cluster_ip.as_ref()?;
    let (host, port) = endpoint::told_to_users(subject.wanted, seen)?;
    let differs = host != *own && !seen.serving.is_empty();
    let door = door(subject.key, seen, Authority::Kubernetes).filter(|_| differs)?;
    Some(Door {
        url: format!("https://{host}:{port}"),
        ..door
    })
}

/// The ways to the API servers of control-plane machines, by machine.
pub(super) fn api_doors(key: &NamespacedName, seen: &Observed) -> BTreeMap<String, Door> {
    let Some(door) = door(key, seen, Authority::Kubernetes) else {
        return BTreeMap::new();
    };
    let doors = runs(seen).map(|(name, address)| {
        let url = format!("https://{address}:{API_SERVER_PORT}");
        let door = Door {
            url,
            ..door.clone()
        };
        (name.clone(), door)
    });
    doors.collect()
}

/// The ways to the members of the guest's etcd, by machine: to each at its own Service address.
pub(in crate::guest_cluster) fn member_doors(
    key: &NamespacedName,
    seen: &Observed,
) -> BTreeMap<String, MemberDoor> {
    let Some(door) = door(key, seen, Authority::Etcd) else {
        return BTreeMap::new();
    };
    let members = runs(seen).map(|(name, address)| {
        let is_ready = seen.vms.get(name).is_some_and(|vm| vm.ready);
        let url = format!("https://{address}:{CLIENT_PORT}");
        let member = MemberDoor {
            door: Door {
                url,
                ..door.clone()
            },
            patience: if is_ready { PATIENT } else { DOUBTFUL },
        };
        (name.clone(), member)
    });
    members.collect()
}

/// A door of this authority, without its place.
fn door(key: &NamespacedName, seen: &Observed, authority: Authority) -> Option<Door> {
    let secret = seen.secrets.get(&authority.secret(&key.name))?;
    Some(Door {
        cluster: key.clone(),
        authority,
        secret_version: secret.meta.resource_version.clone(),
        url: String::new(),
        server_name: None,
    })
}

#[cfg(test)]
mod tests {
    use guestcluster_planner::observed::{Instance, Meta, Secret, Service, Slice};

    use super::*;

    fn probes(asked: Instant, failures: u32) -> Probes {
        let mut probes = Probes {
            asked: Some(asked),
            ..Probes::default()
        };
        probes.guest.failures = failures;
        probes
    }

    #[test]
    fn a_settled_guest_is_asked_seldom_and_a_growing_one_often() {
        let start = monotonic();
        let after = |seconds| start + Duration::from_secs(seconds);
        let (settled, growing) = ((true, true), (true, false));
        assert!(is_due(&Probes::default(), settled, start));
        assert!(!is_due(&probes(start, 0), settled, after(40)));
        assert!(is_due(&probes(start, 0), settled, after(45)));
        assert!(is_due(&probes(start, 0), growing, after(1)));
    }

    #[test]
    fn a_silent_guest_is_asked_less_and_less_often_and_an_unborn_one_for_longer() {
        let start = monotonic();
        let after = |seconds| start + Duration::from_secs(seconds);
        let (settled, growing, unborn) = ((true, true), (true, false), (false, false));
        assert!(
            is_due(&probes(start, 1), settled, after(1)),
            "it may be nothing"
        );
        assert!(!is_due(&probes(start, 4), growing, after(3)));
        assert!(is_due(&probes(start, 4), growing, after(4)));
        assert!(is_due(&probes(start, 30), growing, after(15)));
        assert!(is_due(&probes(start, 30), unborn, after(1)));
        assert!(!is_due(&probes(start, 300), unborn, after(14)));
        assert!(is_due(&probes(start, 300), unborn, after(15)));
    }

    #[test]
    fn a_member_is_reached_at_its_service_while_that_leads_to_its_machine() {
        let control_plane = || Meta {
            pool: Some("cp".to_owned()),
            ..Meta::default()
        };
        let service = |meta, ip: &str| Service {
            meta,
            cluster_ip: Some(ip.to_owned()),
            ..Service::default()
        };
        let running = || Instance {
            phase: "Running".to_owned(),
            address: Some("10.0.0.1".to_owned()),
            ..Instance::default()
        };
        let slice = |address: &str| Slice {
            addresses: vec![address.to_owned()],
            ..Slice::default()
        };
        let mut seen = Observed::default();
        seen.secrets.insert("a-etcd".to_owned(), Secret::default());
        seen.services = [
            ("a-cp-1".to_owned(), service(control_plane(), "10.98.0.1")),
            ("a-cp-2".to_owned(), service(control_plane(), "10.98.0.2")),
            ("a-cp-3".to_owned(), service(control_plane(), "10.98.0.4")),
            ("a-api".to_owned(), service(Meta::default(), "10.98.0.3")),
        ]
        .into();
        seen.instances = [
            ("a-cp-1".to_owned(), running()),
            ("a-cp-3".to_owned(), running()),
            ("a-api".to_owned(), running()),
        ]
        .into();
        seen.slices = [
            ("a-cp-1".to_owned(), slice("10.0.0.1")),
            ("a-cp-3".to_owned(), slice("10.0.0.7")),
        ]
        .into();
        let doors = member_doors(&NamespacedName::new("n", "a"), &seen);
        assert_eq!(doors.keys().collect::<Vec<_>>(), ["a-cp-1"]);
        assert_eq!(doors["a-cp-1"].door.url, "https://10.98.0.1:2379");
    }
}
