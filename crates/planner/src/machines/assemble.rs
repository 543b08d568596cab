//! Views of machines, from the objects that carry their names.

use std::collections::BTreeMap;

use guestcluster_api::labels::Role;
use guestcluster_api::names;
use guestcluster_api::status::GuestClusterStatus;
use guestcluster_placement::Rollout;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{MachineView, is_member_of, recorded};
use crate::home;
use crate::observed::{Meta, Observed, Secret};
use crate::wanted::Wanted;

/// All machines of the cluster, by name. An object tells its machine by label, never by name.
pub fn machines<'a>(
    wanted: &Wanted,
    seen: &'a Observed,
    previous: &'a GuestClusterStatus,
    now: Timestamp,
) -> BTreeMap<String, MachineView<'a>> {
    let metas = seen
        .vms
        .values()
        .map(|vm| &vm.meta)
        .chain(seen.services.values().map(|service| &service.meta))
        .chain(seen.secrets.values().map(|secret| &secret.meta))
        .chain(seen.disks.values().map(|disk| &disk.meta));
    let facts = Facts {
        wanted,
        seen,
        previous,
        now,
        begun: has_begun(seen, previous),
    };
    let mut found: BTreeMap<String, MachineView<'a>> = BTreeMap::new();
    for meta in metas {
        if let Some(name) = meta.machine.as_ref().filter(|n| !found.contains_key(*n)) {
            found.extend(facts.view(name, meta).map(|view| (name.clone(), view)));
        }
    }
    found
}

/// A guest exists that must not be initialised again: status says so, or a control-plane machine
/// was seen to have joined.
fn has_begun(seen: &Observed, previous: &GuestClusterStatus) -> bool {
    let joined = |secret: &Secret| {
        secret.scrubbed && secret.meta.pool.as_deref() == Some(names::CONTROL_PLANE_POOL)
    };
    previous.initialised || seen.secrets.values().any(joined)
}

/// What a view is put together from.
struct Facts<'w, 'a> {
    wanted: &'w Wanted,
    seen: &'a Observed,
    previous: &'a GuestClusterStatus,
    now: Timestamp,
    begun: bool,
}

impl<'a> Facts<'_, 'a> {
    fn view(&self, name: &str, meta: &Meta) -> Option<MachineView<'a>> {
        let seen = self.seen;
        let pool = meta.pool.as_ref()?;
        let control_plane = pool == names::CONTROL_PLANE_POOL;
        let service = seen.services.get(name);
        // A guest whose init was not finished is none: nothing could join it, and its first machine
        // must be given up if that boot is cut short.
        let exists = self.begun || !seen.init_unfinished;
        let guest = seen.guest.known().filter(|_| exists);
        let etcd = seen.etcd.known().filter(|_| exists);
        let instance = seen.instances.get(name);
        let made = instance.and_then(|instance| instance.meta.created);
        let host = instance.and_then(|instance| instance.host.as_ref());
        let is_alive = |host: &String| seen.infra.hosts.iter().any(|h| h.name == *host && h.ready);
        Some(MachineView {
            ordinal: names::ordinal(&self.wanted.identity.name, pool, name)?,
            name: name.to_owned(),
            pool: pool.clone(),
            role: if control_plane {
                Role::ControlPlane
            } else {
                Role::Worker
            },
            user_data: seen.secrets.get(&names::user_data_secret(name)),
            service,
            root_disk: seen.disks.get(&names::root_disk(name)),
            vm: seen.vms.get(name),
            instance,
            node: guest.and_then(|guest| guest.nodes.get(name)),
            member: etcd
                .and_then(|etcd| etcd.members.iter().find(|m| is_member_of(m, name, service))),
            previous: recorded(self.previous).find(|machine| machine.name == name),
            console: seen.consoles.get(name).map_or(&[], Vec::as_slice),
            asked: !self.begun || (guest.is_some() && (etcd.is_some() || !control_plane)),
            instance_age: made.map_or(SignedDuration::ZERO, |made| self.now.duration_since(made)),
            host_is_dead: host.is_some_and(|host| !is_alive(host)),
            waits_for_host: instance.is_some() && host.is_none() && !self.has_home(name, pool),
            is_cut_off: !control_plane && seen.is_endpoint_dark(),
        })
    }
    /// Whether some host takes a machine of the pool in the place of this one.
    fn has_home(&self, name: &str, pool: &str) -> bool {
        let Some(wanted) = self.wanted.pool(pool) else {
            return true;
        };
        let of_pool = |meta: &&Meta| meta.pool.as_deref() == Some(pool) && !meta.deleting;
        let metas = self.seen.vms.values().map(|vm| &vm.meta).filter(of_pool);
        let machines: Vec<&str> = metas.filter_map(|meta| meta.machine.as_deref()).collect();
        let hosts = &self.seen.infra.hosts;
        let room = home::room(self.wanted, self.seen, (wanted, &machines), (hosts, name));
        !matches!(room, Rollout::Neither { .. })
    }
}
