//! What goes wrong, and when.

use std::fmt;
use std::time::Duration;

/// What goes wrong with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The operator dies after the write, without an answer.
    Death,
    /// The write takes effect, and its answer is lost.
    LostAnswer,
    /// The write takes no effect and is answered with this status.
    Refusal(u16),
    /// The write takes effect, and the operator waits for the answer in vain.
    LateAnswer,
    /// The write takes no effect, and the operator waits for the answer in vain.
    LostRequest,
    /// The write takes effect only when the operator has given up waiting.
    LateRequest,
    /// From before the write on, watches of one kind, or of all, tell nothing for so long.
    StaleCache(Duration),
    /// After the write all watches end; every other time they cannot be taken up again.
    CutWatch,
    /// The operator stands still after the write until another has taken over, then goes on.
    Freeze,
}

impl Mishap {
    /// Its column of the table.
    pub const fn column(self) -> &'static str {
        match self {
            Self::Death => "death",
            Self::LostAnswer => "lost-answer",
            Self::Refusal(409) => "409",
            Self::Refusal(429) => "429",
            Self::Refusal(_) => "500",
            Self::LateAnswer => "late-answer",
            Self::LostRequest => "lost-request",
            Self::LateRequest => "late-request",
            Self::StaleCache(_) => "stale-cache",
            Self::CutWatch => "cut-watch",
            Self::Freeze => "freeze",
        }
    }

    /// Whether it strikes before the write takes effect, hence writes too that change nothing.
    pub const fn comes_first(self) -> bool {
        match self {
            Self::Refusal(_) | Self::LostRequest | Self::LateRequest | Self::StaleCache(_) => true,
            Self::Death | Self::LostAnswer | Self::LateAnswer | Self::CutWatch | Self::Freeze => {
                false
            }
        }
    }

    /// How many operators it takes.
    pub const fn replicas(self) -> usize {
        match self {
            Self::Freeze => 2,
            Self::Death
            | Self::LostAnswer
            | Self::Refusal(_)
            | Self::LateAnswer
            | Self::LostRequest
            | Self::LateRequest
            | Self::StaleCache(_)
            | Self::CutWatch => 1,
        }
    }
}

/// Which writes go wrong, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// None.
    None,
    /// This one.
    Only(usize),
    /// This one, and from there on each that comes so many later.
    Every(usize, usize),
}

impl Which {
    /// Whether it is one of them.
    pub const fn hits(self, count: usize) -> bool {
        match self {
            Self::None => false,
            Self::Only(number) => count == number,
            Self::Every(first, step) => count >= first && (count - first).is_multiple_of(step),
        }
    }
}

/// What goes wrong in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Which writes.
    pub which: Which,
    /// How.
    pub mishap: Mishap,
}

impl Trouble {
    /// Nothing does.
    pub const NONE: Self = Self {
        which: Which::None,
        mishap: Mishap::Death,
    };

    /// Its column of the table.
    pub const fn column(self) -> &'static str {
        match self.which {
            Which::None => super::table::CALM,
            Which::Only(_) | Which::Every(..) => self.mishap.column(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.column())?;
        match self.which {
            Which::None => Ok(()),
            Which::Only(number) => write!(f, " at write {number}"),
            Which::Every(first, step) => write!(f, " at write {first} and each {step} later"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_chosen_writes_go_wrong() {
        let hits = |which: Which| (1..=7).filter(|n| which.hits(*n)).collect::<Vec<_>>();
        assert_eq!(hits(Which::Only(3)), [3]);
        assert_eq!(hits(Which::Every(2, 3)), [2, 5]);
        assert_eq!(hits(Which::None), [0_usize; 0]);
    }
}
