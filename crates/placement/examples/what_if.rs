//! Prints how long the what-if takes: `cargo run --release -p guestcluster-placement --example
//! what_if`. Times vary with the machine, so nothing is asserted here.
#![allow(
    clippy::disallowed_methods,
    reason = "a stopwatch is what this program is"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use guestcluster_capacity::{Host, Launcher, Quantity, Requests, Usage};
use guestcluster_placement::{Fleet, Machine, Outcome, Requirements, WhatIf};

const GIB: u64 = 1 << 30;
/// CPUs and GiB of machines, and how many of each in fifteen.
const SIZES: [(u64, u64, usize); 4] = [(2, 8, 8), (4, 16, 4), (8, 32, 2), (16, 64, 1)];
const ZONE: &str = "topology.kubernetes.io/zone";
const ZONES: usize = 3;

/// Numbers that look like chance and are the same each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 1).unwrap_or_default() % end
    }
}

/// How full the hosts are: what other Pods hold so that so many CPUs are free on each.
#[derive(Clone, Copy)]
enum Room {
    /// Eighty: a whole zone may die.
    Vast,
    /// Twenty-four.
    Roomy,
    /// None or a few: the machines of a dead host just about fit, or do not.
    Tight,
    /// The same, and no two machines are of one size.
    Odd,
    /// None, but for ten hosts which together have as much as a host's machines need, or a little
    /// more: whether they fit is a puzzle.
    Puzzle,
}

struct World {
    hosts: Vec<Host>,
    usage: Usage,
    sizes: Vec<(Requests, Requirements)>,
    machines: Vec<Guest>,
    caps: BTreeMap<String, usize>,
}

struct Guest {
    name: String,
    size: usize,
    places: Vec<String>,
    group: Option<String>,
    tenant: String,
}

fn host(number: usize, cpus: u64) -> Host {
    let label = |key: &str, value: String| (key.to_owned(), value);
    let amount = |name: &str, units| (name.to_owned(), Quantity::units(units));
    let zone = format!("zone-{}", number % ZONES);
    Host {
        name: format!("host-{number:04}"),
        labels: [
            label("kubevirt.io/schedulable", "true".into()),
            label("cpumanager", "true".into()),
            label(ZONE, zone),
        ]
        .into(),
        ready: true,
        allocatable: [
            amount("cpu", cpus),
            amount("memory", cpus * 5 * GIB),
            amount("ephemeral-storage", 1000 * GIB),
            amount("pods", 250),
        ]
        .into(),
        ..Host::default()
    }
}

/// What a machine of a size asks for, made a little different from the others by `extra`.
fn size((cpus, gib, _): (u64, u64, usize), extra: usize) -> (Requests, Requirements) {
    let memory = Quantity::units(gib * GIB + ((extra as u64) << 16));
    let requirements = Requirements {
        cpu: Quantity::units(cpus),
        memory,
        ..Requirements::default()
    };
    (Launcher::new(cpus, memory).requests(), requirements)
}

/// Guests of five machines: three of a control plane, which do not share hosts, and two workers.
/// One in a hundred machines migrates.
fn world(hosts: usize, machines: usize, room: Room) -> World {
    let mut numbers = Numbers(1);
    let mut world = World {
        hosts: Vec::new(),
        usage: Usage::default(),
        sizes: SIZES.map(|of| size(of, 0)).into(),
        machines: Vec::new(),
        caps: BTreeMap::new(),
    };
    let kinds = SIZES
        .iter()
        .zip(0..)
        .flat_map(|((_, _, times), at)| vec![at; *times]);
    let kinds = kinds.collect::<Vec<usize>>();
    for number in 0..machines {
        let (guest, role) = (number / 5, number % 5);
        let mut class = if role < 3 {
            guest % 2
        } else {
            kinds[numbers.below(kinds.len())]
        };
        if let Room::Odd = room {
            world.sizes.push(size(SIZES[class], number));
            class = world.sizes.len() - 1;
        }
        // Members of a guest are far apart in the list of hosts.
        let at = (numbers.below(hosts / 5) * 5 + role) % hosts;
        let mut places = vec![format!("host-{at:04}")];
        if numbers.below(100) == 0 {
            places.push(format!("host-{:04}", (at + 5) % hosts));
        }
        for place in &places {
            world.usage.hold(place, &world.sizes[class].0);
        }
        let group = (role < 3).then(|| format!("guest-{guest}"));
        let tenant = format!("tenant-{}", guest % 50);
        world.caps.insert(tenant.clone(), 20);
        world.machines.push(Guest {
            name: format!("machine-{number:05}"),
            size: class,
            places,
            group,
            tenant,
        });
    }
    add_hosts(&mut world, hosts, room, &mut numbers);
    world
}

