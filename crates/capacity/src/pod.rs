//! What a Pod requests of its host, counted as the scheduler counts it.

use crate::requests::resource::{CPU, PODS};
use crate::{Quantity, Requests};

/// The parts of a Pod that request something.
///
/// Source of the rule: `PodRequests` in `k8s.io/component-helpers/resource` (v0.36), and KEP 753
/// for containers that start before the others and stay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodShape {
    /// Requests of its containers.
    pub containers: Vec<Requests>,
    /// Requests of its init containers, in their order.
    pub init: Vec<InitContainer>,
    /// What the Pod requests as a whole; it replaces the sum of its containers, resource by
    /// resource.
    pub whole: Requests,
    /// What its runtime needs besides.
    pub overhead: Requests,
}

/// An init container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InitContainer {
    /// Its requests.
    pub requests: Requests,
    /// It stays (`restartPolicy: Always`), and the next one starts beside it.
    pub stays: bool,
}

impl PodShape {
    /// The sum: containers and init containers that stay, or whatever the greediest moment of
    /// initialisation asks for if that is more; and one of [`pods`](PODS). Of all but CPUs a Pod
    /// takes whole units: half a byte, which the API server lets it ask for, counts as one.
    pub fn requests(&self) -> Requests {
        let mut sum = Requests::new();
        for container in &self.containers {
            sum.add(container);
        }
        let mut staying = Requests::new();
        let mut peak = Requests::new();
        for container in &self.init {
            let mut moment = staying.clone();
            moment.add(&container.requests);
            peak.raise(&moment);
            if container.stays {
                sum.add(&container.requests);
                staying = moment;
            }
        }
        sum.raise(&peak);
        for (resource, amount) in self.whole.iter() {
            sum = sum.with(resource, amount);
        }
        sum.add(&self.overhead);
        let whole = |(name, amount): (_, Quantity)| {
            let is_cpu = name == CPU;
            (name, if is_cpu { amount } else { amount.whole() })
        };
        let counted = sum.iter().map(whole).collect::<Requests>();
        counted.with(PODS, Quantity::units(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(milli: i128) -> Requests {
        Requests::new().with("cpu", Quantity::from_milli(milli))
    }

    fn init(milli: i128, stays: bool) -> InitContainer {
        InitContainer {
            requests: cpu(milli),
            stays,
        }
    }

    fn sum(shape: &PodShape) -> i128 {
        shape.requests().of("cpu").milli()
    }

    #[test]
    fn containers_and_what_stays_beside_them_add_up() {
        let shape = PodShape {
            containers: vec![cpu(4000), cpu(10)],
            init: vec![init(15, true)],
            ..PodShape::default()
        };
        assert_eq!(sum(&shape), 4025);
    }

    #[test]
    fn the_greediest_moment_of_initialisation_counts_if_it_is_more() {
        let mut shape = PodShape {
            containers: vec![cpu(100)],
            init: vec![init(500, false), init(15, true), init(300, false)],
            ..PodShape::default()
        };
        assert_eq!(sum(&shape), 500);
        shape.init.push(init(600, false));
        assert_eq!(sum(&shape), 615, "beside the one that stays");
    }

    #[test]
    fn what_the_pod_requests_as_a_whole_replaces_the_sum() {
        let shape = PodShape {
            containers: vec![cpu(100).with("memory", Quantity::units(7))],
            whole: cpu(250),
            overhead: cpu(5),
            ..PodShape::default()
        };
        assert_eq!(sum(&shape), 255);
        assert_eq!(shape.requests().of("memory"), Quantity::units(7));
    }

    #[test]
    fn parts_of_a_byte_count_as_a_whole_one_for_each_pod() {
        let half = cpu(1).with("memory", Quantity::from_milli(500));
        let shape = |containers| PodShape {
            containers,
            ..PodShape::default()
        };
        let one = shape(vec![half.clone()]).requests();
        assert_eq!(one.of("memory"), Quantity::units(1));
        assert_eq!(one.of("cpu"), Quantity::from_milli(1));
        let two = shape(vec![half.clone(), half]).requests();
        assert_eq!(two.of("memory"), Quantity::units(1), "halves of one Pod");
    }

    #[test]
    fn every_pod_takes_a_place_even_if_it_requests_nothing() {
        let requests = PodShape::default().requests();
        assert_eq!(
            requests.iter().collect::<Vec<_>>(),
            [("pods", Quantity::units(1))]
        );
    }
}
