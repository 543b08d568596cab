//! First boots: what kubeadm does on a machine, step by step, and what goes on without it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::document::{FirstBoot, Verb};
use crate::etcd::{Etcd, Member, Scene};
use crate::guest::Guest;
use crate::objects::Objects;
use crate::world::{Disk, Key, Run, Stage, World};

/// How long kubeadm looks for the guest's API.
const DISCOVERY: Duration = Duration::from_secs(600);
/// How long it waits for etcd.
const ETCD: Duration = Duration::from_secs(300);

/// What a step of a boot came to.
#[derive(Clone, Copy)]
enum Outcome {
    /// The boot is at this stage now.
    Reached(Stage),
    /// It waits, for so long at most.
    Waits(Duration),
    /// kubeadm gives up.
    Failed,
}

impl World {
    /// One step of a machine that runs.
    pub(crate) fn boot(&mut self, key: &Key, now: Instant) {
        let on = self.runs.get(key).filter(|run| !run.dark && run.up <= now);
        let disk = on.and_then(|run| self.disks.get(&run.disk));
        let (Some(run), Some(disk)) = (on, disk.filter(|disk| disk.stage != Stage::Done)) else {
            return;
        };
        let (run, disk) = (run.clone(), disk.clone());
        if let Some(id) = disk.guest.filter(|_| disk.stage >= Stage::Learner) {
            self.start_member((id, &key.1), now);
        }
        let Some(boot) = &disk.boot else { return };
        let waited = now.duration_since(run.reached);
        let due = match disk.stage {
            Stage::Started => waited >= self.pace.boot,
            _ => waited >= self.pace.step,
        };
        if !due {
            return;
        }
        let machine = Machine {
            key,
            run: &run,
            disk: &disk,
            boot,
        };
        let outcome = match (run.kubeadm, disk.stage, &boot.verb) {
            (true, Stage::Started, Verb::Init { cluster }) => self.init(machine, cluster, now),
            (true, Stage::Started, Verb::Join { .. }) => self.join(machine, now),
            (true, Stage::Learner, _) => self.promote(machine, now),
            // A kubelet that has its token enters by itself, whatever became of kubeadm.
            (_, Stage::Voter, _) => self.register(machine),
            (true, Stage::Node, _) => self.finish(machine),
            _ => return,
        };
        self.conclude(machine, outcome, now);
    }

    fn conclude(&mut self, machine: Machine<'_>, outcome: Outcome, now: Instant) {
        let waited = now.duration_since(machine.run.reached);
        let (key, disk) = (machine.key, &machine.run.disk);
        let Some(run) = self.runs.get_mut(key) else {
            return;
        };
        match outcome {
            Outcome::Reached(stage) => {
                run.reached = now;
                if stage == Stage::Done {
                    run.say("bootstrap succeeded");
                    run.kubeadm = false;
                }
                if let Some(disk) = self.disks.get_mut(disk) {
                    disk.stage = stage;
                }
            }
            Outcome::Waits(limit) if waited < limit => {}
            Outcome::Waits(_) | Outcome::Failed => {
                run.kubeadm = false;
                run.say("| error execution phase");
                run.say("bootstrap failed: kubeadm join");
            }
        }
    }

    fn init(&mut self, machine: Machine<'_>, cluster: &Value, now: Instant) -> Outcome {
        let (namespace, name) = machine.key;
        let authority = machine.boot.authority.clone();
        let twin = self
            .guests
            .values()
            .any(|guest| guest.authority == authority);
        if twin {
            self.violations.push(format!(
                "kubeadm init for {namespace}/{name}: the guest exists"
            ));
        }
        let id = rand::random();
        let member = Member {
            id: rand::random(),
            machine: name.clone(),
            peer_url: machine.peer_url(),
            learner: false,
            started: Some(now),
        };
        let mut guest = Guest {
            authority,
            etcd: Etcd::begin(id, member),
            objects: Objects::default(),
            heard: BTreeMap::new(),
            settled: now,
        };
        guest.begin(cluster, machine.boot);
        self.guests.insert(id, guest);
        self.belong(machine.key, id);
        Outcome::Reached(Stage::Voter)
    }

