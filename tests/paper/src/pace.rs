//! How long things take on paper.

use std::time::Duration;

use crate::etcd::Tempo;

/// Times; those of a real machine are ten to a hundred times as long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From power-on to kubeadm's first word with a guest, or to the first answer of one that it
    /// begins.
    pub boot: Duration,
    /// From one step of kubeadm to the next.
    pub step: Duration,
    /// From power-on to the first answer of a machine that has joined before.
    pub restart: Duration,
    /// From a machine's last sign of life to its Node being not Ready.
    pub grace: Duration,
    /// etcd's times.
    pub etcd: Tempo,
}

impl Pace {
    /// As quick as it can be without being everything at once.
    pub const QUICK: Self = Self {
        boot: Duration::from_millis(200),
        step: Duration::from_millis(60),
        restart: Duration::from_millis(200),
        grace: Duration::from_secs(4),
        etcd: Tempo {
            election: Duration::from_millis(300),
            health: Duration::from_millis(500),
            sync: Duration::from_millis(150),
        },
    };

    /// As on the local infrastructure's real machines.
    pub const REAL: Self = Self {
        boot: Duration::from_secs(5),
        step: Duration::from_secs(2),
        restart: Duration::from_secs(6),
        grace: Duration::from_secs(40),
        etcd: Tempo {
            election: Duration::from_secs(1),
            health: Duration::from_secs(5),
            sync: Duration::from_secs(6),
        },
    };
}
