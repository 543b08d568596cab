//! Coming from Cluster API: a Cluster with CAPK's machines as a GuestCluster, with no machine
//! restarted.
//!
//! This is the first half: it reads and says. From one reading ([`Seen`]) follow the inventory (which
//! VM is which Machine, Node and member of etcd), the verdict, and the plan. Nothing is written.
//!
//! # Guarantees
//! - What was not read is told, and stands against the adoption; it never passes for what is not
//!   there.
//! - References are followed, names are compared.
//! - A plan is made only of a Cluster that nothing stands against, and names every object that it
//!   would write.
//! - No value of a Secret is looked at.

mod guest;
pub mod inventory;
pub mod plan;
pub mod seen;
pub mod verdict;

use guestcluster_api::GuestCluster;

pub use inventory::Member;
pub use plan::Plan;
pub use seen::{Guest, Kind, Secret, Seen};
pub use verdict::{Finding, Reason, Verdict};

use crate::import::Unread;
use verdict::Case;

/// What one reading says of an adoption.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// All machines.
    pub inventory: Vec<Member>,
    /// Whether it can be adopted.
    pub verdict: Verdict,
    /// The GuestCluster that it would become, paused, if its objects say enough for one.
    pub guest_cluster: Option<GuestCluster>,
    /// What the GuestCluster cannot say of them.
    pub unread: Vec<Unread>,
    /// What would be done; none if something stands against it.
    pub plan: Option<Plan>,
}

/// Judges and plans from one reading. The Cluster itself has been found.
pub fn adopt(seen: &Seen) -> Adoption {
    let inventory = inventory::inventory(seen);
    let made = guest::make(seen);
    let verdict = verdict::judge(&Case {
        seen,
        members: &inventory,
        made: &made,
    });
    let wanted = made.wanted.ok().filter(|_| verdict.is_accepted());
    Adoption {
        plan: wanted.map(|wanted| plan::plan(seen, &inventory, &wanted)),
        inventory,
        verdict,
        guest_cluster: made.cluster,
        unread: made.unread,
    }
}
