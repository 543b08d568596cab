//! Whether one host may carry one machine, looking at the host alone.

use std::collections::BTreeMap;

use guestcluster_capacity::{Host, Quantity, Rounding, Taint, amount};

/// What a machine asks of its host as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirements {
    /// Labels that the host must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that it bears.
    pub tolerations: Vec<Toleration>,
    /// Whole CPUs, pinned; looked at by [`refusal`] alone, since a launcher Pod requests as many.
    pub cpu: Quantity,
    /// Memory in bytes, without what huge pages hold; looked at by [`refusal`] alone.
    pub memory: Quantity,
    /// Huge pages in bytes and devices of the host, by resource name; looked at by [`refusal`] alone.
    pub extended: BTreeMap<String, Quantity>,
}

/// A toleration, as in a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toleration {
    /// Key; `None` with operator `Exists` tolerates all.
    pub key: Option<String>,
    /// The value need not match.
    pub exists: bool,
    /// Value.
    pub value: String,
    /// Effect; `None` means all.
    pub effect: Option<String>,
}

impl Toleration {
    fn tolerates(&self, taint: &Taint) -> bool {
        let key = match &self.key {
            Some(key) => *key == taint.key,
            None => self.exists,
        };
        let value = self.exists || self.value == taint.value;
        let effect = self
            .effect
            .as_ref()
            .is_none_or(|effect| *effect == taint.effect);
        key && value && effect
    }
}

/// Why a host cannot take a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its kubelet is not ready.
    #[error("is not ready")]
    NotReady,
    /// Cordoned.
    #[error("is cordoned (kubectl uncordon)")]
    Cordoned,
    /// KubeVirt does not run VMs there.
    #[error("does not run VMs: label {0} is not true")]
    NotForVms(&'static str),
    /// A label that the specification asks for is missing.
    #[error("lacks the label {0}")]
    Label(String),
    /// A taint that nothing tolerates.
    #[error("has the taint {0}, which placement.tolerations does not tolerate")]
    Taint(String),
    /// The whole host is smaller than the machine.
    #[error("has {} in all, the machine needs {}", there(resource, *has), needed(resource, *needs))]
    TooSmall {
        /// Resource name.
        resource: String,
        /// Allocatable.
        has: Quantity,
        /// Needed.
        needs: Quantity,
    },
    /// Others hold too much of it.
    #[error("has {} free, the machine needs {}", there(resource, *free), needed(resource, *needs))]
    Full {
        /// Resource name.
        resource: String,
        /// Allocatable that no Pod holds.
        free: Quantity,
        /// Needed.
        needs: Quantity,
    },
    /// It carries a machine that must not share its host with this one.
    #[error("already carries {0}")]
    Carries(String),
    /// The room that it has is another machine's, which exists and is on no host.
    #[error("has room only for {0}, which is on no host now")]
    KeptFor(String),
    /// It carries as many machines of the tenant as one host may.
    #[error("already carries {cap} of {tenant}, as many as one host may")]
    TenantCap {
        /// The machine's tenant.
        tenant: String,
        /// Machines that one host may carry of it.
        cap: usize,
    },
}

fn there(resource: &str, quantity: Quantity) -> String {
    format!("{} {resource}", amount(resource, quantity, Rounding::Down))
}

fn needed(resource: &str, quantity: Quantity) -> String {
    amount(resource, quantity, Rounding::Up)
}

/// Labels that KubeVirt gives to hosts which run VMs with pinned CPUs. The second came with v1.8;
/// older releases write `cpumanager`, which newer ones write as well.
const KUBEVIRT_LABELS: [&str; 2] = ["kubevirt.io/schedulable", "cpumanager"];

/// The taint as which the scheduler treats a cordon (`NodeUnschedulable`).
const CORDON: (&str, &str) = ("node.kubernetes.io/unschedulable", "NoSchedule");

/// Taints that every Pod tolerates for five minutes if it does not say otherwise: the API server
/// writes it so (`DefaultTolerationSeconds`). Hosts that are not ready have them as `NoSchedule` too.
const TOLERATED: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// Why `host` cannot take a machine with these requirements; `None` if it can.
///
/// Capacity is compared with the host's allocatable as a whole, not with what is free now: the
/// question is whether waiting can help.
///
/// # Caveats
/// A host that is not ready is refused even to a machine that tolerates its taints: the scheduler
/// would bind it there, and nothing would start it.
pub fn refusal(host: &Host, needs: &Requirements) -> Option<Refusal> {
    unsuitable(host, needs).or_else(|| too_small(host, needs))
}

/// The same without capacity.
pub(crate) fn unsuitable(host: &Host, needs: &Requirements) -> Option<Refusal> {
    if !host.ready {
        return Some(Refusal::NotReady);
    }
    let (key, effect) = CORDON;
    let cordon = Taint {
        key: key.to_owned(),
        value: String::new(),
        effect: effect.to_owned(),
    };
    if host.unschedulable && repels(&cordon, &needs.tolerations) {
        return Some(Refusal::Cordoned);
    }
    let is_true = |label: &str| host.labels.get(label).is_some_and(|value| value == "true");
    if let Some(label) = KUBEVIRT_LABELS.into_iter().find(|label| !is_true(label)) {
        return Some(Refusal::NotForVms(label));
    }
    if let Some((key, value)) = needs
        .node_selector
        .iter()
        .find(|(key, value)| host.labels.get(*key) != Some(value))
    {
        return Some(Refusal::Label(format!("{key}={value}")));
    }
    let mut taints = host.taints.iter();
    let taint = taints.find(|taint| repels(taint, &needs.tolerations))?;
    Some(Refusal::Taint(format!(
        "{}={}:{}",
        taint.key, taint.value, taint.effect
    )))
}

