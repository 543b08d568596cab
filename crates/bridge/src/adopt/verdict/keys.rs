//! What the guest cannot be kept without: its authorities with their keys, its kubeconfig, and what
//! its machines boot from. That they are there is looked at, what they say is not.

use super::{Case, Reason, Verdict};
use crate::adopt::guest;

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    if case.seen.secrets.known().is_none() {
        return;
    }
    for (name, keys) in guest::secrets(&case.seen.name) {
        let found = case.seen.secret(&name);
        let has = |key: &&&str| found.is_some_and(|secret| secret.data.contains(**key));
        let missing: Vec<_> = keys.iter().filter(|key| !has(key)).copied().collect();
        if !missing.is_empty() {
            verdict.say(
                Reason::KeysMissing,
                format!("Secret {name}"),
                format!("it has no {}", missing.join(" and no ")),
                "put it there: without it no machine can join and no certificate be renewed",
            );
        }
    }
    for member in case.members {
        let Some(name) = &member.user_data else {
            continue;
        };
        if case.seen.secret(name).is_none() {
            verdict.say(
                Reason::UserDataMissing,
                format!("Secret {name}"),
                format!(
                    "Machine {} boots from it, and it is not there",
                    member.machine
                ),
                "replace the machine through its pool: it would not start again",
            );
        }
    }
}
