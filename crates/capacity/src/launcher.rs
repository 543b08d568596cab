//! What a machine really asks of its host: the requests of its virt-launcher Pod, which are larger
//! than the machine.

use crate::requests::resource::{CPU, EPHEMERAL_STORAGE, HUGEPAGES, MEMORY, PODS};
use crate::{Quantity, Requests};

const fn mebibytes(number: u64) -> Quantity {
    Quantity::units(number << 20)
}

/// Processes beside QEMU, each as its resident memory: launcher monitor, launcher, virtlogd,
/// virtqemud; and QEMU itself without its guest.
const PROCESSES: Quantity = mebibytes(25 + 100 + 25 + 40 + 30);
/// For each vCPU.
const VCPU: Quantity = mebibytes(8);
/// For the I/O thread, of which there is always one.
const IO_THREAD: Quantity = mebibytes(8);
/// For a machine with pinned CPUs, so that its hard limit is not met by chance.
const PINNED: Quantity = mebibytes(100);
/// Flash of the firmware on arm64.
const ARM64: Quantity = mebibytes(128);
/// For devices of the host, however many: the guest's memory is mapped for them as a whole.
const DEVICES: Quantity = mebibytes(1 << 10);
/// Bytes of guest memory for one byte of page tables.
const PAGE_TABLE_SHARE: u64 = 512;
/// Container `guest-console-log`, at its limits, which are its requests in a Pod of a pinned
/// machine.
const CONSOLE_LOG: (Quantity, Quantity) = (Quantity::from_milli(15), Quantity::units(60_000_000));
/// What KubeVirt adds for its own files.
const EPHEMERAL: Quantity = Quantity::units(50_000_000);

/// A machine as its launcher Pod sees it: pinned CPUs; memory of the guest stated as request and
/// limit too, which makes the Pod Guaranteed; no graphics, no container disk, and no probe that runs a
/// command.
///
/// Disks from claims, the cloud-init volume and probes over the network add no container and no
/// memory.
///
/// # Guarantees
/// [`requests`](Self::requests) equals what KubeVirt v1.8 and v1.9 write, to the byte. Source of
/// the rules, in kubevirt/kubevirt v1.8.0: memory `GetMemoryOverhead` in
/// `pkg/hypervisor/kvm/hypervisorbackend.go`; CPUs, huge pages and storage
/// `pkg/virt-controller/services/renderresources.go`; the console's container
/// `pkg/virt-controller/services/serialconsolelog.go`. Releases after v1.9 count 50 MiB for QEMU
/// instead of 30.
///
/// # Caveats
/// - Settings of the KubeVirt object that change these numbers are not looked at:
///   `additionalGuestMemoryOverheadRatio`, `supportContainerResources` and the annotation
///   `EmulatorThreadCompleteToEvenParity`.
/// - `devices.kubevirt.io/*`, of which a host offers a thousand each, are not counted: a host's
///   Pods run out long before.
#[derive(Clone, Debug, PartialEq)]
pub struct Launcher {
    /// vCPUs, each on a CPU of its own.
    pub cpus: u64,
    /// Memory of the guest, in bytes.
    pub memory: Quantity,
    /// One more CPU for QEMU's own threads.
    pub isolate_emulator_thread: bool,
    /// Size of the huge pages that hold the guest's memory, such as `2Mi`.
    pub hugepages: Option<String>,
    /// The console is logged, which takes a container: KubeVirt's default.
    pub console_log: bool,
    /// The machine's architecture is arm64.
    pub arm64: bool,
    /// Devices of the host (`gpus`, `hostDevices`) by resource name, such as `nvidia.com/TU104GL`.
    pub devices: Requests,
}

impl Launcher {
    /// A machine with KubeVirt's defaults.
    pub const fn new(cpus: u64, memory: Quantity) -> Self {
        Self {
            cpus,
            memory,
            isolate_emulator_thread: false,
            hugepages: None,
            console_log: true,
            arm64: false,
            devices: Requests::new(),
        }
    }

    /// What the Pod requests.
    pub fn requests(&self) -> Requests {
        let mut cpu = Quantity::units(self.cpus + u64::from(self.isolate_emulator_thread));
        let mut memory = self.memory_overhead();
        let mut requests = self.devices.clone();
        match &self.hugepages {
            Some(size) => requests = requests.with(&format!("{HUGEPAGES}{size}"), self.memory),
            None => memory += self.memory,
        }
        if self.console_log {
            cpu += CONSOLE_LOG.0;
            memory += CONSOLE_LOG.1;
        }
        requests
            .with(CPU, cpu)
            .with(MEMORY, memory)
            .with(EPHEMERAL_STORAGE, EPHEMERAL)
            .with(PODS, Quantity::units(1))
    }

