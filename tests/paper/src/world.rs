//! All paper machines and the guests that they form. Nothing here talks to anybody: who runs is told
//! from outside, and time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::document::{Document, FirstBoot};
use crate::gateway;
use crate::guest::{Connected, Guest};
use crate::pace::Pace;
use crate::reply::Reply;
use crate::request::Request;

/// Port of API servers.
pub const API: u16 = 6443;
/// Port of etcd's clients.
pub const ETCD: u16 = 2379;

/// How long an API server tries when its etcd has no leader.
const STALL: Duration = Duration::from_secs(7);
/// How often a guest's controllers look at it.
const SETTLE: Duration = Duration::from_millis(100);
/// How long a machine lets one wait that it will never answer.
const SILENCE: Duration = Duration::from_secs(3600);

/// Namespace and name of a machine.
pub type Key = (String, String);

/// How far a first boot came; the disk remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing was begun.
    #[default]
    Fresh,
    /// kubeadm was begun.
    Started,
    /// etcd knows the machine as a learner.
    Learner,
    /// Its etcd votes and its API server answers; a worker's kubelet knows whom to ask.
    Voter,
    /// Its Node exists.
    Node,
    /// kubeadm came to its end.
    Done,
}

/// What a disk holds.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// How far its first boot came.
    pub stage: Stage,
    /// The guest that it belongs to.
    pub guest: Option<u64>,
    /// What kubeadm was told.
    pub boot: Option<FirstBoot>,
    /// Version of the programs on it.
    pub version: Option<String>,
}

/// A machine that is powered on.
#[derive(Clone, Debug)]
pub struct Run {
    /// UID of the instance.
    pub instance: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Which disk it runs from.
    pub disk: String,
    /// From when on its programs run.
    pub up: Instant,
    /// Since when its first boot is at its stage.
    pub reached: Instant,
    /// Its first boot goes on.
    pub kubeadm: bool,
    /// It hears and says nothing.
    pub dark: bool,
    /// What it has said.
    pub console: Vec<String>,
}

/// A machine to be powered on.
#[derive(Clone, Debug)]
pub struct PowerOn {
    /// UID of the instance.
    pub instance: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Which disk it runs from.
    pub disk: String,
    /// Version of the programs on its image, if that tells.
    pub version: Option<String>,
    /// The document that it boots with.
    pub document: Document,
}

/// Everything.
#[derive(Debug)]
pub struct World {
    /// How long things take.
    pub pace: Pace,
    now: Instant,
    /// Guests by their clusters' IDs.
    pub guests: BTreeMap<u64, Guest>,
    /// Disks by the UIDs of their claims.
    pub disks: BTreeMap<String, Disk>,
    /// Machines that run.
    pub runs: BTreeMap<Key, Run>,
    /// Where Services of machines lead, and since when.
    pub services: BTreeMap<Key, (Ipv4Addr, Instant)>,
    /// Machines that run, by the guest that they belong to.
    machines: BTreeMap<u64, BTreeSet<Key>>,
    /// What must never happen, and did.
    pub violations: Vec<String>,
    /// Requests that no guest knows.
    pub unknown: Vec<String>,
    /// Why machines did not boot.
    pub troubles: Vec<String>,
}

