//! Moving a machine to another host while it runs.
//!
//! The MUSTs:
//! 1. A migration is begun for a machine that comes back anyway, after it has left the endpoint and
//!    the lead: it is no availability, and may fail.
//! 2. Each launcher Pod is tried once. A migration that fails, or takes too long, is no way off any
//!    more, and the machine is shut down as one that cannot migrate is.
//! 3. A machine that holds devices of its host is shut down, whatever KubeVirt says of it: what runs on
//!    them is not taken along.
//! 4. As long as two launcher Pods of a machine are there, nothing else of the guest goes off: a source
//!    that stays on runs on the same disks.

use k8s_openapi::jiff::SignedDuration;

use super::steps::{Wait, withdraw};
use crate::action::{Action, Kind};
use crate::decide::replace::delete;
use crate::decide::{Context, Draft, rollout};
use crate::machines::MachineView;
use crate::observed::{Instance, Launcher, Migratable, Migration, Progress};
use crate::render;
use crate::wanted::Pool;

/// How long a migration may take before the machine is shut down instead. KubeVirt itself gives up a
/// target without host after 5 minutes, one that does not start after 15, and by default a transfer
/// after 150 seconds for each GiB of memory.
pub(crate) const LIMIT: SignedDuration = SignedDuration::from_mins(20);

/// Moves a machine that can move while it runs. `Ok` says that it cannot, or cannot any more, and is
/// to be shut down.
pub(super) fn step(
    context: &Context<'_>,
    draft: &mut Draft,
    machine: &MachineView<'_>,
) -> Result<(), Wait> {
    let Some((instance, pod)) = source(machine) else {
        return Ok(());
    };
    match attempt(context, machine) {
        None => begin(context, draft, (machine, instance, pod)),
        Some(migration) => follow(context, draft, (machine, pod, migration)),
    }
}

/// A machine that can move, and the Pod in which it runs.
fn source<'a>(machine: &MachineView<'a>) -> Option<(&'a Instance, &'a Launcher)> {
    let instance = machine.instance.filter(|i| !i.meta.deleting)?;
    Some((instance, instance.launcher.as_ref()?))
}

/// The migration out of the Pod in which the machine runs.
fn attempt<'a>(context: &Context<'a>, machine: &MachineView<'_>) -> Option<&'a Migration> {
    let (_, pod) = source(machine)?;
    let name = render::migration_name(&machine.name, &pod.meta.uid);
    context.seen.migrations.get(&name)
}

/// It is being moved by us, and has not arrived.
pub(super) fn is_under_way(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    attempt(context, machine).is_some_and(|migration| migration.progress == Progress::Moves)
}

/// Pods of it are on two hosts, whoever moves it: it migrates, or what it left is not over yet.
pub(super) fn is_on_two_hosts(context: &Context<'_>, machine: &MachineView<'_>) -> bool {
    let all = context.seen.infra.holdings.iter();
    all.filter(|holding| holding.machine == machine.name)
        .count()
        > 1
}

fn begin(
    context: &Context<'_>,
    draft: &mut Draft,
    (machine, instance, pod): (&MachineView<'_>, &Instance, &Launcher),
) -> Result<(), Wait> {
    if is_on_two_hosts(context, machine) {
        return Err(Wait::For("somebody else moves it while it runs".to_owned()));
    }
    // What cannot end in time is not begun: it would cost the time all the same.
    let in_time = |pool: &&Pool| render::passes_within(context.wanted, pool, LIMIT);
    let pool = context.wanted.pool(&machine.pool).filter(in_time);
    let Some(pool) = pool.filter(|pool| !pool.has_devices()) else {
        return Ok(());
    };
    let can = instance.migratable == Migratable::Yes && !pod.migration_ruled_out;
    if !can || !rollout::has_target(context, machine) {
        return Ok(());
    }
    withdraw(context, draft, machine)?;
    if !draft.has_disruption() {
        draft.act(Action::Create(render::migration(
            context.wanted,
            pool,
            (&machine.name, &pod.meta.uid),
        )));
    }
    Err(Wait::Acting)
}

fn follow(
    context: &Context<'_>,
    draft: &mut Draft,
    (machine, pod, migration): (&MachineView<'_>, &Launcher, &Migration),
) -> Result<(), Wait> {
    match migration.progress {
        Progress::Failed => return Ok(()),
        Progress::Succeeded => {
            return Err(Wait::For("its new host is not known yet".to_owned()));
        }
        Progress::Moves => {}
    }
    if migration.meta.deleting {
        return Err(Wait::For("its migration is being called off".to_owned()));
    }
    if pod.migration_ruled_out {
        call_off(draft, machine, migration);
        return Err(Wait::Acting);
    }
    let end = migration.meta.created.map(|begun| begun + LIMIT);
    let Some(end) = end.filter(|end| context.now < *end) else {
        draft.act(Action::RuleOutMigration {
            machine: machine.name.clone(),
            pod: pod.clone(),
        });
        return Err(Wait::Acting);
    };
    draft.look_again(end, "a migration's time limit");
    Err(Wait::For(
        "it moves to another host while it runs".to_owned(),
    ))
}

/// Ends a migration of ours whose machine does not leave after all.
pub(super) fn stay(context: &Context<'_>, draft: &mut Draft, machine: &MachineView<'_>) {
    let moves = |migration: &&Migration| migration.progress == Progress::Moves;
    if let Some(migration) = attempt(context, machine).filter(moves) {
        call_off(draft, machine, migration);
    }
}

fn call_off(draft: &mut Draft, machine: &MachineView<'_>, migration: &Migration) {
    let why = format!("{} does not move while it runs after all", machine.name);
    let name = &migration.name;
    delete(draft, (Kind::Migration, name, &migration.meta), &why);
}
