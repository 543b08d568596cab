//! Whether CAPK's own controller manager runs: two providers of one kind would fight over every object.
//!
//! It is told by its Lease, which a running manager renews every few seconds, wherever and however it is
//! installed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use guestcluster_shell::clock::now;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tracing::{info, warn};

/// Name of the Lease of CAPK's controller manager.
const LEASE: &str = "controller-leader-election-capk";
/// How often it is looked for. The Lease of one that starts is ours to see within two of these.
const LOOK: Duration = Duration::from_secs(10);
/// How long a Lease counts that says nothing of its duration.
const DURATION: i32 = 15;

/// What is known of CAPK's own controller manager. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Rival(Arc<Mutex<State>>);

#[derive(Clone, Debug, Default)]
enum State {
    /// It was not looked for yet, or that failed.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// It runs; the text says where.
    Runs(String),
}

impl Rival {
    /// Why nothing may be done, if so. What is not known counts as a rival.
    pub fn obstacle(&self) -> Option<String> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Unknown => {
                Some("it is not known yet whether CAPK's own controller runs".to_owned())
            }
            State::Absent => None,
            State::Runs(place) => Some(format!(
                "CAPK's own controller manager runs ({place}): scale it to 0 before this operator takes \
                 its place"
            )),
        }
    }

    /// Looks for it for ever.
    pub async fn watch(self, client: Client) {
        let api = Api::<Lease>::all(client);
        let params = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        loop {
            match api.list(&params).await {
                Ok(leases) => self.set(leases.iter().find_map(|lease| held(lease, now()))),
                Err(error) => warn!(%error, "cannot look for CAPK's own controller"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn set(&self, place: Option<String>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*state, &place) {
            (State::Runs(_), None) => info!("CAPK's own controller manager is gone"),
            (State::Unknown | State::Absent, Some(place)) => {
                warn!(
                    place,
                    "CAPK's own controller manager runs: nothing is done beside it"
                );
            }
            _ => {}
        }
        *state = place.map_or(State::Absent, State::Runs);
    }
}

/// Where and by whom a Lease is held, if it is held now.
fn held(lease: &Lease, now: Timestamp) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let holder = spec
        .holder_identity
        .as_deref()
        .filter(|holder| !holder.is_empty())?;
    let renewed = spec.renew_time.as_ref()?.0;
    let seconds = spec.lease_duration_seconds.unwrap_or(DURATION);
    let is_held = now < renewed + SignedDuration::from_secs(seconds.into());
    is_held.then(|| {
        format!(
            "Lease {}/{LEASE} of {holder}",
            lease.namespace().unwrap_or_default()
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_counts_while_it_is_renewed_and_held() {
        let lease = |holder: &str| -> Lease {
            serde_json::from_value(json!({
                "metadata": { "name": LEASE, "namespace": "capk-system" },
                "spec": {
                    "holderIdentity": holder, "leaseDurationSeconds": 15,
                    "renewTime": "2026-12-01T00:00:00.000000Z",
                },
            }))
            .unwrap()
        };
        let at = |time: &str| time.parse::<Timestamp>().unwrap();
        let place = held(&lease("a_1"), at("2026-12-01T00:00:14Z")).unwrap();
        assert!(
            place.contains("capk-system") && place.contains("a_1"),
            "{place}"
        );
        assert_eq!(held(&lease("a_1"), at("2026-12-01T00:00:16Z")), None);
        assert_eq!(held(&lease(""), at("2026-12-01T00:00:01Z")), None);
    }

    #[test]
    fn nothing_is_done_before_it_is_known_that_there_is_no_rival() {
        let rival = Rival::default();
        assert!(rival.obstacle().is_some());
        rival.set(Some("there".to_owned()));
        assert!(rival.obstacle().is_some_and(|why| why.contains("there")));
        rival.set(None);
        assert_eq!(rival.obstacle(), None);
    }
}
