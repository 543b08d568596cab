//! What a Node offers of what its machine has.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::requests::resource::{EPHEMERAL_STORAGE, HUGEPAGES, MEMORY};
use crate::{Quantity, Requests};

/// What must stay free, or Pods are evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// So much, in bytes.
    Amount(Quantity),
    /// So many percent of what there is.
    Percent(f32),
}

impl Threshold {
    /// Of so much. Percents are worked out in the kubelet's own floating point numbers (a single, then
    /// a double), since what they give differs from the exact share by some bytes.
    fn of(self, capacity: Quantity) -> Quantity {
        match self {
            Self::Amount(amount) => amount,
            Self::Percent(percent) => {
                #[allow(
                    clippy::cast_precision_loss,
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the kubelet's own arithmetic"
                )]
                let bytes = (capacity.ceil() as f64 * f64::from(percent / 100.0)) as u64;
                Quantity::units(bytes)
            }
        }
    }
}

/// What a kubelet is told to keep back from Pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Kubelet {
    /// `kubeReserved`.
    pub kube_reserved: Requests,
    /// `systemReserved`.
    pub system_reserved: Requests,
    /// `memory.available` of `evictionHard`; `None` where it is not written and `evictionHard` is.
    pub memory_available: Option<Threshold>,
    /// `nodefs.available` of `evictionHard`.
    pub nodefs_available: Option<Threshold>,
}

impl Default for Kubelet {
    /// A kubelet that is told nothing.
    fn default() -> Self {
        Self {
            kube_reserved: Requests::new(),
            system_reserved: Requests::new(),
            memory_available: Some(Threshold::Amount(Quantity::units(100 << 20))),
            nodefs_available: Some(Threshold::Percent(10.0)),
        }
    }
}

impl Kubelet {
    /// `status.allocatable` of a Node with this `status.capacity`: what is there, less what is
    /// reserved and less what eviction keeps free, never below nothing. Huge pages are taken off
    /// ordinary memory.
    ///
    /// Source of the rule: <https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/>,
    /// and in k8s.io/kubernetes v1.36 `GetNodeAllocatableReservation` (`pkg/kubelet/cm`) and
    /// `MachineInfo` (`pkg/kubelet/nodestatus/setters.go`).
    ///
    /// # Caveats
    /// Devices that a plug-in reports as broken are still counted.
    pub fn allocatable(&self, capacity: &BTreeMap<String, Quantity>) -> BTreeMap<String, Quantity> {
        let nothing = Quantity::default();
        let has = |resource: &str| capacity.get(resource).copied().unwrap_or_default();
        let mut kept = self.kube_reserved.clone();
        kept.add(&self.system_reserved);
        for (resource, threshold) in [
            (MEMORY, self.memory_available),
            (EPHEMERAL_STORAGE, self.nodefs_available),
        ] {
            let free = threshold.map_or(nothing, |threshold| threshold.of(has(resource)));
            kept.add(&Requests::new().with(resource, free));
        }
        let left = |(name, all): (&String, &Quantity)| {
            let left = (*all - kept.of(name)).max(nothing);
            (name.clone(), left)
        };
        let mut allocatable: BTreeMap<_, _> = capacity.iter().map(left).collect();
        let pages = capacity
            .iter()
            .filter(|(name, _)| name.starts_with(HUGEPAGES));
        if let Some(memory) = allocatable.get_mut(MEMORY) {
            for (_, pages) in pages {
                *memory = (*memory - *pages).max(nothing);
            }
        }
        allocatable
    }
}

/// What a guest's kubelet finds of a machine's memory, `status.capacity` of its Node: an estimate with
/// bounds, in bytes. CPUs it finds all.
///
/// The kernel takes its share before anybody counts: 64 bytes for each page of 4 KiB, a 64th, and its own
/// image, tables and buffers. The least assumes a kernel that takes twice that 64th and 128 MiB; the most,
/// one that takes nothing.
///
/// # Caveats
/// Memory that the image sets aside, such as `crashkernel` or huge pages at boot, comes on top.
pub fn guest_memory(machine: Quantity) -> RangeInclusive<Quantity> {
    let share = Quantity::from_milli(machine.milli() / 32) + Quantity::units(128 << 20);
    (machine - share).max(Quantity::default())..=machine
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(amounts: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
        let amount = |(name, amount): &(&str, &str)| ((*name).to_owned(), amount.parse().unwrap());
        amounts.iter().map(amount).collect()
    }

    fn machine() -> BTreeMap<String, Quantity> {
        capacity(&[
            ("cpu", "4"),
            ("memory", "8Gi"),
            ("ephemeral-storage", "19221248Ki"),
            ("pods", "110"),
        ])
    }

    #[test]
    fn a_kubelet_that_is_told_nothing_keeps_what_eviction_keeps_free() {
        let allocatable = Kubelet::default().allocatable(&machine());
        let expected = capacity(&[
            ("cpu", "4"),
            ("memory", "8092Mi"),
            // A tenth in the kubelet's numbers is 29 bytes more than a tenth.
            ("ephemeral-storage", "17714302128"),
            ("pods", "110"),
        ]);
        assert_eq!(allocatable, expected);
    }

    #[test]
    fn reservations_come_off_first_and_nothing_goes_below_zero() {
        let told = Kubelet {
            kube_reserved: Requests::new()
                .with("cpu", Quantity::from_milli(140))
                .with("memory", Quantity::units(512 << 20)),
            system_reserved: Requests::new().with("cpu", Quantity::from_milli(60)),
            memory_available: Some(Threshold::Amount(Quantity::units(256 << 20))),
            nodefs_available: None,
        };
        let allocatable = told.allocatable(&machine());
        assert_eq!(allocatable["cpu"], "3800m".parse().unwrap());
        assert_eq!(allocatable["memory"], "7424Mi".parse().unwrap());
        assert_eq!(
            allocatable["ephemeral-storage"],
            machine()["ephemeral-storage"]
        );
        let tiny = told.allocatable(&capacity(&[("memory", "1Mi"), ("cpu", "100m")]));
        assert_eq!(tiny, capacity(&[("memory", "0"), ("cpu", "0")]));
    }

    #[test]
    fn huge_pages_are_no_ordinary_memory() {
        let pages = capacity(&[
            ("memory", "8Gi"),
            ("hugepages-2Mi", "2Gi"),
            ("hugepages-1Gi", "4Gi"),
        ]);
        let allocatable = Kubelet::default().allocatable(&pages);
        assert_eq!(allocatable["memory"], "1948Mi".parse().unwrap());
        assert_eq!(allocatable["hugepages-1Gi"], pages["hugepages-1Gi"]);
    }

    #[test]
    fn a_kernel_takes_its_share_of_memory() {
        // What 4 GiB and 8 GiB are with a common kernel: 3.8 and 7.7 GiB.
        for (machine, found) in [("4Gi", "3915Mi"), ("8Gi", "7940Mi"), ("1Gi", "957Mi")] {
            let bounds = guest_memory(machine.parse().unwrap());
            assert!(bounds.contains(&found.parse().unwrap()), "{machine}");
        }
        assert_eq!(
            *guest_memory(Quantity::units(1)).start(),
            Quantity::default()
        );
    }
}
