//! The table: operations down, mishaps across.

use std::collections::BTreeMap;
use std::fmt;

use super::Course;
use super::operation::Operation;
use super::tripwire::{Mishap, Which};

/// How often, and how often it ended well.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    mishaps: usize,
    runs: usize,
    converged: usize,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Table {
    writes: BTreeMap<Operation, usize>,
    cells: BTreeMap<(Operation, &'static str), Cell>,
}

/// Columns in order.
const COLUMNS: [&str; 6] = ["calm", "death", "lost answer", "409", "429", "500"];

impl Table {
    /// Enters one operation of one life. One in which nothing went wrong though it should have had
    /// too few writes, and says nothing.
    pub fn enter(
        &mut self,
        operation: Operation,
        course: Course,
        (writes, mishaps): (usize, usize),
        converged: bool,
    ) {
        if course.which == Which::None && converged {
            self.writes.insert(operation, writes);
        } else if mishaps == 0 && converged {
            return;
        }
        let cell = self.cells.entry((operation, course.column())).or_default();
        cell.mishaps += mishaps;
        cell.runs += 1;
        cell.converged += usize::from(converged);
    }

    /// The most writes that one of these operations takes when nothing goes wrong.
    pub fn most_writes(&self, among: impl Iterator<Item = Operation>) -> usize {
        let writes = among.filter_map(|operation| self.writes.get(&operation));
        writes.copied().max().unwrap_or_default()
    }

    /// For people.
    pub fn show(&self) -> String {
        let used = |column: &&str| self.cells.keys().any(|(_, name)| name == column);
        let columns: Vec<&str> = COLUMNS.into_iter().filter(used).collect();
        let heads = columns.iter().map(|column| format!("{column:>16}"));
        let head = format!(
            "{:<14}{:>7}{}",
            "operation",
            "writes",
            heads.collect::<String>()
        );
        let done = |operation: &Operation| self.writes.contains_key(operation);
        let lines = Operation::LIFE.into_iter().filter(done).map(|operation| {
            let writes = self.writes.get(&operation).copied().unwrap_or_default();
            let cells = columns.iter().map(|column| {
                let cell = self.cells.get(&(operation, *column));
                let shown = cell.map_or_else(String::new, |cell| {
                    format!("{}/{} ({})", cell.converged, cell.runs, cell.mishaps)
                });
                format!("{shown:>16}")
            });
            format!(
                "\n{:<14}{writes:>7}{}",
                operation.name(),
                cells.collect::<String>()
            )
        });
        let lines: String = lines.collect();
        format!("{head}{lines}\nconverged/runs (mishaps)")
    }

    /// Cells that are as they must be, and those that are not.
    pub fn tally(&self) -> (usize, usize) {
        let good = self
            .cells
            .values()
            .filter(|cell| cell.converged == cell.runs)
            .count();
        (good, self.cells.len() - good)
    }
}

impl Course {
    /// Its column.
    pub(super) const fn column(self) -> &'static str {
        match (self.which, self.mishap) {
            (Which::None, _) => "calm",
            (_, Mishap::Death) => "death",
            (_, Mishap::LostAnswer) => "lost answer",
            (_, Mishap::Refusal(409)) => "409",
            (_, Mishap::Refusal(429)) => "429",
            (_, Mishap::Refusal(_)) => "500",
        }
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.column())?;
        match self.which {
            Which::None => Ok(()),
            Which::Only(number) => write!(f, " at write {number}"),
            Which::Every(first, step) => write!(f, " at write {first} and each {step} later"),
        }
    }
}
