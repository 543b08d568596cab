//! Where disks lie.

use std::collections::BTreeMap;

use guestcluster_planner::observed::{Demand, Property, Reach, Test, Volume};

use super::{Fault, World};

impl World {
    /// The volume under a claim can be reached from the hosts alone whose label is one of these values.
    /// Without it a volume says nothing of that.
    pub fn lay(&mut self, claim: &str, label: &str, values: &[&str]) {
        let demand = Demand {
            of: Property::Label(label.to_owned()),
            test: Test::In(values.iter().map(|value| (*value).to_owned()).collect()),
        };
        let terms = vec![vec![demand]];
        self.reaches.insert(claim.to_owned(), Reach { terms });
    }

    pub(super) fn volumes(&self) -> Option<BTreeMap<String, Volume>> {
        let claims = self.objects.claims.keys();
        let volumes = claims.map(|claim| {
            let volume = Volume {
                name: format!("pv-{claim}"),
                reach: self.reaches.get(claim).cloned(),
            };
            (claim.clone(), volume)
        });
        (!self.has(Fault::VolumesHidden)).then(|| volumes.collect())
    }
}
