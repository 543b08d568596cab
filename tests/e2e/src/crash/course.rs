//! Which lives are lived, and what goes wrong in them.

use std::time::Duration;

use super::mishap::{Mishap, Trouble, Which};
use super::operation::Operation;
use super::table::Table;

/// How long watches lag behind.
const LAG: Duration = Duration::from_secs(3);
/// Longer than the operator waits for its own writes to show.
const LONG_LAG: Duration = Duration::from_secs(35);

/// Kinds of mishap that differ in their column.
const KINDS: [Mishap; 11] = [
    Mishap::Death,
    Mishap::LostAnswer,
    Mishap::Refusal(409),
    Mishap::Refusal(429),
    Mishap::Refusal(500),
    Mishap::LateAnswer,
    Mishap::LostRequest,
    Mishap::LateRequest,
    Mishap::StaleCache(LAG),
    Mishap::CutWatch,
    Mishap::Freeze,
];

/// One run through a life, with what goes wrong in each operation.
#[derive(Clone, Debug)]
pub struct Course {
    /// What is done.
    pub life: &'static [Operation],
    which: Which,
    /// One operation after the other takes the next of these.
    mishaps: Vec<Mishap>,
}

impl Course {
    /// Nothing goes wrong.
    pub const fn calm(life: &'static [Operation]) -> Self {
        Self {
            life,
            which: Which::None,
            mishaps: Vec::new(),
        }
    }

    fn new(life: &'static [Operation], which: Which, mishaps: &[Mishap]) -> Self {
        Self {
            life,
            which,
            mishaps: mishaps.to_vec(),
        }
    }

    /// Its operations with what goes wrong in each.
    pub fn steps(&self) -> impl Iterator<Item = (Operation, Trouble)> {
        let troubles = self.mishaps.iter().map(|&mishap| Trouble {
            which: self.which,
            mishap,
        });
        let troubles = troubles.cycle().chain(std::iter::repeat(Trouble::NONE));
        self.life.iter().copied().zip(troubles)
    }

    /// How many operators it takes.
    pub fn replicas(&self) -> usize {
        let replicas = self.mishaps.iter().map(|mishap| mishap.replicas());
        replicas.max().unwrap_or(1)
    }

    /// The columns in which it has a part.
    pub fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.mishaps.iter().map(|mishap| mishap.column())
    }

    /// Whether it has a part in one of these columns.
    pub fn is_of(&self, columns: &[String]) -> bool {
        let named = |own| columns.iter().any(|column| column == own);
        columns.is_empty() || self.columns().any(named)
    }
}

/// In CI each kind of mishap in one life, some kinds by turns. Where every write went wrong, a token
/// and the Secret that carries it would never both come about. One action writes up to six objects,
/// which are all tried again when one of them is refused, so that refusals are further apart; what
/// costs the operator a wait of seconds each time, further still.
pub fn few() -> Vec<Course> {
    let refusals = [409, 429, 500].map(Mishap::Refusal);
    let silences = [Mishap::LateAnswer, Mishap::LostRequest, Mishap::LateRequest];
    let caches = [Mishap::StaleCache(LAG), Mishap::CutWatch];
    // Once, where the control plane grows: a lease lasts half a minute.
    let cut = Mishap::CutWatch;
    let freeze = [cut, Mishap::Freeze, cut, cut];
    vec![
        Course::new(Operation::SHORT, Which::Every(1, 2), &[Mishap::Death]),
        Course::new(Operation::SHORT, Which::Every(1, 2), &[Mishap::LostAnswer]),
        Course::new(Operation::BRIEF, Which::Every(2, 7), &refusals),
        Course::new(Operation::SHORT, Which::Every(3, 16), &silences),
        Course::new(Operation::SHORT, Which::Every(2, 4), &caches),
        Course::new(Operation::BRIEF, Which::Only(15), &freeze),
    ]
}

/// In full one life for each write of its operations, and lives with the longest operation in which
/// every seventh write goes wrong, beginning at each of seven. What takes half a minute each time is
/// left to some brief lives.
pub fn all(table: &Table) -> Vec<Course> {
    let of = |mishap: Mishap| match mishap {
        Mishap::Freeze => some(mishap, 2, table),
        Mishap::StaleCache(_) => {
            let mut courses = some(Mishap::StaleCache(LONG_LAG), 5, table);
            courses.extend(singles(mishap, table));
            courses
        }
        Mishap::LateAnswer | Mishap::LostRequest | Mishap::LateRequest | Mishap::CutWatch => {
            singles(mishap, table)
        }
        Mishap::Death | Mishap::LostAnswer | Mishap::Refusal(_) => {
            let mut courses = sevenths(mishap);
            courses.extend(singles(mishap, table));
            courses
        }
    };
    KINDS.into_iter().flat_map(of).collect()
}

fn sevenths(mishap: Mishap) -> Vec<Course> {
    let first = 1..=7;
    first
        .map(|first| Course::new(Operation::LONG, Which::Every(first, 7), &[mishap]))
        .collect()
}

fn singles(mishap: Mishap, table: &Table) -> Vec<Course> {
    let writes = 1..=table.most_writes(Operation::SHORT);
    writes
        .map(|number| Course::new(Operation::SHORT, Which::Only(number), &[mishap]))
        .collect()
}

/// Brief lives for one of so many writes.
fn some(mishap: Mishap, step: usize, table: &Table) -> Vec<Course> {
    let writes = (1..=table.most_writes(Operation::BRIEF)).step_by(step);
    writes
        .map(|number| Course::new(Operation::BRIEF, Which::Only(number), &[mishap]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_few_lives_know_each_kind_of_mishap() {
        let lives = few();
        let steps = lives.iter().flat_map(Course::steps);
        let known: Vec<_> = steps.map(|(_, trouble)| trouble.column()).collect();
        for kind in KINDS {
            assert!(known.contains(&kind.column()), "{}", kind.column());
        }
    }

    #[test]
    fn a_life_takes_its_mishaps_by_turns() {
        let mishaps = [Mishap::Death, Mishap::Refusal(409)];
        let course = Course::new(Operation::BRIEF, Which::Only(1), &mishaps);
        let columns: Vec<_> = course
            .steps()
            .map(|(_, trouble)| trouble.column())
            .collect();
        assert_eq!(columns, ["death", "409", "death", "409"]);
        assert!(course.is_of(&["409".to_owned()]) && !course.is_of(&["500".to_owned()]));
    }
}
