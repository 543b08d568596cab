//! What a person sees of the infrastructure: hosts × machines, and what it is made of.

use std::fmt::{self, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::guests::GuestRow;
use crate::process::ProcessRow;

/// One host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRow {
    /// Its name.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// Whether it has power.
    pub power: bool,
}

/// The whole infrastructure at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The hosts.
    pub hosts: Vec<HostRow>,
    /// The guests that run.
    pub guests: Vec<GuestRow>,
    /// The programs.
    pub programs: Vec<ProcessRow>,
    /// What disks can be imported from, as in `spec.image.registry`; none on paper.
    pub images: Vec<String>,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The folder of the logs.
    pub logs: PathBuf,
}

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&table(&self.host_lines()))?;
        if !self.guests.is_empty() {
            writeln!(f)?;
            f.write_str(&table(&self.guest_lines()))?;
        }
        writeln!(f)?;
        f.write_str(&table(&self.program_lines()))?;
        writeln!(f)?;
        for image in &self.images {
            writeln!(f, "node image  {image}")?;
        }
        writeln!(f, "kubeconfig  {}", self.kubeconfig.display())?;
        writeln!(f, "logs        {}", self.logs.display())
    }
}

impl StatusReport {
    fn host_lines(&self) -> Vec<Vec<String>> {
        let mut lines = vec![words(["HOST", "ZONE", "POWER", "MACHINES"])];
        lines.extend(self.hosts.iter().map(|host| {
            let here = self.guests.iter().filter(|guest| guest.host == host.name);
            let machines: Vec<_> = here.map(|guest| guest.name.clone()).collect();
            let power = if host.power { "on" } else { "off" };
            vec![
                host.name.clone(),
                host.zone.clone(),
                power.to_owned(),
                machines.join(" "),
            ]
        }));
        lines
    }

    fn guest_lines(&self) -> Vec<Vec<String>> {
        let mut lines = vec![words(["MACHINE", "HOST", "ADDRESS", "STATE", "CONSOLE"])];
        lines.extend(self.guests.iter().map(|guest| {
            let mut state = Vec::new();
            if guest.frozen {
                state.push("frozen".to_owned());
            }
            if guest.cut {
                state.push("cut off".to_owned());
            }
            state.extend(
                guest
                    .cut_from
                    .iter()
                    .map(|other| format!("cut off from {other}")),
            );
            if guest.disk_full {
                state.push("disk full".to_owned());
            }
            if let Some(delay) = guest.slow_disk {
                state.push(format!("slow disk ({} ms)", delay.as_millis()));
            }
            if guest.pid.is_none() {
                state.push("on paper".to_owned());
            }
            vec![
                format!("{}/{}", guest.namespace, guest.name),
                guest.host.clone(),
                guest.address.to_string(),
                if state.is_empty() {
                    "running".to_owned()
                } else {
                    state.join(", ")
                },
                guest
                    .console
                    .as_ref()
                    .map(|file| file.display().to_string())
                    .unwrap_or_default(),
            ]
        }));
        lines
    }

    fn program_lines(&self) -> Vec<Vec<String>> {
        let mut lines = vec![words(["PROGRAM", "STATE", "RESTARTS"])];
        lines.extend(self.programs.iter().map(|program| {
            let state = match (program.held, program.pid) {
                (true, _) => "held down",
                (false, Some(_)) => "running",
                (false, None) => "restarting",
            };
            vec![
                program.name.clone(),
                state.to_owned(),
                program.restarts.to_string(),
            ]
        }));
        lines
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

/// Columns as wide as their widest cell, two spaces apart, no trailing blanks.
fn table(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<_> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(row, "{cell:width$}  ");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{HostRow, StatusReport};
    use crate::guests::GuestRow;
    use crate::process::ProcessRow;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn host(name: &str, zone: &str, power: bool) -> HostRow {
        HostRow {
            name: name.into(),
            zone: zone.into(),
            power,
        }
    }

    fn guest(name: &str, host: &str, frozen: bool) -> GuestRow {
        GuestRow {
            namespace: "guests".into(),
            name: name.into(),
            host: host.into(),
            address: Ipv4Addr::new(10, 244, 0, 12),
            pid: Some(1),
            frozen,
            cut: false,
            cut_from: Vec::new(),
            disk_full: false,
            slow_disk: None,
            console: Some("/run/console.log".into()),
        }
    }

    #[test]
    fn a_person_sees_which_machine_is_where() {
        let report = StatusReport {
            hosts: vec![
                host("host-1", "zone-a", true),
                host("host-10", "zone-b", false),
            ],
            guests: vec![
                guest("prod-cp-1", "host-1", false),
                guest("prod-w-1", "host-1", true),
            ],
            programs: vec![ProcessRow {
                name: "etcd".into(),
                pid: Some(7),
                restarts: 0,
                held: false,
                log: "/logs/etcd.log".into(),
            }],
            images: vec!["registry.local/guest/node:v1.36.3@sha256:abc".into()],
            kubeconfig: "/run/kubeconfig".into(),
            logs: "/run/logs".into(),
        };
        let expected = "\
HOST     ZONE    POWER  MACHINES
host-1   zone-a  on     prod-cp-1 prod-w-1
host-10  zone-b  off

MACHINE           HOST    ADDRESS      STATE    CONSOLE
guests/prod-cp-1  host-1  10.244.0.12  running  /run/console.log
guests/prod-w-1   host-1  10.244.0.12  frozen   /run/console.log

PROGRAM  STATE    RESTARTS
etcd     running  0

node image  registry.local/guest/node:v1.36.3@sha256:abc
kubeconfig  /run/kubeconfig
logs        /run/logs
";
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn everything_that_is_broken_about_a_machine_is_told() {
        let mut guest = guest("prod-cp-1", "host-1", true);
        guest.cut_from = vec!["guests/prod-cp-2".into()];
        guest.disk_full = true;
        guest.slow_disk = Some(Duration::from_millis(500));
        let report = StatusReport {
            hosts: Vec::new(),
            guests: vec![guest],
            programs: Vec::new(),
            images: Vec::new(),
            kubeconfig: "/run/kubeconfig".into(),
            logs: "/run/logs".into(),
        };
        let state = "frozen, cut off from guests/prod-cp-2, disk full, slow disk (500 ms)";
        assert!(report.to_string().contains(state), "{report}");
    }
}
