//! A world in single moves: nothing comes by itself but what follows at once, and whoever walks the
//! world chooses what comes next. Nothing is left to chance.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use guestcluster_api::Reason;
use guestcluster_planner::Hold;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::guest::{Machine, Stage};
use super::{Mishap, Step, TICK, World};
use crate::chance::Chance;

/// How long after leaving the endpoint a machine still serves; a moment is as long.
pub(super) const AFTERGLOW: SignedDuration = TICK;
/// As long as a machine may be unhealthy, and longer than the pauses between the first repairs.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// Longer than any first boot may take.
const BOOT: SignedDuration = SignedDuration::from_mins(31);

/// One thing that happens at once and as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// The operator visits the cluster.
    Reconcile(Mishap),
    /// The operator looks, to act on it later.
    Look,
    /// KubeVirt stops the instance of this machine, which is to go.
    Off(String),
    /// KubeVirt starts an instance for this machine.
    On(String),
    /// This machine's boot comes one stage further.
    Boot(String),
    /// As long as load balancers need to hear of a change.
    Moment,
    /// As long as a machine may be unhealthy.
    Patience,
    /// Longer than a first boot may take.
    LongBoot,
    /// A dead host comes back.
    HostBack(String),
    /// A person resets a machine that stands still.
    Reset(String),
    /// A host dies.
    HostDies(String),
    /// A machine stands still.
    Freeze(String),
    /// A machine loses its instance.
    PowerCut(String),
    /// A person deletes a machine's VM.
    VmDeleted(String),
    /// A person wishes something else.
    Wish(Step),
}

impl fmt::Display for Move {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reconcile(mishap) => write!(out, "the operator visits{}", words(*mishap)),
            Self::Look => out.write_str("the operator looks"),
            Self::Off(machine) => write!(out, "KubeVirt stops {machine}"),
            Self::On(machine) => write!(out, "KubeVirt starts {machine}"),
            Self::Boot(machine) => write!(out, "the boot of {machine} goes on"),
            Self::Moment => out.write_str("two seconds pass"),
            Self::Patience => out.write_str("five minutes pass"),
            Self::LongBoot => out.write_str("half an hour passes"),
            Self::HostBack(host) => write!(out, "{host} comes back"),
            Self::Reset(machine) => write!(out, "a person resets {machine}"),
            Self::HostDies(host) => write!(out, "{host} dies"),
            Self::Freeze(machine) => write!(out, "{machine} stands still"),
            Self::PowerCut(machine) => write!(out, "{machine} loses its instance"),
            Self::VmDeleted(machine) => write!(out, "a person deletes VM {machine}"),
            Self::Wish(step) => write!(out, "{step:?}"),
        }
    }
}

fn words(mishap: Mishap) -> String {
    match mishap {
        Mishap::None => String::new(),
        Mishap::Crash(at) => format!(" and dies before its action {at}"),
        Mishap::Refused(at) => format!("; its action {at} is refused"),
        Mishap::LostAnswer(at) => format!("; the answer to its action {at} is lost"),
        Mishap::StaleView => " and sees objects as they were".to_owned(),
        Mishap::OldAnswers => " and takes the guest's old answers".to_owned(),
        Mishap::Late => " and acts on what it saw".to_owned(),
        Mishap::StatusLost => " and dies before it writes the status".to_owned(),
    }
}

impl Move {
    /// It happens to machines and hosts, and nobody could know before.
    pub const fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::HostDies(_) | Self::Freeze(_) | Self::PowerCut(_) | Self::VmDeleted(_)
        )
    }
}

impl Machine {
    pub(super) fn has_not_joined(&self) -> bool {
        self.stage < Stage::Node
    }
}

impl World {
    /// From here on it goes in moves. Only then is its [`key`](World::key) worth something.
    #[must_use]
    pub fn in_moves(mut self) -> Self {
        self.chance = Chance::Prompt;
        self.log.clear();
        self.last_seen = None;
        self.follow();
        self
    }

    pub(super) const fn is_in_moves(&self) -> bool {
        matches!(self.chance, Chance::Prompt)
    }

