//! What the loss of each host would mean, for all guests together: they compete for the same room, so
//! that none can be asked alone.
//!
//! # Guarantees
//! - It is worked out beside the visits, in one place, and not again unless something that it depends
//!   on has changed: guests, hosts, or what Pods hold on them.
//! - It takes a tenth of one CPU at most, however much changes.
//! - A guest is woken only if something else is to be said of it than before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guestcluster_capacity::{Host, Usage};
use guestcluster_planner::Wanted;
use guestcluster_planner::foresight::{Answers, Fleet, FleetView, Foresight};
use guestcluster_planner::wanted::Settings;
use guestcluster_shell::NamespacedName;
use guestcluster_shell::clock::monotonic;
use guestcluster_shell::queue::Queue;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, error};

use crate::guest_cluster::{holdings, hosts, usage};
use crate::stores::Stores;

/// How long changes are gathered.
const GATHER: Duration = Duration::from_millis(500);
/// A pause is so many times as long as the work before it.
const REST: u32 = 9;

/// What was last worked out. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    changed: Notify,
    known: Mutex<Option<Known>>,
}

/// A world, and what was answered of it.
#[derive(Clone, Debug)]
struct Known {
    /// The world was last found to be so.
    taken: Instant,
    world: Arc<World>,
    answers: Arc<Answers>,
}

/// All that answers depend on.
#[derive(Debug, PartialEq)]
struct World {
    fleet: Arc<Fleet>,
    hosts: Vec<Host>,
    usage: Usage,
}

impl World {
    fn of(stores: &Stores, settings: &Settings) -> Self {
        let mut fleet = Fleet::default();
        for cluster in stores.clusters.all() {
            let stays = cluster.metadata.deletion_timestamp.is_none();
            // What cannot be read has no machines that we would move.
            let Ok(wanted) = Wanted::parse(&cluster, settings) else {
                continue;
            };
            if let Some(status) = cluster.status.as_ref().filter(|_| stays) {
                let key = NamespacedName::of(cluster.as_ref());
                fleet.add(
                    &wanted,
                    status,
                    &holdings(stores, &key, &wanted.identity.uid),
                );
            }
        }
        Self {
            fleet: Arc::new(fleet),
            hosts: hosts(stores),
            usage: usage(stores),
        }
    }
}

impl Forecast {
    /// Something that answers depend on may have changed.
    pub fn stir(&self) {
        self.shared.changed.notify_one();
    }

    /// Whether all machines that must have a home would find one without this host, as the stores
    /// showed it at this moment or later. Not known yet until somebody has looked since.
    pub fn without(&self, host: &str, since: Instant) -> Foresight {
        let known = self.known().clone().filter(|known| known.taken >= since);
        if known.is_none() {
            self.stir();
        }
        let answer = known.and_then(|known| known.answers.hosts.get(host).cloned());
        answer.unwrap_or_default()
    }

    /// How many hosts there are whose loss would leave machines without a host; `None` as long as it
    /// has not been worked out.
    pub fn short(&self) -> Option<usize> {
        let known = self.known().clone();
        known.map(|known| known.answers.short())
    }

    /// What a guest sees of it.
    pub fn view(&self, guest: &NamespacedName) -> Option<FleetView> {
        let known = self.known().clone()?;
        Some(FleetView {
            outlook: known.answers.guests.get(&guest.to_string()).cloned(),
            fleet: Arc::clone(&known.world.fleet),
        })
    }

    /// Works it out whenever something has changed, for ever. The stores must be full.
    pub async fn run(self, stores: Stores, settings: Settings, queue: Queue<NamespacedName>) {
        self.stir();
        loop {
            self.shared.changed.notified().await;
            tokio::time::sleep(GATHER).await;
            let begun = monotonic();
            let world = World::of(&stores, &settings);
            let former = self.known().clone();
            match former {
                Some(former) if *former.world == world => self.set(Known {
                    taken: begun,
                    ..former
                }),
                former => {
                    self.work_out((world, begun), former.as_ref(), &queue).await;
                }
            }
            let took = monotonic().saturating_duration_since(begun);
            tokio::time::sleep(took * REST).await;
        }
    }