    /// Memory that KubeVirt adds to the guest's own in the Pod's main container, in bytes.
    pub fn memory_overhead(&self) -> Quantity {
        let mut overhead = self.page_tables() + PROCESSES + VCPU * self.cpus.max(1);
        overhead += IO_THREAD + PINNED;
        if self.arm64 {
            overhead += ARM64;
        }
        let nothing = Quantity::default();
        if self.devices.iter().any(|(_, number)| number > nothing) {
            overhead += DEVICES;
        }
        overhead
    }

    /// Whole kilobytes of guest memory, rounded up; of these a share, rounded down.
    fn page_tables(&self) -> Quantity {
        let bytes = u64::try_from(self.memory.ceil()).unwrap_or_default();
        Quantity::units(bytes.div_ceil(1000) * 1000 / PAGE_TABLE_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(cpus: u64, memory: &str) -> Launcher {
        Launcher {
            console_log: false,
            ..Launcher::new(cpus, memory.parse().unwrap())
        }
    }

    fn bytes(requests: &Requests, resource: &str) -> i128 {
        requests.of(resource).ceil()
    }

    /// Read from the container `compute` of a launcher Pod that KubeVirt v1.8.0 had made.
    #[test]
    fn two_cpus_and_4gi_ask_for_what_was_measured() {
        let requests = launcher(2, "4Gi").requests();
        assert_eq!(bytes(&requests, "memory"), 4_664_066_049);
        assert_eq!(requests.of("cpu"), Quantity::units(2));
    }

    /// Answers of KubeVirt v1.8.0's own `GetMemoryOverhead` and `NewResourceRenderer` to these
    /// sizes.
    #[test]
    fn memory_equals_kubevirts_to_the_byte() {
        for (memory, cpus, expected) in [
            ("1Gi", 1, 1_428_160_512),
            ("8Gi", 4, 8_984_199_168),
            ("16Gi", 8, 17_624_465_409),
            ("2500M", 1, 2_857_204_348),
            ("2500M", 255, 4_987_910_780),
            ("10000001Ki", 2, 10_620_711_171),
            ("160Gi", 8, 172_545_277_952),
            ("4Ti", 255, 4_409_119_473_665),
        ] {
            let requests = launcher(cpus, memory).requests();
            assert_eq!(bytes(&requests, "memory"), expected, "{memory}, {cpus}");
        }
    }

    #[test]
    fn arm64_adds_its_flash() {
        for (memory, expected) in [("4Gi", 4_815_060_993), ("2500M", 3_016_587_900)] {
            let arm64 = Launcher {
                arm64: true,
                ..launcher(4, memory)
            };
            assert_eq!(bytes(&arm64.requests(), "memory"), expected, "{memory}");
        }
    }

    #[test]
    fn huge_pages_hold_the_guest_and_ordinary_memory_the_rest() {
        for (memory, cpus, guest, rest) in [
            ("4Gi", 2, 4_294_967_296, 369_098_753),
            ("160Gi", 8, 171_798_691_840, 746_586_112),
        ] {
            let huge = Launcher {
                hugepages: Some("2Mi".into()),
                ..launcher(cpus, memory)
            };
            let requests = huge.requests();
            assert_eq!(bytes(&requests, "hugepages-2Mi"), guest);
            assert_eq!(bytes(&requests, "memory"), rest);
        }
    }

    #[test]
    fn devices_of_the_host_add_themselves_and_1gi_once() {
        let plain = launcher(4, "8Gi").requests();
        for number in [1, 2] {
            let devices = Requests::new()
                .with("example.com/gpu", Quantity::units(number))
                .with("example.com/nic", Quantity::units(1));
            let with_devices = Launcher {
                devices: devices.clone(),
                ..launcher(4, "8Gi")
            };
            let mut expected = plain.clone();
            expected.add(&devices);
            expected.add(&Requests::new().with("memory", Quantity::units(1 << 30)));
            assert_eq!(with_devices.requests(), expected);
        }
    }

    #[test]
    fn an_isolated_emulator_thread_takes_a_cpu_and_no_memory() {
        let isolated = Launcher {
            isolate_emulator_thread: true,
            ..launcher(8, "16Gi")
        };
        assert_eq!(isolated.requests().of("cpu"), Quantity::units(9));
        assert_eq!(bytes(&isolated.requests(), "memory"), 17_624_465_409);
    }

    #[test]
    fn the_console_log_adds_its_container() {
        let requests = Launcher::new(4, Quantity::units(8 << 30)).requests();
        assert_eq!(requests.of("cpu"), Quantity::from_milli(4015));
        assert_eq!(bytes(&requests, "memory"), 8_984_199_168 + 60_000_000);
    }

    #[test]
    fn a_machine_takes_a_pod_and_a_little_of_the_hosts_disk() {
        let requests = launcher(2, "4Gi").requests();
        assert_eq!(requests.of("pods"), Quantity::units(1));
        assert_eq!(bytes(&requests, "ephemeral-storage"), 50_000_000);
    }
}
