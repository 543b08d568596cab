//! What can go wrong in a world: with machines and hosts, and with the operator's visit.

use super::VISIT;
use crate::world::{Mishap, Move, World};

/// Every fault and mishap that can come next.
pub(super) fn troubles(world: &World, lag: usize) -> Vec<Vec<Move>> {
    let mut all: Vec<Vec<Move>> = world
        .faults()
        .into_iter()
        .map(|fault| vec![fault])
        .collect();
    // The operator is away for long.
    all.extend(world.is_patient().then(|| vec![Move::Patience]));
    let boots = world.last_resorts().contains(&Move::LongBoot);
    all.extend(boots.then(|| vec![Move::LongBoot]));
    let actions = world.consider().0.actions.len();
    // Before its first action nothing has happened, and after its last one only status is missing.
    let mut mishaps: Vec<Mishap> = (1..actions).map(Mishap::Crash).collect();
    mishaps.extend((0..actions).map(Mishap::LostAnswer));
    mishaps.extend((actions > 0).then_some(Mishap::Refused(0)));
    mishaps.push(Mishap::StatusLost);
    all.extend(
        mishaps
            .into_iter()
            .map(|mishap| vec![Move::Reconcile(mishap)]),
    );
    let mut looked = world.clone();
    looked.take(&Move::Look);
    late(&looked, (lag, &[Move::Look]), &mut all);
    all
}

/// Visits that act on an earlier look, with up to `lag` moves of the world in between.
fn late(world: &World, (lag, way): (usize, &[Move]), all: &mut Vec<Vec<Move>>) {
    if lag == 0 {
        return;
    }
    let before = world.key();
    for step in world.moves().into_iter().filter(|step| *step != VISIT) {
        let mut world = world.clone();
        world.take(&step);
        if world.key() == before {
            continue;
        }
        let way: Vec<Move> = way.iter().cloned().chain([step]).collect();
        for mishap in [Mishap::StaleView, Mishap::OldAnswers, Mishap::Late] {
            let visit = Move::Reconcile(mishap);
            all.push(way.iter().cloned().chain([visit]).collect());
        }
        late(&world, (lag - 1, &way), all);
    }
}
