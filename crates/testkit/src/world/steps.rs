//! What can happen, and how a world comes to rest.

use guestcluster_api::host_maintenance::CapacityPolicy;
use guestcluster_api::{GuestClusterSpec, GuestClusterStatus};
use guestcluster_planner::action::Kind;
use guestcluster_planner::machines::recorded;
use guestcluster_planner::wanted::Settings;
use guestcluster_planner::{Observed, Plan, Wanted, report};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Fault, World};

/// What goes wrong during a visit of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing.
    None,
    /// It dies before the n-th action, counted from 0.
    Crash(usize),
    /// The n-th action is refused.
    Refused(usize),
    /// The n-th action takes effect and its answer is lost.
    LostAnswer(usize),
    /// Its watches lag: it sees objects as they were when it last looked.
    StaleView,
    /// The guest is not asked: it sees what the guest said when it last looked.
    OldAnswers,
    /// It acts late, on all that it saw when it last looked.
    Late,
    /// The status cannot be written at the end.
    StatusLost,
}

/// Something that happens. Machines and hosts are counted round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The operator visits the cluster.
    Reconcile(Mishap),
    /// So many ticks pass.
    Pass(u8),
    /// The n-th running machine loses its instance and gets another.
    PowerCycle(usize),
    /// The n-th host dies.
    KillHost(usize),
    /// It comes back.
    ReviveHost(usize),
    /// The guest's API and etcd cannot be reached.
    CutGuest,
    /// They can again.
    MendGuest,
    /// A person stops the n-th VM.
    Stop(usize),
    /// A person starts it again.
    Start(usize),
    /// A person deletes the n-th VM.
    DeleteVm(usize),
    /// A person asks for one more worker in each pool.
    AddWorker,
    /// A person asks for so many control-plane machines.
    Scale(i32),
    /// A person asks for one worker less in each pool.
    RemoveWorker,
    /// A person asks for another version.
    Upgrade(u8),
    /// A person asks for another name of the endpoint.
    Rename(u8),
    /// A person drains the n-th host.
    Drain(usize),
    /// The host is given back.
    Uncordon(usize),
    /// A HostMaintenance empties the n-th host, with the policy of that number.
    Empty(usize, u8),
    /// The maintenance of the n-th host ends.
    EndMaintenance(usize),
    /// The n-th running machine stands still.
    Freeze(usize),
}

impl World {
    /// Lets something happen.
    pub fn step(&mut self, step: Step) {
        match step {
            Step::Reconcile(mishap) => drop(self.reconcile(mishap)),
            Step::Pass(ticks) => self.pass(ticks.into()),
            Step::PowerCycle(number) => {
                if let Some(name) = nth(self.objects.instances.keys(), number)
                    && !self.is_stranded(&name)
                {
                    self.power_off(&name);
                }
            }
            Step::KillHost(_)
            | Step::ReviveHost(_)
            | Step::Drain(_)
            | Step::Uncordon(_)
            | Step::Empty(..)
            | Step::EndMaintenance(_) => {
                self.change_host(step);
            }
            Step::CutGuest => self.set(Fault::GuestCut, true),
            Step::MendGuest => self.set(Fault::GuestCut, false),
            Step::Stop(number) => self.strategy(number, "Halted"),
            Step::Start(number) => self.strategy(number, "Always"),
            Step::DeleteVm(number) => {
                if let Some(name) = nth(self.objects.vms.keys(), number) {
                    self.delete_vm(&name);
                }
            }
            Step::AddWorker
            | Step::RemoveWorker
            | Step::Scale(_)
            | Step::Upgrade(_)
            | Step::Rename(_) => {
                self.edit(|cluster| wish(&mut cluster.spec, step));
            }
            Step::Freeze(number) => {
                if let Some(name) = nth(self.objects.instances.keys(), number) {
                    self.note(format!("{name} stands still"));
                    self.frozen.insert(name);
                }
            }
        }
    }

