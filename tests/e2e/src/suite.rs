//! Scenarios, their order, and what is printed of them.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use crate::stage::Stage;

/// One thing that must hold, tried for real.
pub struct Scenario {
    /// Name within its group.
    pub name: &'static str,
    /// Needs hosts and machines that can be broken.
    pub needs_faults: bool,
    /// Without it the rest of the group means nothing.
    pub is_foundation: bool,
    /// The trial.
    pub run: for<'a> fn(&'a Stage) -> BoxFuture<'a, anyhow::Result<()>>,
}

/// Makes a scenario of an async function.
#[macro_export]
macro_rules! scenario {
    ($function:path, foundation) => {
        $crate::scenario!(@ $function, false, true)
    };
    ($function:path, faults) => {
        $crate::scenario!(@ $function, true, false)
    };
    ($function:path) => {
        $crate::scenario!(@ $function, false, false)
    };
    (@ $function:path, $faults:expr, $foundation:expr) => {
        $crate::suite::Scenario {
            name: $crate::suite::last_segment(stringify!($function)),
            needs_faults: $faults,
            is_foundation: $foundation,
            run: |stage| Box::pin($function(stage)),
        }
    };
}

/// The part of a path after its last `::`.
pub fn last_segment(path: &'static str) -> &'static str {
    path.rsplit("::").next().unwrap_or(path).trim()
}

/// All groups with their scenarios, in order.
fn groups() -> Vec<(&'static str, Vec<Scenario>)> {
    vec![
        ("guest", crate::guest::scenarios()),
        ("life", crate::life::scenarios()),
        ("layers", crate::layers::scenarios()),
        ("moves", crate::layers::moving()),
        ("truth", crate::truth::scenarios()),
    ]
}

/// No scenario may take longer; what does has hung.
const LIMIT: Duration = Duration::from_secs(600);
/// The same for the longer forms of scenarios.
const FULL_LIMIT: Duration = Duration::from_secs(1_200);

/// Which scenarios to run.
pub struct Selection {
    names: Vec<String>,
}

impl Selection {
    /// Groups, or scenarios as GROUP/SCENARIO; none means all.
    pub fn new(names: &[String]) -> Self {
        Self {
            names: names.to_vec(),
        }
    }

    fn has(&self, group: &str, scenario: &str) -> bool {
        self.names.is_empty()
            || self
                .names
                .iter()
                .any(|n| n == group || *n == format!("{group}/{scenario}"))
    }

    /// Says which name means nothing.
    pub fn check(&self) -> anyhow::Result<()> {
        let groups = groups();
        for name in &self.names {
            let (group, scenario) = name.split_once('/').unwrap_or((name, ""));
            let known = groups
                .iter()
                .find(|(known, _)| *known == group)
                .is_some_and(|(_, all)| {
                    scenario.is_empty() || all.iter().any(|s| s.name == scenario)
                });
            anyhow::ensure!(known, "no group or scenario is called {name:?}; see --list");
        }
        Ok(())
    }
}

/// Prints the scenarios.
pub fn list(selection: &Selection) {
    for (group, scenarios) in groups() {
        for scenario in scenarios.iter().filter(|s| selection.has(group, s.name)) {
            println!("{group}/{}", scenario.name);
        }
    }
}

/// Runs the selected scenarios one after another.
pub async fn run(selection: &Selection, stage: &Stage) -> ExitCode {
    let (mut passed, mut failed) = (0_usize, Vec::new());
    let begun = Instant::now();
    let limit = if stage.full { FULL_LIMIT } else { LIMIT };
    for (group, scenarios) in groups() {
        for scenario in scenarios.iter().filter(|s| selection.has(group, s.name)) {
            let name = format!("{group}/{}", scenario.name);
            if scenario.needs_faults && stage.infra().is_err() {
                println!("{name}: skipped, it needs the local infrastructure's faults");
                continue;
            }
            println!("{name} …");
            let started = Instant::now();
            let outcome = tokio::time::timeout(limit, (scenario.run)(stage)).await;
            let outcome = outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("not over in {limit:?}")));
            let seconds = started.elapsed().as_secs_f32();
            match outcome {
                Ok(()) => {
                    println!("{name} … ok ({seconds:.1} s)");
                    passed += 1;
                }
                Err(error) => {
                    println!("{name} … FAILED ({seconds:.1} s): {error:#}");
                    stage.describe_failure().await;
                    failed.push(format!("{name}: {error:#}"));
                    if scenario.is_foundation {
                        println!("the rest of group {group} builds on it and is left out");
                        break;
                    }
                }
            }
        }
    }
    println!("{:.0} s in all", begun.elapsed().as_secs_f32());
    for failure in &failed {
        println!("failed: {}", on_one_line(failure));
    }
    println!("{passed} passed, {} failed", failed.len());
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A failure short enough for a list; its whole text stands where it was met.
pub(crate) fn on_one_line(failure: &str) -> String {
    const ENOUGH: usize = 600;
    let line = failure.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(ENOUGH) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
