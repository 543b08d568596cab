//! The machine's own versions of files in which the kernel describes the box: the kubelet reads its
//! node's capacity there.

use std::fmt::Write as _;

/// A file with its path below some folder, and its content.
pub(super) type File = (String, String);

/// The memory that a machine's kernel keeps to itself: its page structures (64 bytes for each 4 KiB
/// page) and about 96 MiB for kernel and boot.
fn kernel_share(memory_bytes: u64) -> u64 {
    memory_bytes / 64 + 96 * 1024 * 1024
}

/// `/proc/meminfo` of a machine with `memory_bytes` of memory, in the layout of the box's own.
pub(super) fn meminfo(box_meminfo: &str, memory_bytes: u64) -> String {
    let usable = memory_bytes.saturating_sub(kernel_share(memory_bytes)) / 1024;
    let mut text = String::new();
    for line in box_meminfo.lines() {
        let name = line.split(':').next().unwrap_or_default();
        let value = match name {
            "MemTotal" | "MemFree" | "MemAvailable" => usable,
            // A kubelet refuses to run with swap.
            "SwapTotal" | "SwapFree" => 0,
            _ => {
                let _ = writeln!(text, "{line}");
                continue;
            }
        };
        let _ = writeln!(text, "{:<16}{value:>8} kB", format!("{name}:"));
    }
    text
}

/// `/proc/cpuinfo` of a machine with `cpus` CPUs: the box's first CPU, so many times.
pub(super) fn cpuinfo(box_cpuinfo: &str, cpus: u32) -> String {
    let first = box_cpuinfo.split("\n\n").next().unwrap_or_default();
    let mut text = String::new();
    for cpu in 0..cpus {
        for line in first.lines() {
            let (name, _) = line.split_once(':').unwrap_or((line, ""));
            let _ = match name.trim_end() {
                "processor" | "core id" | "apicid" | "initial apicid" => {
                    writeln!(text, "{name}: {cpu}")
                }
                "siblings" | "cpu cores" => writeln!(text, "{name}: {cpus}"),
                _ => writeln!(text, "{line}"),
            };
        }
        text.push('\n');
    }
    text
}

/// CPU numbers out of the kernel's list format, such as `0-3,8`.
pub(super) fn cpu_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// `/sys/devices/system/cpu` and `/sys/devices/system/node`: one socket and one memory node.
///
/// The C library counts what `cpu/online` lists. The kubelet counts the folders `node*/cpu*` (cadvisor,
/// `utils/sysinfo`), and then confines its Pods to the CPUs of those numbers (`GetAllCPUs` of its CPU
/// manager), which must exist on the box. A machine with more CPUs than the box therefore lists some of
/// the box's several times, told apart by leading zeros: they count, and read as the same number.
pub(super) fn topology(cpus: u32, box_cpus: &[u32], memory_bytes: u64) -> Vec<File> {
    let range = if cpus > 1 {
        format!("0-{}\n", cpus - 1)
    } else {
        "0\n".to_owned()
    };
    let mut files: Vec<File> = ["cpu/online", "cpu/present", "cpu/possible"]
        .into_iter()
        .map(|path| (path.to_owned(), range.clone()))
        .collect();
    let rounds = (0..).flat_map(|round| box_cpus.iter().map(move |cpu| (round, cpu)));
    for (cpu, (round, real)) in (0..cpus).zip(rounds) {
        let zeros = "0".repeat(round);
        for folder in [
            format!("cpu/cpu{cpu}"),
            format!("node/node0/cpu{zeros}{real}"),
        ] {
            files.push((format!("{folder}/topology/core_id"), format!("{cpu}\n")));
            files.push((
                format!("{folder}/topology/physical_package_id"),
                "0\n".to_owned(),
            ));
            files.push((format!("{folder}/topology/die_id"), "0\n".to_owned()));
        }
    }
    let total = memory_bytes.saturating_sub(kernel_share(memory_bytes)) / 1024;
    files.push(("node/online".to_owned(), "0\n".to_owned()));
    files.push(("node/possible".to_owned(), "0\n".to_owned()));
    files.push(("node/node0/cpulist".to_owned(), range));
    files.push(("node/node0/distance".to_owned(), "10\n".to_owned()));
    files.push((
        "node/node0/meminfo".to_owned(),
        format!("Node 0 MemTotal: {total:>15} kB\n"),
    ));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * 1024 * 1024;

    #[test]
    fn a_machine_sees_its_own_memory_less_its_kernels_share() {
        let seen = meminfo(
            "MemTotal:       24000000 kB\nMemFree: 1 kB\nCached: 7 kB\nSwapTotal: 9 kB\n",
            4 * GIB,
        );
        assert_eq!(
            seen,
            "MemTotal:        4030464 kB\nMemFree:         4030464 kB\nCached: 7 kB\nSwapTotal:             0 kB\n"
        );
    }

    #[test]
    fn a_machine_smaller_than_its_kernels_share_has_none() {
        assert!(meminfo("MemTotal: 5 kB\n", 1024).contains(" 0 kB"));
    }

    #[test]
    fn a_machine_sees_its_own_cpus() {
        let one = "processor\t: 0\nmodel name\t: fast\ncpu cores\t: 1\n\nprocessor\t: 1\n\n";
        let seen = cpuinfo(one, 3);
        assert_eq!(seen.matches("model name\t: fast").count(), 3);
        assert!(seen.contains("processor\t: 2") && seen.contains("cpu cores\t: 3"));
        assert!(!seen.contains("processor\t: 3"));
    }

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpu_list("0-1,4,6-7\n"), [0, 1, 4, 6, 7]);
        assert_eq!(cpu_list("0\n"), [0]);
        assert_eq!(cpu_list("\n"), Vec::<u32>::new());
    }

    #[test]
    fn each_cpu_is_listed_once_for_the_c_library_and_once_for_the_kubelet() {
        let files = topology(5, &[0, 1], GIB);
        let cores = |prefix: &str| -> Vec<String> {
            let folder = |path: &String| path.strip_suffix("/topology/core_id").map(str::to_owned);
            files
                .iter()
                .filter_map(|(path, _)| folder(path))
                .filter(|f| f.starts_with(prefix))
                .collect()
        };
        assert_eq!(
            cores("cpu/"),
            ["cpu/cpu0", "cpu/cpu1", "cpu/cpu2", "cpu/cpu3", "cpu/cpu4"]
        );
        let for_kubelet =
            ["cpu0", "cpu1", "cpu00", "cpu01", "cpu000"].map(|c| format!("node/node0/{c}"));
        assert_eq!(cores("node/"), for_kubelet);
        assert!(files.contains(&("cpu/online".to_owned(), "0-4\n".to_owned())));
        assert!(topology(1, &[0], GIB).contains(&("cpu/online".to_owned(), "0\n".to_owned())));
    }
}
