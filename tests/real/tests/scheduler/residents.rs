//! Pods that are on a host already.

use guestcluster_capacity::{InitContainer, Launcher, PodShape, Quantity, Requests};
use rand::Rng;
use rand::rngs::StdRng;

/// Name of the runtime class of Pods with an overhead.
pub const RUNTIME: &str = "heavy";
pub const GPU: &str = "example.com/gpu";
pub const HUGE: &str = "hugepages-2Mi";

/// What the runtime class adds to a Pod.
pub fn overhead() -> Requests {
    Requests::new()
        .with("cpu", Quantity::from_milli(250))
        .with("memory", Quantity::units(120 << 20))
}

/// A Pod that is there.
#[derive(Clone, Debug)]
pub struct Resident {
    pub shape: PodShape,
    /// It has failed and holds nothing.
    pub over: bool,
    /// It is a launcher Pod of the machine's own guest.
    pub kin: bool,
}

/// A launcher Pod as KubeVirt builds it: the machine, and its console's log beside it.
pub fn launcher_shape(launcher: &Launcher) -> PodShape {
    let machine = Launcher {
        console_log: false,
        ..launcher.clone()
    };
    let compute = machine.requests();
    let compute = compute.iter().filter(|(resource, _)| *resource != "pods");
    let log = InitContainer {
        requests: Requests::new()
            .with("cpu", Quantity::from_milli(15))
            .with("memory", Quantity::units(60_000_000)),
        stays: true,
    };
    PodShape {
        containers: vec![compute.collect()],
        init: launcher.console_log.then_some(log).into_iter().collect(),
        ..PodShape::default()
    }
}

/// Any other Pod, with one of all the things that count.
pub fn anybody(chance: &mut StdRng) -> Resident {
    let mut shape = PodShape::default();
    let special = chance.gen_bool(0.3);
    for _ in 0..chance.gen_range(1..3) {
        shape.containers.push(container(chance, special));
    }
    for _ in 0..chance.gen_range(0..3) {
        shape.init.push(InitContainer {
            requests: container(chance, false),
            stays: chance.gen_bool(0.4),
        });
    }
    if !special && chance.gen_bool(0.15) {
        shape.whole = whole(chance, &shape.requests());
    }
    if chance.gen_bool(0.15) {
        shape.overhead = overhead();
    }
    Resident {
        shape,
        over: chance.gen_bool(0.1),
        kin: false,
    }
}

fn container(chance: &mut StdRng, special: bool) -> Requests {
    let mut requests = Requests::new();
    if special || chance.gen_bool(0.85) {
        requests = requests.with("cpu", Quantity::from_milli(chance.gen_range(1..1500)));
    }
    if chance.gen_bool(0.85) {
        requests = requests.with("memory", memory(chance));
    }
    if chance.gen_bool(0.3) {
        let bytes = chance.gen_range(1..2_000_000_000);
        requests = requests.with("ephemeral-storage", Quantity::units(bytes));
    }
    if special && chance.gen_bool(0.6) {
        requests = requests.with(GPU, Quantity::units(1));
    }
    if special && chance.gen_bool(0.6) {
        requests = requests.with(HUGE, Quantity::units(chance.gen_range(1..200) << 21));
    }
    requests
}

/// The API server takes a request of half a byte as well.
fn memory(chance: &mut StdRng) -> Quantity {
    if chance.gen_bool(0.3) {
        return Quantity::from_milli(chance.gen_range(1..2_000_000_000_000));
    }
    Quantity::units(chance.gen_range(1..2 << 30))
}

/// The Pod as a whole requests more than its parts, of one resource or of both.
fn whole(chance: &mut StdRng, parts: &Requests) -> Requests {
    let mut whole = Requests::new();
    if chance.gen_bool(0.7) {
        let more = Quantity::from_milli(chance.gen_range(0..700));
        whole = whole.with("cpu", parts.of("cpu") + more);
    }
    if chance.gen_bool(0.7) {
        let more = Quantity::units(chance.gen_range(0..1 << 30));
        whole = whole.with("memory", parts.of("memory") + more);
    }
    whole
}
