//! Counting of tests over everything that runs them.

use std::fmt;
use std::ops::AddAssign;

/// How many tests passed and failed. Shown, it is the closing line `N passed, N failed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed; a suite that could not run counts as one.
    pub failed: u64,
}

impl Tally {
    /// One failure: something that should have run did not.
    pub const FAILURE: Self = Self {
        passed: 0,
        failed: 1,
    };

    /// The counts in a line that closes one test binary (`test result: ok. 3 passed; 0 failed; …`)
    /// or one e2e group (`3 passed, 0 failed`); `None` for any other line.
    pub fn of_line(line: &str) -> Option<Self> {
        let (counts, separator) = match line.strip_prefix("test result: ") {
            Some(rest) => (rest.split_once(". ")?.1, ';'),
            None => (line, ','),
        };
        let mut counts = counts.split(separator);
        let passed = counts
            .next()?
            .trim()
            .strip_suffix(" passed")?
            .parse()
            .ok()?;
        let failed = counts
            .next()?
            .trim()
            .strip_suffix(" failed")?
            .parse()
            .ok()?;
        Some(Self { passed, failed })
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_cargo_and_of_our_own_suites_are_counted() {
        let cargo = "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(
            Tally::of_line(cargo),
            Some(Tally {
                passed: 3,
                failed: 1
            })
        );
        assert_eq!(
            Tally::of_line("12 passed, 0 failed"),
            Some(Tally {
                passed: 12,
                failed: 0
            })
        );
        assert_eq!(
            Tally {
                passed: 12,
                failed: 0
            }
            .to_string(),
            "12 passed, 0 failed"
        );
    }

    #[test]
    fn other_lines_are_not_counted() {
        for line in [
            "",
            "running 3 tests",
            "test a ... ok",
            "3 passed",
            "all 3 passed, 1 failed",
        ] {
            assert_eq!(Tally::of_line(line), None, "{line}");
        }
    }
}
