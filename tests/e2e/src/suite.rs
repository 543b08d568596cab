//! Scenarios, their order, and what is printed of them.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use crate::stage::Stage;

/// One trial as a future.
type Trial = for<'a> fn(&'a Stage) -> BoxFuture<'a, anyhow::Result<()>>;

/// Where a scenario can be played.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Wherever there is KubeVirt.
    KubeVirt,
    /// On hosts and machines that can be broken: on the local infrastructure.
    Faults,
    /// There too, once Cluster API's controllers are built.
    Peers,
}

/// One thing that must hold, tried for real.
pub struct Scenario {
    /// Name within its group.
    pub name: &'static str,
    needs: Needs,
    is_foundation: bool,
    is_long: bool,
    run: Trial,
}

impl Scenario {
    /// A scenario that runs wherever there is KubeVirt.
    pub const fn new(name: &'static str, run: Trial) -> Self {
        Self {
            name,
            needs: Needs::KubeVirt,
            is_foundation: false,
            is_long: false,
            run,
        }
    }

    /// It needs hosts and machines that can be broken.
    #[must_use]
    pub const fn faults(mut self) -> Self {
        self.needs = Needs::Faults;
        self
    }

    /// It needs hosts on which Cluster API's controllers can be installed, which are built before it begins.
    #[must_use]
    pub const fn peers(mut self) -> Self {
        self.needs = Needs::Peers;
        self
    }

    /// Without it the rest of the group means nothing.
    #[must_use]
    pub const fn foundation(mut self) -> Self {
        self.is_foundation = true;
        self
    }

    /// It takes longer than a CI run has time for: it runs with `--full` or if it is named, and none
    /// after it may build on it.
    #[must_use]
    pub const fn long(mut self) -> Self {
        self.is_long = true;
        self
    }
}

/// Makes a scenario of an async function and what is to be known of it, as in
/// `scenario!(drain::hosts, faults, long)`.
#[macro_export]
macro_rules! scenario {
    ($function:path $(, $trait:ident)*) => {
        $crate::suite::Scenario::new(
            $crate::suite::last_segment(stringify!($function)),
            |stage| Box::pin($function(stage)),
        )$(.$trait())*
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
        ("bridge", crate::bridge::scenarios()),
    ]
}

/// No scenario may take longer; what does has hung.
const LIMIT: Duration = Duration::from_secs(600);
/// The same for the longer forms of scenarios.
const FULL_LIMIT: Duration = Duration::from_secs(1_200);

/// Which scenarios to run.
pub struct Selection {
    names: Vec<String>,
    full: bool,
}

impl Selection {
    /// Groups, or scenarios as GROUP/SCENARIO; none means all groups. Long scenarios are among them if
    /// the selection is full or names them.
    pub fn new(names: &[String], full: bool) -> Self {
        Self {
            names: names.to_vec(),
            full,
        }
    }

    fn has(&self, group: &str, scenario: &Scenario) -> bool {
        let name = format!("{group}/{}", scenario.name);
        let has_group = self.names.is_empty() || self.names.iter().any(|named| named == group);
        self.names.contains(&name) || has_group && (self.full || !scenario.is_long)
    }

    /// Whether Cluster API's controllers are to be built.
    pub fn needs_peers(&self) -> bool {
        groups().iter().any(|(group, scenarios)| {
            let mut selected = scenarios.iter().filter(|s| self.has(group, s));
            selected.any(|scenario| scenario.needs == Needs::Peers)
        })
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
        for scenario in scenarios.iter().filter(|s| selection.has(group, s)) {
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
        for scenario in scenarios.iter().filter(|s| selection.has(group, s)) {
            let name = format!("{group}/{}", scenario.name);
            if scenario.needs != Needs::KubeVirt && stage.infra().is_err() {
                println!("{name}: skipped, it needs the local infrastructure");
                continue;
            }
            println!("{name} …");
            let guests = stage.guests().await;
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
                    // A guest in trouble takes the processors from the trials that follow.
                    stage.deletes_guests_but(&guests).await;
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