    fn set(&self, known: Known) {
        *self.known() = Some(known);
    }

    async fn work_out(
        &self,
        (world, taken): (World, Instant),
        former: Option<&Known>,
        queue: &Queue<NamespacedName>,
    ) {
        let ask = move || {
            let answers = world.fleet.ask(&world.hosts, &world.usage);
            (world, answers)
        };
        let (world, answers) = match tokio::task::spawn_blocking(ask).await {
            Ok(answered) => answered,
            Err(error) => {
                error!(%error, "what the loss of hosts would mean is not known");
                return;
            }
        };
        let answers = match former {
            Some(former) => answers.in_the_words_of(&former.answers),
            None => answers,
        };
        let news = news(former.map(|former| &*former.answers), &answers);
        debug!(short = answers.short(), guests = news.len(), "forecast");
        self.set(Known {
            taken,
            world: Arc::new(world),
            answers: Arc::new(answers),
        });
        for guest in news {
            queue.add(guest);
        }
    }

    /// Each change is one assignment, so a panic elsewhere leaves the value whole.
    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        let known = self.shared.known.lock();
        known.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guests of which something else is to be said than before.
fn news(former: Option<&Answers>, answers: &Answers) -> Vec<NamespacedName> {
    let before = |guest: &String| former.and_then(|former| former.guests.get(guest));
    let news = answers.guests.iter();
    let news = news.filter(|(guest, outlook)| before(guest) != Some(*outlook));
    news.filter_map(|(guest, _)| guest.split_once('/'))
        .map(|(namespace, name)| NamespacedName::new(namespace, name))
        .collect()
}

#[cfg(test)]
mod tests {
    use guestcluster_planner::foresight::{Loss, Outlook};

    use super::*;

    fn answers(guests: [(&str, &[&str]); 2]) -> Answers {
        let loss = |host: &&str| ((*host).to_owned(), Loss::default());
        let outlook = |hosts: &[&str]| Outlook {
            losses: hosts.iter().map(loss).collect(),
            ..Outlook::default()
        };
        let guests = guests.map(|(guest, hosts)| (guest.to_owned(), outlook(hosts)));
        Answers {
            guests: guests.into(),
            ..Answers::default()
        }
    }

    #[test]
    fn a_guest_is_woken_only_if_its_own_verdict_changed() {
        let before = answers([("a/one", &[]), ("b/two", &["host-1"])]);
        let after = answers([("a/one", &["host-2"]), ("b/two", &["host-1"])]);
        assert_eq!(news(Some(&before), &before), []);
        assert_eq!(
            news(Some(&before), &after),
            [NamespacedName::new("a", "one")]
        );
        assert_eq!(news(None, &after).len(), 2);
    }

    #[test]
    fn what_has_not_been_asked_is_not_known() {
        let forecast = Forecast::default();
        assert_eq!(forecast.without("host-1", monotonic()), Foresight::NotAsked);
        assert_eq!(forecast.short(), None);
        assert!(forecast.view(&NamespacedName::new("a", "one")).is_none());
    }

    #[test]
    fn an_answer_from_before_the_question_does_not_count() {
        let forecast = Forecast::default();
        let hosts = [("host-1".to_owned(), Foresight::Fits)];
        let (taken, later) = (monotonic(), monotonic() + Duration::from_secs(1));
        let known = Known {
            taken,
            world: Arc::new(World {
                fleet: Arc::default(),
                hosts: Vec::new(),
                usage: Usage::default(),
            }),
            answers: Arc::new(Answers {
                hosts: hosts.into(),
                ..Answers::default()
            }),
        };
        forecast.set(known.clone());
        assert_eq!(forecast.without("host-1", taken), Foresight::Fits);
        assert_eq!(forecast.without("host-1", later), Foresight::NotAsked);
        forecast.set(Known {
            taken: later,
            ..known
        });
        assert_eq!(forecast.without("host-1", later), Foresight::Fits);
    }
}
