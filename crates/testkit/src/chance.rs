//! What is left to chance in a world.

/// Numbers that depend on a seed alone, or none.
#[derive(Clone, Debug)]
pub(crate) enum Chance {
    /// SplitMix64: good enough to vary histories, and the same on every machine.
    Seeded(u64),
    /// Nothing is ever late or refused: whoever walks the world decides what comes when.
    Prompt,
}

impl Chance {
    /// True once in `odds` times.
    pub(crate) const fn one_in(&mut self, odds: u64) -> bool {
        match self {
            Self::Seeded(seed) => next(seed).is_multiple_of(odds),
            Self::Prompt => false,
        }
    }
}

const fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *seed;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
