//! Amounts of several resources at once: what a Pod requests, what a host has free.

use std::borrow::Cow;

use crate::Quantity;

/// Resource names that Kubernetes gives a meaning of its own.
pub mod resource {
    /// CPUs.
    pub const CPU: &str = "cpu";
    /// Bytes of memory.
    pub const MEMORY: &str = "memory";
    /// Bytes on the disk of the host's kubelet.
    pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
    /// Pods: a kubelet takes no more than it says, whatever they request. The scheduler counts
    /// them like a resource of which every Pod requests one.
    pub const PODS: &str = "pods";
    /// What precedes the page size in the name of huge pages, which are counted in bytes.
    pub const HUGEPAGES: &str = "hugepages-";
}

/// Amounts by resource name: `cpu` in CPUs, `memory` in bytes, `hugepages-2Mi`, extended resources
/// such as `nvidia.com/gpu`, and [`pods`](resource::PODS). What is not named is zero.
///
/// A sorted list: Pods are many, and each requests three or four resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(Vec<(Cow<'static, str>, Quantity)>);

impl Requests {
    /// None of anything.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The same with `amount` of `resource`, instead of what there was of it.
    #[must_use]
    pub fn with(mut self, resource: &str, amount: Quantity) -> Self {
        *self.entry(resource) = amount;
        self
    }

    /// The amount of a resource.
    pub fn of(&self, resource: &str) -> Quantity {
        self.find(resource)
            .map_or_else(|_| Quantity::default(), |at| self.0[at].1)
    }

    /// All that are named, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    /// Adds what `other` names.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            *self.entry(name) += *amount;
        }
    }

    /// Takes away what `other` names; what is not there becomes negative.
    pub fn take(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            *self.entry(name) -= *amount;
        }
    }

    /// Raises each amount to that of `other`, where that is larger.
    pub fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let own = self.entry(name);
            *own = (*own).max(*amount);
        }
    }

    fn find(&self, resource: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| (**name).cmp(resource))
    }

    fn entry(&mut self, resource: &str) -> &mut Quantity {
        let at = self.find(resource).unwrap_or_else(|at| {
            self.0.insert(at, (name(resource), Quantity::default()));
            at
        });
        &mut self.0[at].1
    }
}

impl<N: AsRef<str>> FromIterator<(N, Quantity)> for Requests {
    /// Amounts of a resource that is named twice are added.
    fn from_iter<I: IntoIterator<Item = (N, Quantity)>>(amounts: I) -> Self {
        let mut requests = Self::new();
        for (name, amount) in amounts {
            *requests.entry(name.as_ref()) += amount;
        }
        requests.0.shrink_to_fit();
        requests
    }
}

/// Names that nearly every Pod has are kept once for all.
fn name(resource: &str) -> Cow<'static, str> {
    use resource::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
    let known = [CPU, MEMORY, PODS, EPHEMERAL_STORAGE];
    known
        .into_iter()
        .find(|known| *known == resource)
        .map_or_else(|| Cow::Owned(resource.to_owned()), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(cpu: u64, gpus: u64) -> Requests {
        Requests::new()
            .with("nvidia.com/gpu", Quantity::units(gpus))
            .with("cpu", Quantity::units(cpu))
    }

    #[test]
    fn what_is_not_named_is_zero() {
        assert_eq!(Requests::new().of("cpu"), Quantity::default());
        assert_eq!(requests(4, 1).of("memory"), Quantity::default());
    }

    #[test]
    fn sums_and_differences_go_resource_by_resource() {
        let mut sum = requests(4, 1);
        sum.add(&Requests::new().with("memory", Quantity::units(7)));
        sum.add(&requests(2, 0));
        assert_eq!(sum.of("cpu"), Quantity::units(6));
        assert_eq!(sum.of("memory"), Quantity::units(7));
        sum.take(&requests(8, 1));
        assert_eq!(sum.of("cpu").milli(), -2000);
        assert_eq!(sum.of("nvidia.com/gpu"), Quantity::default());
    }

    #[test]
    fn the_larger_of_two_is_taken_resource_by_resource() {
        let mut larger = requests(4, 0);
        larger.raise(&requests(2, 3));
        assert_eq!(larger, requests(4, 3));
    }

    #[test]
    fn names_come_in_order_and_once() {
        let twice = [("b", Quantity::units(1)), ("a", Quantity::units(2))];
        let requests = twice.into_iter().chain(twice).collect::<Requests>();
        let names = requests.iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(requests.of("a"), Quantity::units(4));
    }
}
