//! Which hosts take a machine, against the filters of the real scheduler, host by host.
//!
//! Runs where `GUESTCLUSTER_TOOLS` names a folder with the programs. Each host of each world is asked
//! by a launcher Pod of its own that may go nowhere else, so that no Pod takes another's room, and all
//! of them are there before the scheduler starts.
//!
//! One difference is meant: a host that is not ready takes no machine, even one that tolerates the
//! taints by which the scheduler would know.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod objects;
mod residents;
mod worlds;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use guestcluster_capacity::{Host, Requests, Usage};
use guestcluster_placement::{
    Fleet, Machine, Needs, Outcome, Refusal, Requirements, WhatIf, fit, refusal,
};
use guestcluster_real::Server;
use worlds::{Metal, World};

/// With this one every reason comes up.
const SEED: u64 = 5;
const WORLDS: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_takes_a_machine_if_the_real_scheduler_says_so() {
    let Some(tools) = guestcluster_real::tools() else {
        eprintln!("skipped: GUESTCLUSTER_TOOLS names no folder with the programs");
        return;
    };
    let worlds = worlds::random(SEED, WORLDS);
    let mut server = Server::start(&tools, Path::new(env!("CARGO_TARGET_TMPDIR"))).await;
    objects::make(&server.admin(), &worlds).await;
    server.run_scheduler();
    let verdicts = objects::verdicts(&server.admin(), &worlds).await;
    let differences = worlds.iter().flat_map(|world| {
        let metals = world.metals.iter();
        metals.filter_map(|metal| difference(world, metal, &verdicts[&metal.host.name]))
    });
    let differences = differences.collect::<Vec<_>>();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Without the programs: worlds in which everything fits, or nothing, would prove little.
#[test]
fn the_worlds_hold_every_reason_to_refuse() {
    let mut reasons = BTreeMap::<_, usize>::new();
    for world in worlds::random(SEED, WORLDS) {
        for metal in &world.metals {
            let reason = match judge(&world, metal) {
                Ok(()) => "takes it".to_owned(),
                Err(Refusal::Full { resource, .. }) => format!("full of {resource}"),
                Err(refusal) => kind(&refusal).to_owned(),
            };
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let expected = [
        "takes it",
        "not ready",
        "cordoned",
        "no VMs",
        "label",
        "taint",
        "too small",
        "carries",
        "full of cpu",
        "full of memory",
        "full of ephemeral-storage",
        "full of pods",
        "full of example.com/gpu",
        "full of hugepages-2Mi",
    ];
    let found = reasons.keys().map(String::as_str).collect::<BTreeSet<_>>();
    assert!(found.is_superset(&expected.into()), "{reasons:?}");
    assert!(reasons["takes it"] > 50, "{reasons:?}");
}

fn kind(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotReady => "not ready",
        Refusal::Cordoned => "cordoned",
        Refusal::NotForVms(_) => "no VMs",
        Refusal::Label(_) => "label",
        Refusal::Taint(_) => "taint",
        Refusal::TooSmall { .. } => "too small",
        Refusal::Carries(_) => "carries",
        Refusal::Full { .. } | Refusal::KeptFor(_) | Refusal::TenantCap { .. } => "others",
    }
}

fn difference(world: &World, metal: &Metal, verdict: &Result<(), String>) -> Option<String> {
    let ours = judge(world, metal);
    let place = &metal.host.name;
    if ours.is_ok() != what_if(world, metal) {
        return Some(format!("{place}: fit and what-if differ: {ours:?}"));
    }
    let is_meant = ours == Err(Refusal::NotReady) && {
        let ready = Host {
            ready: true,
            ..metal.host.clone()
        };
        refusal(&ready, &sizeless(&world.machine.requirements)).is_none()
    };
    let differs = ours.is_ok() != verdict.is_ok() && !is_meant;
    differs.then(|| {
        format!(
            "{place}: we say {ours:?}, the scheduler {verdict:?}: {:?} {:?}",
            world.machine, metal.host
        )
    })
}

fn sizeless(needs: &Requirements) -> Requirements {
    Requirements {
        node_selector: needs.node_selector.clone(),
        tolerations: needs.tolerations.clone(),
        ..Requirements::default()
    }
}

fn usage(metal: &Metal) -> Usage {
    let mut usage = Usage::default();
    for resident in metal.residents.iter().filter(|resident| !resident.over) {
        usage.hold(&metal.host.name, &resident.shape.requests());
    }
    usage
}

fn judge(world: &World, metal: &Metal) -> Result<(), Refusal> {
    let free: Requests = usage(metal).free(&metal.host);
    let apart_from = if world.machine.apart {
        metal.kin().collect()
    } else {
        Vec::new()
    };
    let needs = Needs {
        requirements: &world.machine.requirements,
        requests: &world.machine.launcher.requests(),
        apart_from: &apart_from,
    };
    fit(&metal.host, &needs, &free)
}

/// Whether a world of this host alone has a home for the machine.
fn what_if(world: &World, metal: &Metal) -> bool {
    let requests = world.machine.launcher.requests();
    let kin = metal.kin().collect::<Vec<_>>();
    let apart = world.machine.apart.then_some("guest");
    let machine = |name, hosts| Machine {
        name,
        hosts,
        requests: &requests,
        requirements: &world.machine.requirements,
        apart,
        tenant: None,
    };
    let mut machines = vec![machine("probe", Vec::new())];
    machines.extend(kin.iter().map(|kin| machine(&kin.machine, vec![&kin.host])));
    let fleet = Fleet {
        hosts: std::slice::from_ref(&metal.host),
        usage: &usage(metal),
        machines: &machines,
        caps: &BTreeMap::new(),
    };
    let outcome = WhatIf::new(&fleet).without(&[]);
    matches!(outcome, Ok(Outcome::Fits { .. }))
}
