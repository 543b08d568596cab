//! What can happen, and how a world comes to rest.

use guestcluster_planner::action::Kind;
use guestcluster_planner::{Plan, report};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::World;

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
    /// A person asks for two more control-plane machines, up to three.
    GrowControlPlane,
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
            Step::KillHost(number) => {
                if let Some(host) = nth(self.infra.hosts.iter().map(|host| &host.name), number) {
                    self.note(format!("{host} dies"));
                    self.hosts_down.insert(host);
                }
            }
            Step::ReviveHost(number) => {
                if let Some(host) = nth(self.infra.hosts.iter().map(|host| &host.name), number) {
                    self.revive(&host);
                }
            }
            Step::CutGuest => self.guest_cut = true,
            Step::MendGuest => self.guest_cut = false,
            Step::Stop(number) => self.strategy(number, "Halted"),
            Step::Start(number) => self.strategy(number, "Always"),
            Step::DeleteVm(number) => {
                if let Some(name) = nth(self.objects.vms.keys(), number) {
                    self.note(format!("a person deletes VM {name}"));
                    self.delete(Kind::VirtualMachine, &name);
                }
            }
            Step::AddWorker => self.edit(|cluster| {
                for pool in &mut cluster.spec.workers {
                    pool.replicas = (pool.replicas + 1).min(4);
                }
            }),
            Step::GrowControlPlane => {
                self.edit(|cluster| cluster.spec.control_plane.replicas = 3);
            }
        }
    }

    /// Lets time pass.
    pub fn pass(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.tick();
        }
    }

    /// A host comes back, and what ran on it starts anew.
    fn revive(&mut self, host: &str) {
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
            self.note(format!("a person sets {name} to {strategy}"));
            if let Some(vm) = self.objects.vms.get_mut(&name) {
                vm.run_strategy = Some(strategy.to_owned());
            }
            self.touch(Kind::VirtualMachine, &name);
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
        self.guest_cut = false;
        self.image_broken = false;
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
            world.is_ready() && plan.actions.is_empty()
        })
    }

    /// Whether another visit would write nothing: no action, and the status that is there.
    pub fn is_idle(&self) -> bool {
        let Some(cluster) = &self.cluster else {
            return true;
        };
        let Ok(wanted) = guestcluster_planner::Wanted::parse(
            cluster,
            &guestcluster_planner::wanted::Settings::default(),
        ) else {
            return false;
        };
        let (seen, previous) = (self.observe(), self.status());
        let plan = guestcluster_planner::plan(&wanted, &seen, &previous, self.now);
        let status = report::status(&wanted, &seen, &plan, &previous, self.now);
        plan.actions.is_empty() && status == previous
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
