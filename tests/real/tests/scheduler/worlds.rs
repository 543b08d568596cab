//! Random worlds of a few hosts with Pods on them, and the machine that wants in.

use std::collections::BTreeMap;

use guestcluster_capacity::{Holding, Host, Launcher, Quantity, Requests, Taint};
use guestcluster_placement::{Requirements, Toleration};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::residents::{self, GPU, HUGE, Resident, launcher_shape};

/// A machine and the hosts that it is tried on.
#[derive(Clone, Debug)]
pub struct World {
    pub machine: Wanted,
    pub metals: Vec<Metal>,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub launcher: Launcher,
    pub requirements: Requirements,
    /// It shares no host with its kin.
    pub apart: bool,
}

/// A host and who is on it.
#[derive(Clone, Debug)]
pub struct Metal {
    pub host: Host,
    pub residents: Vec<Resident>,
}

impl Metal {
    /// The machine's kin that hold room here.
    pub fn kin(&self) -> impl Iterator<Item = Holding> + '_ {
        let kin = self.residents.iter().enumerate();
        let kin = kin.filter(|(_, resident)| resident.kin && !resident.over);
        kin.map(|(at, resident)| Holding {
            machine: format!("kin-{at}"),
            host: self.host.name.clone(),
            requests: resident.shape.requests(),
        })
    }
}

/// The same worlds for the same seed.
pub fn random(seed: u64, number: usize) -> Vec<World> {
    let mut chance = StdRng::seed_from_u64(seed);
    let worlds = (0..number).map(|at| world(&mut chance, at));
    worlds.collect()
}

fn world(chance: &mut StdRng, at: usize) -> World {
    let machine = machine(chance);
    let metals = (0..chance.gen_range(3..=8)).map(|host| {
        let name = format!("w{at:02}-h{host}");
        metal(chance, name, &machine)
    });
    let metals = metals.collect();
    World { machine, metals }
}

fn machine(chance: &mut StdRng) -> Wanted {
    let cpus = chance.gen_range(1..=8);
    let hugepages = [None, None, Some("2Mi"), Some("1Gi")][chance.gen_range(0..4)];
    // Whole pages of either size.
    let memory = Quantity::units(chance.gen_range(1..=16) << 30);
    let mut launcher = Launcher {
        isolate_emulator_thread: chance.gen_bool(0.2),
        console_log: chance.gen_bool(0.7),
        hugepages: hugepages.map(str::to_owned),
        ..Launcher::new(cpus, memory)
    };
    if chance.gen_bool(0.3) {
        let number = Quantity::units(chance.gen_range(1..=2));
        launcher.devices = Requests::new().with(GPU, number);
    }
    let isolated = u64::from(launcher.isolate_emulator_thread);
    let mut node_selector = BTreeMap::new();
    for (share, key, value) in [(0.25, "zone", "a"), (0.15, "disk", "nvme")] {
        if chance.gen_bool(share) {
            node_selector.insert(key.to_owned(), value.to_owned());
        }
    }
    let requirements = Requirements {
        node_selector,
        tolerations: some(chance, 0.12, tolerations()),
        cpu: Quantity::units(cpus + isolated),
        memory,
        ..Requirements::default()
    };
    Wanted {
        launcher,
        requirements,
        apart: chance.gen_bool(0.6),
    }
}

fn some<T>(chance: &mut StdRng, share: f64, all: Vec<T>) -> Vec<T> {
    all.into_iter().filter(|_| chance.gen_bool(share)).collect()
}

fn tolerations() -> Vec<Toleration> {
    let toleration = |key: Option<&str>, value: Option<&str>, effect: Option<&str>| Toleration {
        key: key.map(str::to_owned),
        exists: value.is_none(),
        value: value.unwrap_or_default().to_owned(),
        effect: effect.map(str::to_owned),
    };
    let node = |condition: &str| format!("node.kubernetes.io/{condition}");
    vec![
        toleration(None, None, None),
        toleration(None, None, Some("NoExecute")),
        toleration(Some("gpu"), None, None),
        toleration(Some("gpu"), None, Some("NoExecute")),
        toleration(Some("gpu"), Some("yes"), None),
        toleration(Some("gpu"), Some("yes"), Some("NoSchedule")),
        toleration(Some("edge"), None, Some("NoSchedule")),
        toleration(Some("edge"), Some(""), None),
        toleration(Some(&node("unschedulable")), None, Some("NoSchedule")),
        toleration(Some(&node("memory-pressure")), None, None),
        toleration(Some(&node("not-ready")), None, Some("NoExecute")),
    ]
}

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
    }
}