impl World {
    /// No machine yet.
    pub fn new(pace: Pace, now: Instant) -> Self {
        Self {
            pace,
            now,
            guests: BTreeMap::new(),
            disks: BTreeMap::new(),
            runs: BTreeMap::new(),
            services: BTreeMap::new(),
            machines: BTreeMap::new(),
            violations: Vec::new(),
            unknown: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// A machine is powered on; one that runs already goes on.
    pub fn power_on(&mut self, key: &Key, on: PowerOn, now: Instant) {
        self.now = now;
        if self
            .runs
            .get(key)
            .is_some_and(|run| run.instance == on.instance)
        {
            return;
        }
        let disk = self.disks.entry(on.disk.clone()).or_default();
        let mut run = Run {
            instance: on.instance,
            address: on.address,
            disk: on.disk,
            up: now + self.pace.restart,
            reached: now,
            kubeadm: false,
            dark: false,
            console: Vec::new(),
        };
        disk.version = disk.version.take().or(on.version);
        match (disk.stage, on.document) {
            (Stage::Fresh, Document::FirstBoot(boot)) => {
                let verb = if matches!(boot.verb, crate::document::Verb::Init { .. }) {
                    "init"
                } else {
                    "join"
                };
                run.say(&format!("kubeadm {verb} started"));
                disk.boot = Some(*boot);
                disk.stage = Stage::Started;
                (run.kubeadm, run.up) = (true, now);
            }
            (Stage::Fresh, Document::Restart) => {
                run.say("bootstrap failed: this machine has joined before, but its disk is new");
            }
            (Stage::Done, _) => run.say("machine restarted"),
            _ => run.say("bootstrap failed: the first boot was interrupted"),
        }
        let guest = disk.guest;
        self.runs.insert(key.clone(), run);
        if let Some(id) = guest {
            self.belong(key, id);
        }
    }

    /// A machine has no power any more.
    pub fn power_off(&mut self, key: &Key) {
        self.runs.remove(key);
        for machines in self.machines.values_mut() {
            machines.remove(key);
        }
    }

    /// A machine belongs to a guest from now on, and its disk with it.
    pub(crate) fn belong(&mut self, key: &Key, id: u64) {
        let disk = self
            .runs
            .get(key)
            .and_then(|run| self.disks.get_mut(&run.disk));
        if let Some(disk) = disk {
            disk.guest = Some(id);
            self.machines.entry(id).or_default().insert(key.clone());
        }
    }

    /// A machine's Service leads there, or nowhere.
    pub fn lead(&mut self, key: &Key, address: Option<Ipv4Addr>, now: Instant) {
        match address {
            None => drop(self.services.remove(key)),
            Some(address)
                if self
                    .services
                    .get(key)
                    .is_some_and(|(known, _)| *known == address) => {}
            Some(address) => drop(self.services.insert(key.clone(), (address, now))),
        }
    }

    /// Cuts a machine off, or connects it again; `false` if it does not run.
    pub fn set_dark(&mut self, key: &Key, dark: bool) -> bool {
        let run = self.runs.get_mut(key);
        run.map(|run| run.dark = dark).is_some()
    }

    /// Lets time pass.
    pub fn step(&mut self, now: Instant) {
        self.now = now;
        let keys: Vec<Key> = self.runs.keys().cloned().collect();
        for key in &keys {
            self.boot(key, now);
        }
        let ids: Vec<u64> = self.guests.keys().copied().collect();
        for id in ids {
            let connected = self.connected(id);
            let tempo = self.pace.etcd;
            if let Some(guest) = self.guests.get_mut(&id) {
                guest.etcd.elect(&connected, (tempo, now));
            }
            self.settle(id, now);
        }
    }

    /// Where the machine with this address is asked on this port; `known` if who asks has a
    /// certificate of the authority of that port.
    pub fn answer(
        &mut self,
        (address, port): (Ipv4Addr, u16),
        (request, known): (&Request, bool),
        now: Instant,
    ) -> Reply {
        self.now = now;
        let found = self.runs.iter().find(|(_, run)| run.address == address);
        let Some((key, run)) = found.map(|(key, run)| (key.clone(), run.clone())) else {
            return Reply::Closed;
        };
        if run.dark {
            return Reply::Late(SILENCE, Box::new(Reply::Closed));
        }
        let disk = self.disks.get(&run.disk).cloned().unwrap_or_default();
        let Some(id) = disk.guest.filter(|_| run.up <= now) else {
            return Reply::Closed;
        };
        match port {
            ETCD => self.ask_etcd((id, &key.1), request, now),
            _ => self.ask_api((id, &key.1), (request, known)),
        }
    }

    fn ask_etcd(&mut self, (id, machine): (u64, &str), request: &Request, now: Instant) -> Reply {
        let connected = self.connected(id);
        let tempo = self.pace.etcd;
        let Some(guest) = self.guests.get_mut(&id) else {
            return Reply::Closed;
        };
        let own = guest.etcd.of(machine).filter(|m| m.started.is_some());
        // A member that was removed has ended, and one that never started is not there.
        let Some(own) = own.cloned() else {
            return Reply::Closed;
        };
        let scene = crate::etcd::Scene {
            power: &connected,
            tempo,
            now,
        };
        let fresh = rand::random();
        let asked = (&*request.path, &request.body);
        let reply = gateway::answer(&mut guest.etcd, (&own, scene), asked, fresh);
        if reply.status() == Some(404) && reply.body().is_none() {
            self.unknown.push(format!("etcd: {}", request.path));
        }
        reply
    }

    fn ask_api(&mut self, (id, machine): (u64, &str), (request, known): (&Request, bool)) -> Reply {
        let serves = self.serves(id, machine);
        let Some(guest) = self.guests.get_mut(&id) else {
            return Reply::Closed;
        };
        if guest.etcd.of(machine).is_none_or(|own| own.learner) {
            // It waits for its etcd before it listens.
            return Reply::Closed;
        }
        match &*request.path {
            "/readyz" | "/livez" | "/healthz" if serves => Reply::Text(200, "ok".to_owned()),
            "/readyz" | "/livez" | "/healthz" => {
                Reply::Text(500, "[-]etcd failed: reason withheld\n".to_owned())
            }
            path if !known => {
                let message = format!("User \"system:anonymous\" cannot use path {path}");
                Reply::refusal(403, "Forbidden", message)
            }
            _ if !serves => {
                let reply = Reply::refusal(500, "", "etcdserver: request timed out");
                Reply::Late(STALL, Box::new(reply))
            }
            _ => {
                let reply = guest.objects.answer(request);
                if reply.status() == Some(405) {
                    self.unknown
                        .push(format!("{} {}", request.method, request.path));
                }
                reply
            }
        }
    }

    /// The machine's API server answers.
    pub fn serves(&self, id: u64, machine: &str) -> bool {
        let Some(guest) = self.guests.get(&id) else {
            return false;
        };
        let votes = guest.etcd.of(machine).is_some_and(|own| !own.learner);
        votes && guest.etcd.leader.is_some() && self.connected(id).contains_key(machine)
    }

    /// Some machine's API server answers.
    pub fn answers(&self, id: u64) -> bool {
        let connected = self.connected(id);
        connected.keys().any(|machine| self.serves(id, machine))
    }

    /// Machines whose member of etcd runs and is reached by the others at its Service, with the
    /// time since when.
    pub(crate) fn connected(&self, id: u64) -> Connected {
        let guest = self.guests.get(&id);
        let sole = guest.and_then(|guest| guest.etcd.sole_voter());
        let connected = |key: &Key| {
            let run = self.runs.get(key)?;
            let has_etcd = self.disks.get(&run.disk)?.stage >= Stage::Learner;
            let on = has_etcd && !run.dark && run.up <= self.now;
            let (address, led) = self.services.get(key).copied().unzip();
            let reached = sole == Some(&*key.1) || address == Some(run.address);
            let since = led.map_or(run.up, |led| led.max(run.up));
            (on && reached).then(|| (key.1.clone(), since))
        };
        let machines = self.machines.get(&id).into_iter().flatten();
        machines.filter_map(connected).collect()
    }

    fn settle(&mut self, id: u64, now: Instant) {
        let due = |guest: &Guest| now.duration_since(guest.settled) >= SETTLE;
        if !self.guests.get(&id).is_some_and(due) || !self.answers(id) {
            return;
        }
        let machines = self.machines.get(&id).into_iter().flatten();
        let heard = machines.filter(|key| {
            let run = self.runs.get(*key);
            run.is_some_and(|run| !run.dark && run.up <= now)
        });
        let heard: Vec<String> = heard.map(|key| key.1.clone()).collect();
        if let Some(guest) = self.guests.get_mut(&id) {
            guest.settled = now;
            guest
                .heard
                .extend(heard.into_iter().map(|name| (name, now)));
            guest.settle(self.pace.grace);
        }
    }
}

impl Run {
    pub(crate) fn say(&mut self, words: &str) {
        self.console.push(format!("guestcluster: {words}"));
    }
}
