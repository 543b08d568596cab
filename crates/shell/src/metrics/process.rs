//! The process about itself, under the names that all Prometheus clients use.

use std::fmt;

use k8s_openapi::jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::clock::now;

/// Resident memory and time of start.
#[derive(Debug)]
pub(super) struct Process {
    started: Timestamp,
}

impl Process {
    pub(super) fn started_now() -> Self {
        Self { started: now() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauge = |name, help, value: f64| {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)
        };
        let started = self.started.as_duration().as_secs_f64();
        gauge(
            "process_start_time_seconds",
            "When the process started",
            started,
        )?;
        // Where there is no /proc there is no such gauge.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        match resident_bytes(&status) {
            Some(bytes) => gauge(
                "process_resident_memory_bytes",
                "Memory in use of the process",
                bytes,
            ),
            None => Ok(()),
        }
    }
}

/// The resident memory in a `/proc/<pid>/status`. (`statm` counts pages, whose size only a system
/// call tells.)
fn resident_bytes(status: &str) -> Option<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u32 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(f64::from(kibibytes) * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmRSS:\t   12345 kB\nThreads:\t1\n";
        assert_eq!(resident_bytes(status), Some(12_641_280.0));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }
}