/// Hosts that are as large as what they carry, and what is to be free.
fn add_hosts(world: &mut World, hosts: usize, room: Room, numbers: &mut Numbers) {
    let cpus = |requests: &Requests| u64::try_from(requests.of("cpu").ceil()).unwrap_or_default();
    let machines = world
        .machines
        .iter()
        .map(|guest| cpus(&world.sizes[guest.size].0));
    // A tenth of what the machines of a host need.
    let share = machines.sum::<u64>() / hosts as u64 / 10;
    for number in 0..hosts {
        let free = match room {
            Room::Vast => 80,
            Room::Roomy => 24,
            // A host carries some hundred CPUs: what is free elsewhere is about as much in all.
            Room::Tight | Room::Odd => {
                [0, 1, 3, 5, 9][numbers.below(5)] * 100 / hosts.min(100) as u64
            }
            Room::Puzzle if number % (hosts / 10) == 0 => share + numbers.below(5) as u64,
            Room::Puzzle => 0,
        };
        let held = world.usage.of(&format!("host-{number:04}")).map_or(0, cpus);
        world.hosts.push(host(number, held + free));
    }
}

fn measure(hosts: usize, machines: usize, room: Room) {
    let world = world(hosts, machines, room);
    let machines = world.machines.iter().map(|guest| Machine {
        name: &guest.name,
        hosts: guest.places.iter().map(String::as_str).collect(),
        requests: &world.sizes[guest.size].0,
        requirements: &world.sizes[guest.size].1,
        apart: guest.group.as_deref(),
        tenant: Some(&guest.tenant),
    });
    let machines = machines.collect::<Vec<_>>();
    let fleet = Fleet {
        hosts: &world.hosts,
        usage: &world.usage,
        machines: &machines,
        caps: &world.caps,
    };
    let (what_if, prepare) = best(|| WhatIf::new(&fleet));
    let (outcomes, each_host) = best(|| what_if.each_host().collect::<Vec<_>>());
    let (zones, each_zone) = best(|| what_if.each_zone(ZONE).collect::<Vec<_>>());
    let worst = outcomes
        .iter()
        .map(|(host, _)| best(|| what_if.without(&[host]).is_ok()).1);
    let worst = worst.max().unwrap_or_default();
    let count = |outcomes: &[(&str, Outcome<'_>)]| {
        let mut counts = [0; 3];
        for (_, outcome) in outcomes {
            counts[match outcome {
                Outcome::Fits { .. } => 0,
                Outcome::Short(_) => 1,
                Outcome::NotKnown(_) => 2,
            }] += 1;
        }
        format!("{}/{}/{}", counts[0], counts[1], counts[2])
    };
    let room = match room {
        Room::Vast => "vast",
        Room::Roomy => "roomy",
        Room::Tight => "tight",
        Room::Odd => "odd",
        Room::Puzzle => "puzzle",
    };
    println!(
        "{hosts:>5} {:>8} {room:>6} {:>10} {:>10} {:>12} {:>10} {:>10} {:>8}",
        machines.len(),
        ms(prepare),
        ms(each_host),
        count(&outcomes),
        ms(worst),
        ms(each_zone),
        count(&zones),
    );
    let short = outcomes.iter().find_map(|(host, outcome)| match outcome {
        Outcome::Short(short) => Some((host, short)),
        Outcome::Fits { .. } | Outcome::NotKnown(_) => None,
    });
    if let Some((host, short)) = short {
        let (cure, time) = best(|| what_if.cure(short));
        println!("      without {host}: {cure}; found in {} ms", ms(time));
    }
}

/// The shortest of five, which is what the others disturb least.
fn best<T>(work: impl Fn() -> T) -> (T, Duration) {
    let once = || {
        let begun = Instant::now();
        let done = work();
        (done, begun.elapsed())
    };
    (0..4).fold(once(), |best, _| {
        let next = once();
        if next.1 < best.1 { next } else { best }
    })
}

fn ms(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1000.0)
}

fn main() {
    println!("times in ms, the best of five; answers: fits/short/not known");
    println!(
        "{:>5} {:>8} {:>6} {:>10} {:>10} {:>12} {:>10} {:>10} {:>8}",
        "hosts",
        "machines",
        "room",
        "prepare",
        "each host",
        "answers",
        "worst",
        "each zone",
        "answers"
    );
    for room in [
        Room::Vast,
        Room::Roomy,
        Room::Tight,
        Room::Odd,
        Room::Puzzle,
    ] {
        for (hosts, machines) in [
            (10, 100),
            (100, 2000),
            (250, 5000),
            (500, 10_000),
            (1000, 20_000),
        ] {
            measure(hosts, machines, room);
        }
    }
}
