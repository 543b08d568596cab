//! Documentation: it builds, its links lead somewhere, and each invariant names its tests.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::project::Project;

const INVARIANTS: &str = "docs/invariants.md";

/// Runs the three checks.
pub fn check(project: &Project) -> Result<()> {
    let mut wrong = broken_links(project)?;
    wrong.extend(unguarded(project)?);
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n  "));
    }
    let mut rustdoc = project.cargo();
    // Private items are documented as well, so a link to one leads somewhere.
    rustdoc.env(
        "RUSTDOCFLAGS",
        "-D warnings -A rustdoc::private_intra_doc_links",
    );
    process::run(rustdoc.args([
        "doc",
        "--workspace",
        "--no-deps",
        "--locked",
        "--document-private-items",
    ]))
}

/// Relative links in Markdown files that lead to no file.
fn broken_links(project: &Project) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for file in project.files(".md")? {
        let text = read(&file)?;
        let folder = file.parent().unwrap_or_else(|| project.root());
        for target in relative_links(&text) {
            if !folder.join(target).exists() {
                broken.push(format!(
                    "{} links to {target}, which does not exist",
                    project.shown(&file)
                ));
            }
        }
    }
    Ok(broken)
}

/// Targets of `[…](target)` inside the checkout, without fragments.
fn relative_links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split_once(')')?.0.split('#').next()?;
        let outside = target.contains("://") || target.starts_with("mailto:");
        (!target.is_empty() && !outside).then_some(target)
    })
}

/// Invariants without a guard, and guards that are no test.
fn unguarded(project: &Project) -> Result<Vec<String>> {
    let text = read(&project.path(INVARIANTS))?;
    let mut sources = String::new();
    for file in project.files(".rs")? {
        sources.push_str(&read(&file)?);
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for invariant in text.lines().filter(|line| is_numbered(line)) {
        count += 1;
        let (title, guards) = invariant.split_once("Guard: ").unwrap_or((invariant, ""));
        let mut guards = guards.split('`').skip(1).step_by(2).peekable();
        if guards.peek().is_none() {
            wrong.push(format!(
                "{INVARIANTS}: no guard in `{title}`: end it with Guard: `name of a test`"
            ));
        }
        for guard in guards.filter(|guard| !sources.contains(&format!("fn {guard}("))) {
            wrong.push(format!("{INVARIANTS}: there is no test `{guard}`"));
        }
    }
    if count == 0 {
        wrong.push(format!("{INVARIANTS} has no numbered line"));
    }
    Ok(wrong)
}

fn is_numbered(line: &str) -> bool {
    line.split_once(". ")
        .is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_inside_the_checkout_are_found_without_their_fragments() {
        let text = "[a](docs/a.md#part), [b](https://example.com), [c](#here) and [d](../d.rs).";
        assert_eq!(
            relative_links(text).collect::<Vec<_>>(),
            ["docs/a.md", "../d.rs"]
        );
    }

    #[test]
    fn an_invariant_is_a_numbered_line() {
        assert!(is_numbered("12. One at a time."));
        assert!(!is_numbered("Since v1. there"));
    }
}
