//! The table: operations down, mishaps across.

use std::collections::{BTreeMap, BTreeSet};

use super::mishap::{Trouble, Which};
use super::operation::Operation;

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

/// Where nothing goes wrong.
pub const CALM: &str = "calm";

/// Columns in order.
pub const COLUMNS: [&str; 12] = [
    CALM,
    "death",
    "lost-answer",
    "409",
    "429",
    "500",
    "late-answer",
    "lost-request",
    "late-request",
    "stale-cache",
    "cut-watch",
    "freeze",
];

impl Table {
    /// Enters one operation of one life. One in which nothing went wrong though it should have had
    /// too few writes, and says nothing.
    pub fn enter(
        &mut self,
        operation: Operation,
        trouble: Trouble,
        (writes, mishaps): (usize, usize),
        converged: bool,
    ) {
        if trouble.which == Which::None && converged {
            self.writes.insert(operation, writes);
        } else if mishaps == 0 && converged {
            return;
        }
        let cell = self.cells.entry((operation, trouble.column())).or_default();
        cell.mishaps += mishaps;
        cell.runs += 1;
        cell.converged += usize::from(converged);
    }

    /// The most writes that one of these operations takes when nothing goes wrong.
    pub fn most_writes(&self, among: &[Operation]) -> usize {
        let writes = among
            .iter()
            .filter_map(|operation| self.writes.get(operation));
        writes.copied().max().unwrap_or_default()
    }

    /// For people.
    pub fn show(&self) -> String {
        let used = |column: &&str| self.cells.keys().any(|(_, name)| name == column);
        let columns: Vec<&str> = COLUMNS.into_iter().filter(used).collect();
        let heads = columns.iter().map(|column| format!("{column:>13}"));
        let head = format!(
            "{:<14}{:>7}{}",
            "operation",
            "writes",
            heads.collect::<String>()
        );
        let done = |operation: &Operation| self.writes.contains_key(operation);
        let lines = Operation::ALL.into_iter().filter(done).map(|operation| {
            let writes = self.writes.get(&operation).copied().unwrap_or_default();
            let cells = columns.iter().map(|column| {
                let cell = self.cells.get(&(operation, *column));
                let shown = cell.map_or_else(String::new, |cell| {
                    format!("{}/{} ({})", cell.converged, cell.runs, cell.mishaps)
                });
                format!("{shown:>13}")
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

    /// Those of these columns in which nothing ever went wrong, so that they show nothing.
    pub fn untried(&self, columns: impl Iterator<Item = &'static str>) -> BTreeSet<&'static str> {
        let tried = |column: &&str| self.cells.keys().any(|(_, name)| name == column);
        columns.filter(|column| !tried(column)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::mishap::Mishap;

    #[test]
    fn a_cell_counts_lives_in_which_something_went_wrong() {
        let mut table = Table::default();
        let trouble = Trouble {
            which: Which::Only(9),
            mishap: Mishap::Death,
        };
        table.enter(Operation::Create, Trouble::NONE, (8, 0), true);
        table.enter(Operation::Create, trouble, (8, 0), true);
        assert_eq!(table.tally(), (1, 0));
        assert_eq!(table.untried([CALM, "death"].into_iter()), ["death"].into());
        table.enter(Operation::Create, trouble, (9, 1), false);
        assert_eq!(table.tally(), (1, 1));
        assert_eq!(table.most_writes(&Operation::ALL), 8);
        assert!(table.show().contains("0/1 (1)"), "{}", table.show());
    }
}
