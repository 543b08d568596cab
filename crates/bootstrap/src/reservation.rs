//! What a machine that is control plane and worker at once keeps free of the tenant's Pods.
//!
//! kubeadm gives every static Pod of the control plane the priority `system-node-critical`: the
//! kubelet evicts none of them, makes room for them when they start, and lets the kernel kill them
//! last. It asks for next to nothing in their names, though: no memory for the API server, 100 MiB
//! for etcd, and CPU shares that a busy tenant outweighs ten times over. So more is asked for here.
//!
//! | for | CPU | memory |
//! |---|---|---|
//! | kubelet, containerd, operating system | 100m + 10m for each CPU | 256 MiB + 1/32, to 4 GiB |
//! | API server | 1/8, from 250m to 4 CPUs | 1/8, from 256 MiB to 16 GiB |
//! | etcd | 1/16, from 200m to 2 CPUs | 1/16, from 128 MiB to 8 GiB |
//! | eviction of tenants begins at | | 1/32 free, from 100 MiB to 1 GiB |
//!
//! The API server's and etcd's part is what their Pods request. As a part of the kubelet's own
//! reservation it would do harm: that is taken off the cgroup of all Pods, theirs included.

/// Size of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Size {
    /// CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
}

/// An amount of both resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Thousandths of a CPU.
    pub millicpu: u64,
    /// Memory in MiB.
    pub mebibytes: u64,
}

/// What is kept on one machine, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// kubelet, containerd and the operating system.
    pub system: Amount,
    /// kube-apiserver.
    pub api_server: Amount,
    /// etcd.
    pub etcd: Amount,
    /// Free memory in MiB at which the kubelet begins to evict.
    pub eviction: u64,
}

impl Reservation {
    /// What a machine of that size keeps.
    pub fn of(size: Size) -> Self {
        let millicpu = u64::from(size.cpus) * 1000;
        let mebibytes = size.memory >> 20;
        Self {
            system: Amount {
                millicpu: 100 + millicpu / 100,
                mebibytes: (256 + mebibytes / 32).min(4 << 10),
            },
            api_server: Amount {
                millicpu: (millicpu / 8).clamp(250, 4000),
                mebibytes: (mebibytes / 8).clamp(256, 16 << 10),
            },
            etcd: Amount {
                millicpu: (millicpu / 16).clamp(200, 2000),
                mebibytes: (mebibytes / 16).clamp(128, 8 << 10),
            },
            eviction: (mebibytes / 32).clamp(100, 1 << 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(cpus: u32, gibibytes: u64) -> [(u64, u64); 4] {
        let memory = gibibytes << 30;
        let reservation = Reservation::of(Size { cpus, memory });
        let pair = |amount: Amount| (amount.millicpu, amount.mebibytes);
        [
            pair(reservation.system),
            pair(reservation.api_server),
            pair(reservation.etcd),
            (0, reservation.eviction),
        ]
    }

    #[test]
    fn machines_keep_what_the_documentation_says() {
        assert_eq!(
            of(2, 4),
            [(120, 384), (250, 512), (200, 256), (0, 128)],
            "small"
        );
        assert_eq!(
            of(4, 8),
            [(140, 512), (500, 1024), (250, 512), (0, 256)],
            "default"
        );
        assert_eq!(
            of(16, 64),
            [(260, 2304), (2000, 8192), (1000, 4096), (0, 1024)],
            "large"
        );
        assert_eq!(
            of(256, 4096),
            [(2660, 4096), (4000, 16_384), (2000, 8192), (0, 1024)],
            "largest"
        );
    }

    /// kubeadm's least for a control plane: 2 CPUs and 1,700 MB.
    const LEAST: Size = Size {
        cpus: 2,
        memory: 1_700_000_000,
    };

    proptest! {
        #[test]
        fn at_least_half_of_a_machine_is_left_for_workloads(
            cpus in LEAST.cpus..=256,
            memory in LEAST.memory..=(4 << 40),
        ) {
            let Reservation { system, api_server, etcd, eviction } =
                Reservation::of(Size { cpus, memory });
            // The controller manager's and the scheduler's 300m are kubeadm's.
            let millicpu = system.millicpu + api_server.millicpu + etcd.millicpu + 300;
            let mebibytes = system.mebibytes + api_server.mebibytes + etcd.mebibytes + eviction;
            prop_assert!(millicpu <= u64::from(cpus) * 500);
            prop_assert!(mebibytes <= memory >> 21);
        }

        #[test]
        fn a_larger_machine_keeps_no_less(
            cpus in LEAST.cpus..=255,
            memory in LEAST.memory..=(2 << 40),
        ) {
            let (small, large) = (Size { cpus, memory }, Size { cpus: cpus + 1, memory: memory * 2 });
            let (small, large) = (Reservation::of(small), Reservation::of(large));
            for (less, more) in [
                (small.system, large.system),
                (small.api_server, large.api_server),
                (small.etcd, large.etcd),
            ] {
                prop_assert!(less.millicpu <= more.millicpu && less.mebibytes <= more.mebibytes);
            }
            prop_assert!(small.eviction <= large.eviction);
        }
    }
}
