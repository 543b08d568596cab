//! An adoption as a person reads it: the machines, what stands against it, what to know, the steps.

use std::fmt::{Display, Write as _};

use guestcluster_bridge::adopt::plan::Step;
use guestcluster_bridge::adopt::{Adoption, Member, Seen};

use crate::aligned::aligned;

type Column = (&'static str, fn(&Member) -> String);

const COLUMNS: [Column; 8] = [
    ("MACHINE", |one| one.machine.clone()),
    ("ROLE", |one| one.role.to_owned()),
    ("POOL", |one| or_none(one.pool.as_ref())),
    ("VM", |one| or_none(one.vm.as_ref())),
    ("VMI", |one| or_none(one.instance.as_ref())),
    ("HOST", |one| or_none(one.host.as_ref())),
    ("NODE", |one| or_none(one.node.as_ref())),
    ("ETCD", etcd),
];

fn or_none(text: Option<&String>) -> String {
    text.cloned().unwrap_or_else(|| "-".to_owned())
}

/// Workers have no member, whether the guest answered or not.
fn etcd(one: &Member) -> String {
    if one.is_control_plane() && !one.etcd_known {
        return "?".to_owned();
    }
    or_none(one.etcd.as_ref())
}

/// The whole text.
pub fn text(seen: &Seen, adoption: &Adoption) -> String {
    let heading = COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let rows = adoption.inventory.iter();
    let rows = rows.map(|one| COLUMNS.iter().map(|(_, cell)| cell(one)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let mut text = aligned(&lines);
    let verdict = &adoption.verdict;
    let (namespace, name) = (&seen.namespace, &seen.name);
    let sentence = match verdict.reasons.len() {
        0 => format!("Cluster {namespace}/{name} can be adopted."),
        count => format!("Cluster {namespace}/{name} cannot be adopted. Against it ({count}):"),
    };
    let _ = writeln!(text, "\n{sentence}");
    points(&mut text, &verdict.reasons);
    section(&mut text, "To know:", &verdict.warnings);
    if adoption.guest_cluster.is_some() {
        let heading = "What the GuestCluster (--guest-cluster) cannot say, and what machines made \
                       later are without:";
        section(&mut text, heading, &adoption.unread);
    }
    if let Some(plan) = &adoption.plan {
        text.push_str("\nSteps, of which this version does none:\n");
        for (number, one) in (1..).zip(&plan.steps) {
            step(&mut text, number, one);
        }
        section(&mut text, "From then on:", &plan.afterwards);
    }
    text
}

fn step(text: &mut String, number: usize, step: &Step) {
    let _ = writeln!(text, "{number}. {}: {}.", step.title, step.why);
    for change in &step.changes {
        let _ = writeln!(text, "     {change}");
    }
    let _ = match &step.undo {
        Some(undo) => writeln!(text, "   Undo: {undo}."),
        None => writeln!(
            text,
            "   This cannot be undone, but from the copy of step 2."
        ),
    };
}

fn section(text: &mut String, heading: &str, list: &[impl Display]) {
    if !list.is_empty() {
        let _ = writeln!(text, "\n{heading}");
        points(text, list);
    }
}

fn points(text: &mut String, list: &[impl Display]) {
    for one in list {
        let _ = writeln!(text, "  - {one}");
    }
}
