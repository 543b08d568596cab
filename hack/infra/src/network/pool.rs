//! The addresses of machines and Pods.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// First and last address given to machines and Pods; the lowest few stay free for fixed uses.
const POOL: (Ipv4Addr, Ipv4Addr) = (
    Ipv4Addr::new(10, 244, 0, 10),
    Ipv4Addr::new(10, 244, 255, 250),
);

/// Addresses in use, and where to look for the next one.
#[derive(Debug)]
pub(super) struct Pool {
    used: BTreeSet<Ipv4Addr>,
    next: Ipv4Addr,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            used: BTreeSet::new(),
            next: POOL.0,
        }
    }
}

impl Pool {
    /// Gives an address back; its turn comes after all others'.
    pub(super) fn release(&mut self, address: Ipv4Addr) {
        self.used.remove(&address);
    }

    /// The next free address, running around; none when all are taken.
    pub(super) fn take(&mut self) -> Option<Ipv4Addr> {
        let size = POOL.1.to_bits() - POOL.0.to_bits() + 1;
        for _ in 0..size {
            let candidate = self.next;
            self.next = if candidate == POOL.1 {
                POOL.0
            } else {
                Ipv4Addr::from_bits(candidate.to_bits() + 1)
            };
            if self.used.insert(candidate) {
                return Some(candidate);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_run_around_and_skip_those_in_use() {
        let mut pool = Pool {
            next: POOL.1,
            ..Pool::default()
        };
        pool.used.insert(POOL.0);
        assert_eq!(pool.take(), Some(POOL.1));
        assert_eq!(pool.take(), Some(Ipv4Addr::new(10, 244, 0, 11)));
    }

    #[test]
    fn a_full_pool_says_so() {
        let mut pool = Pool::default();
        while pool.take().is_some() {}
        assert_eq!(pool.take(), None);
        pool.used.remove(&Ipv4Addr::new(10, 244, 4, 4));
        assert_eq!(pool.take(), Some(Ipv4Addr::new(10, 244, 4, 4)));
    }
}
