//! Sets of hosts, as bits.

/// A set of small numbers. Sets that meet are of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

const WORD: usize = 64;

impl Bits {
    /// None of `length` numbers.
    pub(super) fn none(length: usize) -> Self {
        Self(vec![0; length.div_ceil(WORD)])
    }

    pub(super) fn insert(&mut self, number: usize) {
        self.0[number / WORD] |= 1 << (number % WORD);
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.0[number / WORD] &= !(1 << (number % WORD));
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.0[number / WORD] & (1 << (number % WORD)) != 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .all(|(own, other)| own & !other == 0)
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .any(|(own, other)| own & other != 0)
    }

    pub(super) fn remove_all(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own &= !other;
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own |= other;
        }
    }

    /// The smallest member that is not below `from`.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let mut at = from / WORD;
        let mut word = self.0.get(at)? & (u64::MAX << (from % WORD));
        while word == 0 {
            at += 1;
            word = *self.0.get(at)?;
        }
        Some(at * WORD + word.trailing_zeros() as usize)
    }

    /// All members, smallest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let next = self.next(from)?;
            from = next + 1;
            Some(next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_order_over_the_ends_of_words() {
        let mut bits = Bits::none(130);
        for number in [129, 0, 63, 64] {
            bits.insert(number);
        }
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(
            (bits.count(), bits.next(65), bits.next(130)),
            (4, Some(129), None)
        );
        bits.remove(63);
        assert!(!bits.has(63) && bits.has(64));
        assert_eq!(Bits::none(0).next(0), None);
    }
}
