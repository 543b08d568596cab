//! The certificates of control-plane machines: when they end, and which names they vouch for.

use std::collections::BTreeMap;
use std::time::Duration;

use guestcluster_pki::SubjectAltName;
use guestcluster_planner::Observed;
use guestcluster_planner::decide::endpoint::canonical;
use guestcluster_planner::observed::Certificate;
use guestcluster_shell::clock::{Instant, monotonic};
use k8s_openapi::jiff::Timestamp;

use super::Subject;
use super::probes::api_doors;
use crate::guest_cluster::Context;
use crate::memory::Memory;

/// How long a certificate is believed.
const LASTING: Duration = Duration::from_secs(3600);

impl Context {
    /// The certificates of control-plane machines: asked for once of each, and then seldom, since a
    /// person may renew them in place.
    pub(super) async fn certificates(
        &self,
        subject: &Subject<'_>,
        seen: &Observed,
        memory: &mut Memory,
    ) -> BTreeMap<String, Certificate> {
        let time = monotonic();
        let old = |asked: Instant| time.saturating_duration_since(asked) >= LASTING;
        memory
            .certificates
            .retain(|machine, (asked, _)| seen.vms.contains_key(machine) && !old(*asked));
        for (machine, door) in api_doors(subject.key, seen) {
            let is_ready = seen.vms.get(&machine).is_some_and(|vm| vm.ready);
            if !is_ready || memory.certificates.contains_key(&machine) {
                continue;
            }
            if let Ok(shown) = self.doors.certificate(&door).await
                && let Some(certificate) = read_certificate(&shown)
            {
                memory.certificates.insert(machine, (time, certificate));
            }
        }
        let known = memory.certificates.iter();
        known
            .map(|(machine, (_, certificate))| (machine.clone(), certificate.clone()))
            .collect()
    }
}

fn read_certificate(shown: &guestcluster_pki::Certificate) -> Option<Certificate> {
    let names = shown.subject_alt_names().iter().map(|name| match name {
        SubjectAltName::Dns(name) => canonical(name),
        SubjectAltName::Ip(address) => address.to_string(),
    });
    Some(Certificate {
        ends: Timestamp::from_second(shown.not_after()).ok()?,
        names: names.collect(),
    })
}