    /// Whether it keeps a log.
    pub const fn keep_log(&mut self, keeps: bool) {
        self.keeps_log = keeps;
    }

    /// Drops what the next visit writes anew and no plan reads.
    pub fn forget_conditions(&mut self) {
        let status = self
            .cluster
            .as_mut()
            .and_then(|cluster| cluster.status.as_mut());
        if let Some(status) = status {
            status.conditions.clear();
        }
    }

    /// What can come next without trouble, the most natural first; some of it may change nothing.
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = vec![Move::Reconcile(Mishap::None)];
        let instances = || self.objects.instances.keys();
        let stops = instances().filter(|name| self.has_to_stop(name));
        moves.extend(stops.cloned().map(Move::Off));
        let starts = self.objects.vms.keys().filter(|name| self.can_start(name));
        moves.extend(starts.cloned().map(Move::On));
        let boots = self
            .machines
            .iter()
            .filter(|(name, machine)| machine.stage < Stage::Done && self.powered(name));
        moves.extend(boots.map(|(name, _)| Move::Boot(name.clone())));
        moves.extend(self.glows().then_some(Move::Moment));
        moves.extend(self.hosts_down.iter().cloned().map(Move::HostBack));
        moves
    }

    /// What comes where nothing goes on by itself any more: boots last too long, and persons help.
    pub fn last_resorts(&self) -> Vec<Move> {
        let waits = |name: &String| self.machines.get(name).is_some_and(Machine::has_not_joined);
        let boots = self.objects.instances.keys().any(waits);
        let resets = self.frozen.iter().cloned().map(Move::Reset);
        boots
            .then_some(Move::LongBoot)
            .into_iter()
            .chain(resets)
            .collect()
    }

    /// What can go wrong with machines and hosts.
    pub fn faults(&self) -> Vec<Move> {
        let running = |(name, _): &(&String, &Machine)| self.powered(name);
        let running = || self.machines.iter().filter(running).map(|(name, _)| name);
        let mut hosts: Vec<&String> = self
            .objects
            .instances
            .values()
            .filter_map(|i| i.host.as_ref())
            .collect();
        hosts.sort_unstable();
        hosts.retain(|host| !self.hosts_down.contains(*host));
        let vms = self.objects.vms.iter().filter(|(_, vm)| !vm.meta.deleting);
        let faults = running().cloned().map(Move::Freeze);
        let faults = faults.chain(running().cloned().map(Move::PowerCut));
        let faults = faults.chain(hosts.into_iter().cloned().map(Move::HostDies));
        faults
            .chain(vms.map(|(name, _)| Move::VmDeleted(name.clone())))
            .collect()
    }

    /// Lets one move happen, and what follows from it at once.
    pub fn take(&mut self, step: &Move) {
        self.note(format!("--- {step}"));
        if step.is_fault() {
            // What the operator saw before would be wrong, and no law holds for what it could not know.
            self.last_seen = None;
        }
        match step {
            Move::Reconcile(mishap) => drop(self.reconcile(*mishap)),
            Move::Look => self.last_seen = Some(Arc::new(self.observe())),
            Move::Off(machine) | Move::PowerCut(machine) | Move::Reset(machine) => {
                self.power_off(machine);
            }
            Move::On(machine) => self.start(machine),
            Move::Boot(machine) => self.boot_on(machine),
            Move::Moment => self.now += AFTERGLOW,
            Move::Patience => self.now += PATIENCE,
            Move::LongBoot => self.now += BOOT,
            Move::HostBack(host) => self.revive(host),
            Move::HostDies(host) => drop(self.hosts_down.insert(host.clone())),
            Move::Freeze(machine) => drop(self.frozen.insert(machine.clone())),
            Move::VmDeleted(machine) => self.delete_vm(machine),
            Move::Wish(step) => self.step(*step),
        }
        self.follow();
    }

    /// What follows at once: disks are filled, `kubectl drain` asks, etcd elects, probes tell.
    fn follow(&mut self) {
        self.fill_disks();
        self.remove_vms();
        self.remove_disks();
        self.evict();
        self.elect();
        // Nodes are kept by an API server that probes have found.
        self.refresh();
        self.refresh();
        self.follow_laws();
    }

    fn can_start(&self, name: &str) -> bool {
        let instance = self.objects.instances.get(name);
        let waits = instance.is_some_and(|i| i.host.is_none() && !i.meta.deleting);
        (waits && self.free_host(name).is_some()) || self.may_start(name)
    }

    /// An instance runs at once where a host has room.
    fn start(&mut self, name: &str) {
        self.start_instance(name);
        for _phase in ["Scheduling", "Scheduled", "Running"] {
            self.move_instance(name);
        }
        if self.is_at(name, Stage::Fresh) && self.powered(name) {
            self.boot(name);
        }
    }

    /// A machine whose Node exists needs nothing more of the guest.
    fn boot_on(&mut self, name: &str) {
        self.boot(name);
        if self.is_at(name, Stage::Node) {
            self.boot(name);
        }
    }

    fn is_at(&self, name: &str, stage: Stage) -> bool {
        self.machines.get(name).is_some_and(|m| m.stage == stage)
    }

    fn glows(&self) -> bool {
        let launchers = self.objects.instances.values();
        let mut out = launchers.filter_map(|i| i.launcher.as_ref()?.out_since);
        out.any(|time| self.now.duration_since(time) < AFTERGLOW)
    }

    /// A repair waits for its time.
    pub fn is_patient(&self) -> bool {
        let status = self.status();
        let control_plane = &status.control_plane;
        let recent = |time: &Time| self.now.duration_since(time.0) < PATIENCE;
        let paused = control_plane.last_repair.as_ref().is_some_and(recent);
        let mut since = control_plane
            .machines
            .iter()
            .filter_map(|m| m.unhealthy_since.as_ref());
        since.any(|time| paused || recent(time))
    }

    /// etcd has lost its quorum, and status says so to a person.
    pub fn calls_for_person(&self) -> bool {
        let (plan, _) = self.consider();
        let tells = |hold: &Hold| hold.reason == Reason::QuorumLost && hold.needs_person;
        !self.quorum() && plan.holds.iter().any(tells)
    }

    /// What is missing from a world in which nothing is left to come; `None` if it is as it should be.
    pub fn unrest(&self) -> Option<String> {
        let mut world = self.clone();
        for _ in 0..2 {
            world.take(&Move::Reconcile(Mishap::None));
        }
        if !(world.is_ready() && world.is_up_to_date()) {
            return Some(format!("not calm: {:#?}", world.status().conditions));
        }
        let (plan, _) = world.consider();
        if !world.is_idle() || plan.departures.is_none_or(|left| !left.is_empty()) {
            return Some(format!("not idle: {:?}", plan.actions));
        }
        world.misfit()
    }

    /// Machines, members and Nodes are the same, as many as asked for, all of them in the endpoint.
    fn misfit(&self) -> Option<String> {
        let wanted = self.cluster.as_ref()?.spec.control_plane.replicas;
        let machines: BTreeSet<&String> = self.objects.machines().collect();
        let vms: BTreeSet<&String> = self.objects.vms.keys().collect();
        let served = vms
            .iter()
            .copied()
            .filter(|name| self.is_served(name))
            .collect();
        let members = self
            .guest
            .members
            .iter()
            .filter(|m| !m.learner && m.started);
        let members = members.map(|member| &member.machine).collect();
        let open = self
            .guest
            .nodes
            .iter()
            .filter(|(_, node)| !node.unschedulable);
        let nodes = open.map(|(name, _)| name).collect();
        let all: [(&str, BTreeSet<&String>); 4] = [
            ("of machines with objects", machines),
            ("served", served),
            ("members", members),
            ("Nodes", nodes),
        ];
        if i32::try_from(vms.len()) != Ok(wanted) {
            return Some(format!(
                "{wanted} machines are wanted, and there are {vms:?}"
            ));
        }
        let other = all.into_iter().find(|(_, names)| *names != vms);
        other.map(|(what, names)| format!("VMs are {vms:?}, and {what} {names:?}"))
    }
}