    fn change_host(&mut self, step: Step) {
        let (Step::KillHost(number)
        | Step::ReviveHost(number)
        | Step::Drain(number)
        | Step::Uncordon(number)
        | Step::Empty(number, _)
        | Step::EndMaintenance(number)) = step
        else {
            return;
        };
        let hosts = self.infra.hosts.iter().map(|host| &host.name);
        let Some(host) = nth(hosts, number) else {
            return;
        };
        match step {
            Step::KillHost(_) => {
                self.note(format!("{host} dies"));
                self.hosts_down.insert(host);
            }
            Step::ReviveHost(_) => self.revive(&host),
            Step::Drain(_) => {
                self.note(format!("{host} is being drained"));
                self.draining.insert(host);
            }
            Step::Empty(_, 0) => self.empty_host(&host, CapacityPolicy::Enforce),
            Step::Empty(_, 1) => self.empty_host(&host, CapacityPolicy::Warn),
            Step::Empty(..) => self.empty_host(&host, CapacityPolicy::Ignore),
            Step::EndMaintenance(_) => self.end_maintenance(&host),
            _ => drop(self.draining.remove(&host)),
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.tick();
        }
    }

    /// From now on what the loss of each host would mean is worked out at each look, or is not known
    /// any more, as for an operator that has just begun.
    pub const fn foresee(&mut self, known: bool) {
        self.foresees = known;
    }

    /// A person binds the machine's Pod to a host, past the scheduler.
    pub fn bind(&mut self, machine: &str, host: &str) {
        self.note(format!("{machine} is bound to {host} by hand"));
        if let Some(instance) = self.objects.instances.get_mut(machine) {
            instance.host = Some(host.to_owned());
        }
    }

