//! Counting of tests over everything that runs them.

use std::fmt;
use std::ops::AddAssign;

/// How many tests passed and failed. Shown, it names what failed and ends with the closing line
/// `N passed, N failed`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed; a suite that could not run counts as one.
    pub failed: u64,
    /// What is known of those that failed, a line each.
    failures: Vec<String>,
}

impl Tally {
    /// One failure: something that should have run did not.
    pub fn failure(why: String) -> Self {
        Self {
            passed: 0,
            failed: 1,
            failures: vec![why],
        }
    }

    /// Counts what a line of output says: one that closes a test binary (`test result: ok. 3 passed;
    /// 0 failed; …`) or one of our suites (`3 passed, 0 failed`), or one that names a failure.
    pub fn read(&mut self, line: &str) {
        if let Some((passed, failed)) = counts(line) {
            self.passed += passed;
            self.failed += failed;
        }
        self.failures.extend(named(line).map(str::to_owned));
    }
}

/// How many passed and failed, in a closing line.
fn counts(line: &str) -> Option<(u64, u64)> {
    let (counts, separator) = match line.strip_prefix("test result: ") {
        Some(rest) => (rest.split_once(". ")?.1, ';'),
        None => (line, ','),
    };
    let mut counts = counts.split(separator);
    let mut count = |suffix| counts.next()?.trim().strip_suffix(suffix)?.parse().ok();
    Some((count(" passed")?, count(" failed")?))
}

/// The failure that a line names, as cargo's tests (`test a ... FAILED`) and our suites (`failed: a`)
/// do.
fn named(line: &str) -> Option<&str> {
    let of_cargo = || line.strip_prefix("test ")?.strip_suffix(" ... FAILED");
    line.strip_prefix("failed: ").or_else(of_cargo)
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failures.extend(other.failures);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "failed: {failure}")?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_cargo_and_of_our_own_suites_are_counted() {
        let cargo = "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(counts(cargo), Some((3, 1)));
        assert_eq!(counts("12 passed, 0 failed"), Some((12, 0)));
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
            assert_eq!(counts(line), None, "{line}");
        }
    }

    #[test]
    fn what_failed_is_named_before_the_closing_line() {
        let mut tally = Tally::default();
        let lines = [
            "test one ... ok",
            "test two ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored",
        ];
        for line in lines {
            tally.read(line);
        }
        let mut suite = Tally::default();
        suite.read("failed: life/three: it burns");
        suite.read("4 passed, 1 failed");
        tally += suite;
        assert_eq!(
            tally.to_string(),
            "failed: two\nfailed: life/three: it burns\n5 passed, 2 failed"
        );
    }
}