    fn join(&mut self, machine: Machine<'_>, now: Instant) -> Outcome {
        let own = |guest: &Guest| guest.authority == machine.boot.authority;
        let found = self.guests.iter().rfind(|(_, guest)| own(guest));
        let Some((&id, guest)) = found.filter(|(id, _)| self.answers(**id)) else {
            return Outcome::Waits(DISCOVERY);
        };
        if !guest.admits(&machine.boot.token) {
            return Outcome::Waits(DISCOVERY);
        }
        if machine.boot.is_control_plane() {
            let connected = self.connected(id);
            let tempo = self.pace.etcd;
            let member = Member {
                id: rand::random(),
                machine: machine.key.1.clone(),
                peer_url: machine.peer_url(),
                learner: true,
                started: None,
            };
            let scene = Scene {
                power: &connected,
                tempo,
                now,
            };
            let Some(guest) = self.guests.get_mut(&id) else {
                return Outcome::Failed;
            };
            let via = guest.etcd.leader.unwrap_or_default();
            if guest.etcd.add(member, (via, scene)).is_err() {
                return Outcome::Waits(ETCD);
            }
        }
        self.belong(machine.key, id);
        Outcome::Reached(if machine.boot.is_control_plane() {
            Stage::Learner
        } else {
            Stage::Voter
        })
    }

    /// A member that runs publishes its name once there is a quorum.
    fn start_member(&mut self, (id, machine): (u64, &str), now: Instant) {
        let runs = self.connected(id).contains_key(machine);
        if let Some(guest) = self
            .guests
            .get_mut(&id)
            .filter(|guest| guest.etcd.leader.is_some())
        {
            let mut members = guest.etcd.members.iter_mut();
            let own = members.find(|member| member.machine == machine && member.started.is_none());
            if let Some(own) = own.filter(|_| runs) {
                own.started = Some(now);
            }
        }
    }

    fn promote(&mut self, machine: Machine<'_>, now: Instant) -> Outcome {
        let Some(id) = machine.disk.guest else {
            return Outcome::Failed;
        };
        let connected = self.connected(id);
        let tempo = self.pace.etcd;
        let Some(guest) = self.guests.get_mut(&id) else {
            return Outcome::Failed;
        };
        let Some(own) = guest.etcd.of(&machine.key.1).map(|own| own.id) else {
            return Outcome::Failed;
        };
        let scene = Scene {
            power: &connected,
            tempo,
            now,
        };
        match guest.etcd.promote(own, scene) {
            Ok(()) => Outcome::Reached(Stage::Voter),
            Err(_) => Outcome::Waits(ETCD),
        }
    }

    fn register(&mut self, machine: Machine<'_>) -> Outcome {
        let begins = matches!(machine.boot.verb, Verb::Init { .. });
        let Some(id) = machine.disk.guest.filter(|id| self.answers(*id)) else {
            return Outcome::Waits(DISCOVERY);
        };
        let address = machine.run.address.to_string();
        let Some(guest) = self.guests.get_mut(&id) else {
            return Outcome::Failed;
        };
        if !begins && !guest.admits(&machine.boot.token) {
            return Outcome::Waits(DISCOVERY);
        }
        let version = machine.disk.version.clone();
        let version = version.unwrap_or_else(|| guest.version());
        guest.register(machine.boot, (&address, &version));
        Outcome::Reached(Stage::Node)
    }

    fn finish(&mut self, machine: Machine<'_>) -> Outcome {
        let Some(id) = machine.disk.guest.filter(|id| self.answers(*id)) else {
            return Outcome::Waits(ETCD);
        };
        let Some(guest) = self.guests.get_mut(&id) else {
            return Outcome::Failed;
        };
        if machine.boot.is_control_plane() && machine.boot.marks {
            guest.mark(machine.boot);
        }
        if matches!(machine.boot.verb, Verb::Init { .. }) {
            guest.add_addons(&guest.version());
        }
        Outcome::Reached(Stage::Done)
    }
}

/// A machine in the middle of its boot.
#[derive(Clone, Copy)]
struct Machine<'a> {
    key: &'a Key,
    run: &'a Run,
    disk: &'a Disk,
    boot: &'a FirstBoot,
}

impl Machine<'_> {
    fn peer_url(&self) -> String {
        let address = self.boot.advertise.unwrap_or(self.run.address);
        format!("https://{address}:2380")
    }
}