    /// A host comes back, and what ran on it starts anew.
    pub(super) fn revive(&mut self, host: &str) {
        if !self.hosts_down.remove(host) {
            return;
        }
        self.note(format!("{host} is back"));
        let lost = self
            .objects
            .instances
            .iter()
            .filter(|(_, i)| i.host.as_deref() == Some(host));
        for name in lost.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.power_off(&name);
        }
    }

    fn strategy(&mut self, number: usize, strategy: &str) {
        if let Some(name) = nth(self.objects.vms.keys(), number) {
            self.set_strategy(&name, strategy);
        }
    }

    /// A person deletes the cluster.
    pub fn delete_cluster(&mut self) {
        self.note("a person deletes the cluster");
        let now = self.now;
        let finalizer = |c: &guestcluster_api::GuestCluster| c.metadata.finalizers.is_some();
        if self.cluster.as_ref().is_some_and(finalizer) {
            self.edit(|cluster| cluster.metadata.deletion_timestamp = Some(Time(now)));
        } else {
            self.cluster = None;
        }
    }

    /// All faults end, and what persons did is undone.
    pub fn heal(&mut self) {
        self.note("all faults end");
        self.faults.clear();
        self.frozen.clear();
        self.draining.clear();
        self.emptied.values_mut().for_each(|policy| *policy = None);
        self.heal_hosts();
        for number in 0..self.objects.vms.len() {
            self.strategy(number, "Always");
        }
    }

    /// All hosts are back.
    pub fn heal_hosts(&mut self) {
        for host in self.hosts_down.clone() {
            self.revive(&host);
        }
    }

    /// Lets the operator and the world go on until `done` or for `rounds`; says whether it came to
    /// that.
    pub fn run_until(&mut self, rounds: u32, done: impl Fn(&Self, &Plan) -> bool) -> bool {
        for _ in 0..rounds {
            self.pass(1);
            let plan = self.reconcile(Mishap::None);
            if done(self, &plan) {
                return true;
            }
        }
        false
    }

    /// Runs until the cluster is ready and nothing is left to do.
    pub fn run_until_calm(&mut self, rounds: u32) -> bool {
        self.run_until(rounds, |world, plan| {
            let goes = recorded(&world.status()).any(|machine| machine.phase == "Leaving");
            let leaves = goes || plan.departures.as_ref().is_none_or(|d| !d.is_empty());
            world.is_ready() && world.is_up_to_date() && plan.actions.is_empty() && !leaves
        })
    }

    /// What the operator would plan and say now.
    pub fn consider(&self) -> (Plan, GuestClusterStatus) {
        self.consider_seeing(&self.observe())
    }

    /// What it would plan and say if it saw something else than the world is.
    pub fn consider_seeing(&self, seen: &Observed) -> (Plan, GuestClusterStatus) {
        let parsed = self
            .cluster
            .as_ref()
            .map(|c| Wanted::parse(c, &Settings::default()));
        let Some(Ok(wanted)) = parsed else {
            return (Plan::default(), self.status());
        };
        let previous = self.status();
        let plan = guestcluster_planner::plan(&wanted, seen, &previous, self.now);
        let status = report::status(&wanted, seen, &plan, &previous, self.now);
        (plan, status)
    }

    /// Whether another visit would write nothing: no action, and the status that is there.
    pub fn is_idle(&self) -> bool {
        let (plan, status) = self.consider();
        plan.actions.is_empty() && status == self.status()
    }

    /// The machine loses its instance and gets another.
    pub fn power_cycle(&mut self, machine: &str) {
        self.power_off(machine);
    }

    /// A person sets the machine's run strategy.
    pub fn set_strategy(&mut self, machine: &str, strategy: &str) {
        self.note(format!("a person sets {machine} to {strategy}"));
        if let Some(vm) = self.objects.vms.get_mut(machine) {
            vm.run_strategy = Some(strategy.to_owned());
        }
        self.touch(Kind::VirtualMachine, machine);
    }

    /// A person deletes the machine's VM.
    pub fn delete_vm(&mut self, machine: &str) {
        self.note(format!("a person deletes VM {machine}"));
        self.delete(Kind::VirtualMachine, machine);
    }

    /// A person deletes a Secret.
    pub fn delete_secret(&mut self, name: &str) {
        self.note(format!("a person deletes Secret {name}"));
        self.delete(Kind::Secret, name);
    }

    /// A person deletes all that carries the machine's name.
    pub fn erase(&mut self, machine: &str) {
        self.note(format!("a person deletes all of {machine}"));
        self.delete(Kind::VirtualMachine, machine);
        self.delete(Kind::Service, machine);
        self.delete(Kind::EndpointSlice, machine);
        self.delete(
            Kind::Secret,
            &guestcluster_api::names::user_data_secret(machine),
        );
        self.objects
            .disks
            .remove(&guestcluster_api::names::root_disk(machine));
    }

    /// A person deletes the machine's disk, data and all.
    pub fn destroy_disk(&mut self, machine: &str) {
        self.note(format!("a person deletes the disk of {machine}"));
        self.objects
            .disks
            .remove(&guestcluster_api::names::root_disk(machine));
    }

    /// The machine whose etcd member is a learner.
    pub fn learner(&self) -> Option<&str> {
        let learner = self.guest.members.iter().find(|member| member.learner);
        learner.map(|member| member.machine.as_str())
    }

    /// Whether the machine's Node is in the guest.
    pub fn has_node(&self, machine: &str) -> bool {
        self.guest.nodes.contains_key(machine)
    }
}

/// What a person asks for. A version only goes up.
fn wish(spec: &mut GuestClusterSpec, step: Step) {
    match step {
        Step::Scale(replicas) => spec.control_plane.replicas = replicas,
        Step::Rename(number) => {
            spec.control_plane.endpoint.host = Some(format!("api-{number}.example.com"));
        }
        Step::Upgrade(patch) => {
            let wanted = format!("v1.36.{patch}");
            if wanted > spec.version {
                spec.version = wanted;
            }
        }
        _ => {
            let more = if step == Step::AddWorker { 1 } else { -1 };
            for pool in &mut spec.workers {
                pool.replicas = (pool.replicas + more).clamp(0, 4);
            }
        }
    }
}

fn nth<'a>(names: impl ExactSizeIterator<Item = &'a String>, number: usize) -> Option<String> {
    let mut names = names;
    let count = names.len();
    (count > 0)
        .then(|| names.nth(number % count))
        .flatten()
        .cloned()
}
