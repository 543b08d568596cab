//! The last console lines of machines whose first boot is not over: the only word of a machine
//! that never becomes a Node.

use std::collections::BTreeMap;
use std::time::Duration;

use guestcluster_api::names;
use guestcluster_planner::Observed;
use guestcluster_planner::observed::Instance;
use guestcluster_shell::clock::{Instant, monotonic};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, ResourceExt};
use tracing::debug;

use super::{Subject, launchers};
use crate::guest_cluster::Context;
use crate::memory::{Console, Memory};

/// Container of a launcher Pod that writes the serial console to its log.
const CONTAINER: &str = "guest-console-log";
/// How many lines are read.
const LINES: i64 = 25;
/// How long a machine must have run before its console is worth reading.
const GRACE: Duration = Duration::from_secs(15);
/// How often a console is read at most.
const PAUSE: Duration = Duration::from_secs(10);

impl Context {
    /// Consoles by machine. A console that cannot be read keeps the lines it had.
    pub(super) async fn read_consoles(
        &self,
        subject: &Subject<'_>,
        seen: &Observed,
        memory: &mut Memory,
    ) -> BTreeMap<String, Vec<String>> {
        let time = monotonic();
        let booting: BTreeMap<&String, &Instance> = seen
            .instances
            .iter()
            .filter(|(name, i)| is_booting(seen, name, i))
            .collect();
        memory.consoles.retain(|machine, console| {
            booting
                .get(machine)
                .is_some_and(|instance| instance.meta.uid == console.instance)
        });
        for (machine, instance) in &booting {
            memory
                .consoles
                .entry((*machine).clone())
                .or_insert_with(|| Console {
                    instance: instance.meta.uid.clone(),
                    running_since: time,
                    read: None,
                    lines: Vec::new(),
                });
        }
        if memory.consoles.is_empty() {
            return BTreeMap::new();
        }
        let pods = launchers(&self.stores, subject.key, &subject.wanted.identity.uid);
        let due = memory.consoles.iter_mut().filter_map(|(machine, console)| {
            Some((pods.get(machine)?.last()?.name_any(), console)).filter(|(_, c)| c.is_due(time))
        });
        // All at once: a host that is away lets each of them wait.
        let reads = due.map(|(pod, console)| async move {
            console.read = Some(time);
            if let Some(lines) = self.read_console(&subject.key.namespace, &pod).await {
                console.lines = lines;
            }
        });
        futures::future::join_all(reads).await;
        let lines =
            |(machine, console): (&String, &Console)| (machine.clone(), console.lines.clone());
        memory.consoles.iter().map(lines).collect()
    }

    async fn read_console(&self, namespace: &str, pod: &str) -> Option<Vec<String>> {
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let params = LogParams {
            container: Some(CONTAINER.to_owned()),
            tail_lines: Some(LINES),
            ..LogParams::default()
        };
        let call = format!("read the console of {pod}");
        match self.guest_calls.within(call, api.logs(pod, &params)).await {
            Ok(log) => Some(log.lines().map(|line| line.trim_end().to_owned()).collect()),
            Err(error) => {
                debug!(%error, "console not read");
                None
            }
        }
    }
}

impl Console {
    fn is_due(&self, time: Instant) -> bool {
        let since = |then: Instant| time.saturating_duration_since(then);
        since(self.running_since) >= GRACE && self.read.is_none_or(|read| since(read) >= PAUSE)
    }
}

/// It runs, and its first-boot document still carries what a boot needs.
fn is_booting(seen: &Observed, machine: &str, instance: &Instance) -> bool {
    let document = seen.secrets.get(&names::user_data_secret(machine));
    instance.phase == "Running" && document.is_some_and(|secret| !secret.scrubbed)
}

#[cfg(test)]
mod tests {
    use guestcluster_planner::observed::Secret;

    use super::*;

    #[test]
    fn a_boot_is_over_when_its_document_is_scrubbed() {
        let running = Instance {
            phase: "Running".to_owned(),
            ..Instance::default()
        };
        let mut seen = Observed::default();
        assert!(!is_booting(&seen, "a-cp-1", &running), "it has no document");
        seen.secrets
            .insert("a-cp-1-user-data".to_owned(), Secret::default());
        assert!(is_booting(&seen, "a-cp-1", &running));
        let scheduling = Instance {
            phase: "Scheduling".to_owned(),
            ..Instance::default()
        };
        assert!(!is_booting(&seen, "a-cp-1", &scheduling));
        let scrubbed = Secret {
            scrubbed: true,
            ..Secret::default()
        };
        seen.secrets.insert("a-cp-1-user-data".to_owned(), scrubbed);
        assert!(!is_booting(&seen, "a-cp-1", &running));
    }
}