fn too_small(host: &Host, needs: &Requirements) -> Option<Refusal> {
    let extended = needs.extended.iter();
    let extended = extended.map(|(resource, needs)| (&**resource, *needs));
    [("cpu", needs.cpu), ("memory", needs.memory)]
        .into_iter()
        .chain(extended)
        .find_map(|(resource, needs)| {
            let has = host.allocatable.get(resource).copied().unwrap_or_default();
            (has < needs).then(|| Refusal::TooSmall {
                resource: resource.to_owned(),
                has,
                needs,
            })
        })
}

fn repels(taint: &Taint, tolerations: &[Toleration]) -> bool {
    let passes = match &*taint.effect {
        "PreferNoSchedule" => true,
        "NoExecute" => TOLERATED.contains(&&*taint.key),
        _ => false,
    };
    !passes && !tolerations.iter().any(|t| t.tolerates(taint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        let yes = |key: &str| (key.to_owned(), "true".to_owned());
        Host {
            name: "host-1".into(),
            labels: [yes("kubevirt.io/schedulable"), yes("cpumanager")].into(),
            ready: true,
            allocatable: [
                ("cpu".to_owned(), Quantity::units(8)),
                ("memory".to_owned(), Quantity::units(16 << 30)),
            ]
            .into(),
            ..Host::default()
        }
    }

    fn needs() -> Requirements {
        Requirements {
            cpu: Quantity::units(4),
            memory: Quantity::units(8 << 30),
            ..Requirements::default()
        }
    }

    #[test]
    fn a_plain_host_takes_a_plain_machine() {
        assert_eq!(refusal(&host(), &needs()), None);
    }

    #[test]
    fn each_shortcoming_is_named() {
        let change = |edit: fn(&mut Host)| {
            let mut host = host();
            edit(&mut host);
            refusal(&host, &needs())
                .map(|r| r.to_string())
                .unwrap_or_default()
        };
        assert_eq!(change(|h| h.ready = false), "is not ready");
        assert!(change(|h| h.unschedulable = true).contains("uncordon"));
        assert!(change(|h| h.labels.clear()).contains("kubevirt.io/schedulable"));
        assert!(
            change(|h| h.taints = vec![Taint {
                key: "gpu".into(),
                value: "yes".into(),
                effect: "NoSchedule".into()
            }])
            .contains("gpu=yes:NoSchedule")
        );
        let small = change(|h| {
            h.allocatable
                .insert("memory".into(), Quantity::units(4 << 30));
        });
        assert_eq!(small, "has 4Gi memory in all, the machine needs 8Gi");
    }

    #[test]
    fn a_host_without_the_device_is_too_small() {
        let gpu = "nvidia.com/GA102GL_A10";
        let mut needs = needs();
        needs.extended.insert(gpu.into(), Quantity::units(2));
        let answer = |has: Option<u64>| {
            let mut host = host();
            let has = has.map(|has| (gpu.to_owned(), Quantity::units(has)));
            host.allocatable.extend(has);
            refusal(&host, &needs).map(|refusal| refusal.to_string())
        };
        let too_small = |has| format!("has {has} {gpu} in all, the machine needs 2");
        assert_eq!(answer(None), Some(too_small(0)));
        assert_eq!(answer(Some(1)), Some(too_small(1)));
        assert_eq!(answer(Some(2)), None);
    }

    fn taint(key: &str, effect: &str) -> Taint {
        Taint {
            key: key.into(),
            value: String::new(),
            effect: effect.into(),
        }
    }

    fn tolerating(key: Option<&str>) -> Requirements {
        Requirements {
            tolerations: vec![Toleration {
                key: key.map(str::to_owned),
                exists: true,
                ..Toleration::default()
            }],
            ..needs()
        }
    }

    #[test]
    fn a_cordon_holds_for_whoever_does_not_tolerate_it() {
        let cordoned = Host {
            unschedulable: true,
            ..host()
        };
        let answer = |key| refusal(&cordoned, &tolerating(key));
        assert_eq!(answer(Some("gpu")), Some(Refusal::Cordoned));
        assert_eq!(answer(Some("node.kubernetes.io/unschedulable")), None);
        assert_eq!(answer(None), None);
    }

    #[test]
    fn what_the_api_server_lets_every_pod_tolerate_repels_nobody() {
        let answer = |key: &str, effect: &str| {
            let mut host = host();
            host.taints.push(taint(key, effect));
            refusal(&host, &needs()).is_none()
        };
        for key in [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
        ] {
            assert!(answer(key, "NoExecute"));
            assert!(!answer(key, "NoSchedule"));
        }
        assert!(!answer("example.com/maintenance", "NoExecute"));
    }

    #[test]
    fn a_host_that_is_not_ready_takes_nobody_whatever_he_tolerates() {
        let away = Host {
            ready: false,
            taints: vec![taint("node.kubernetes.io/unreachable", "NoSchedule")],
            ..host()
        };
        assert_eq!(refusal(&away, &tolerating(None)), Some(Refusal::NotReady));
    }

    #[test]
    fn a_toleration_without_key_bears_everything() {
        let mut host = host();
        host.taints.push(taint("k", "NoExecute"));
        assert_eq!(refusal(&host, &tolerating(None)), None);
    }
}
