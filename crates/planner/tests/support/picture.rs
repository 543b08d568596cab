//! What the operator would do and say, as plain YAML for people.

use guestcluster_planner::machines::recorded;
use guestcluster_planner::{Hold, Plan, Requeue};
use guestcluster_testkit::World;

/// The plan and the status that a visit would make now.
pub fn picture(world: &World) -> String {
    let (plan, status) = world.consider();
    let actions = plan.actions.iter();
    let actions = actions.map(|action| format!("{}: {}", action.kind(), action.subject()));
    let machines = recorded(&status).map(|machine| {
        let host = machine.host.as_ref().map(|host| format!(" on {host}"));
        format!(
            "{}: {}{}",
            machine.name,
            machine.phase,
            host.unwrap_or_default()
        )
    });
    let conditions = status.conditions.iter();
    let conditions =
        conditions.map(|c| format!("{}: {} {}: {}", c.type_, c.status, c.reason, c.message));
    [
        list("actions", actions),
        list("holds", plan.holds.iter().map(hold)),
        format!("look again: {}", look_again(world, &plan)),
        list("machines", machines),
        list("conditions", conditions),
    ]
    .join("\n")
}

fn hold(hold: &Hold) -> String {
    let person = if hold.needs_person {
        " (needs a person)"
    } else {
        ""
    };
    format!("{}{person}: {}", hold.reason.as_str(), hold.message)
}

fn look_again(world: &World, plan: &Plan) -> String {
    match &plan.requeue {
        Requeue::OnChange => "when something changes".to_owned(),
        Requeue::At(at, who) => {
            let wait = at.duration_since(world.now()).as_secs_f64();
            format!("in {wait} s ({who})")
        }
    }
}

fn list(title: &str, lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines
        .map(|line| format!("\n  - {}", line.replace('\n', "\n    ")))
        .collect();
    let empty = if lines.is_empty() { " []" } else { "" };
    format!("{title}:{empty}{}", lines.concat())
}