fn taints() -> Vec<Taint> {
    vec![
        taint("gpu", "yes", "NoSchedule"),
        taint("gpu", "no", "NoExecute"),
        taint("gpu", "yes", "PreferNoSchedule"),
        taint("edge", "", "NoSchedule"),
        taint("node.kubernetes.io/memory-pressure", "", "NoSchedule"),
        // Left behind for a moment by a host that is ready again.
        taint("node.kubernetes.io/not-ready", "", "NoExecute"),
        taint("node.kubernetes.io/unreachable", "", "NoExecute"),
    ]
}

fn metal(chance: &mut StdRng, name: String, machine: &Wanted) -> Metal {
    let residents = chance.gen_range(0..4);
    let mut residents = (0..residents)
        .map(|_| residents::anybody(chance))
        .collect::<Vec<_>>();
    if chance.gen_bool(0.2) {
        residents.push(Resident {
            shape: launcher_shape(&machine.launcher),
            over: chance.gen_bool(0.3),
            kin: true,
        });
    }
    let mut host = Host {
        labels: labels(chance, &name),
        name,
        taints: some(chance, 0.05, taints()),
        ready: !chance.gen_bool(0.06),
        unschedulable: chance.gen_bool(0.08),
        allocatable: allocatable(chance, machine, &residents),
    };
    // What the node life cycle controller writes, sooner or later.
    if host.unschedulable && chance.gen_bool(0.7) {
        host.taints
            .push(taint("node.kubernetes.io/unschedulable", "", "NoSchedule"));
    }
    if !host.ready {
        host.taints
            .retain(|taint| !taint.key.ends_with("unreachable"));
        for effect in ["NoSchedule", "NoExecute"] {
            host.taints
                .push(taint("node.kubernetes.io/unreachable", "", effect));
        }
    }
    Metal { host, residents }
}

fn labels(chance: &mut StdRng, name: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut label = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
    // Some call a host by another name than its Node's.
    let domain = if chance.gen_bool(0.3) { ".example" } else { "" };
    label("kubernetes.io/hostname", &format!("{name}{domain}"));
    let schedulable = chance.gen_bool(0.95);
    label("kubevirt.io/schedulable", &schedulable.to_string());
    if chance.gen_bool(0.96) {
        label("cpumanager", "true");
    }
    match chance.gen_range(0..8) {
        0 => {}
        1 => drop(label("zone", "b")),
        _ => drop(label("zone", "a")),
    }
    if chance.gen_bool(0.7) {
        label("disk", "nvme");
    }
    labels
}

/// Mostly more than is needed, often exactly as much, now and then too little by the smallest bit.
fn allocatable(
    chance: &mut StdRng,
    machine: &Wanted,
    residents: &[Resident],
) -> BTreeMap<String, Quantity> {
    let mut held = Requests::new();
    for resident in residents.iter().filter(|resident| !resident.over) {
        held.add(&resident.shape.requests());
    }
    let mut all = held.clone();
    all.add(&machine.launcher.requests());
    let amounts = all.iter().filter_map(|(resource, amount)| {
        let held = held.of(resource).ceil();
        let unit = if resource == "cpu" { 1 } else { 1000 };
        let enough = (amount.milli() + unit - 1) / unit;
        let more = match resource {
            "pods" => 100,
            "cpu" => 4000,
            GPU => 3,
            _ => 4 << 30,
        };
        let is_rare = resource == GPU || resource == HUGE;
        let units = match chance.gen_range(0..100) {
            0..6 => enough - 1,
            6..20 if is_rare => enough - 1,
            6..34 => enough,
            // The host shrank under its Pods.
            34..37 => held / 2 * 1000 / unit,
            // It does not offer it at all.
            37..39 => return None,
            _ => enough + chance.gen_range(0..more),
        };
        let amount = Quantity::from_milli(units.max(0) * unit);
        Some((resource.to_owned(), amount))
    });
    amounts.collect()
}
